"""Order of suspended work: shares of CPU for client networks, and a bound on unfinished work.

Work is suspended after a slice of 5 ms (`scheduler.py`). This module makes two decisions.

Next slice. Each network has a credit of up to `CREDIT` slices. A slice costs one, and credit
grows back at one per `REGAIN` seconds. The network with the most credit goes first, networks with equal credit take
turns, and every `BUSY_TURN`-th slice is for networks without credit. So the frames of networks with little work pass
those of busy networks, and no network starves. Within a network, levels take turns, so its short frames pass its long
ones.

Unfinished work. Suspended work keeps what it has built: about 0.3 MB per slice, and 200 MB for a frame
of 4 MB. Work moves up one level after the slices of its level, and needs a place there. Work that waits for a place
keeps its place in the level below. A network without a place gets one as long as fewer than `networks` networks have
one. So works that stay in their places for seconds do not keep other networks from getting theirs.

Bound for a frame of n <= 20 slices (0.1 s) of a network with full credit: it waits for 1 + n / 3 slices of busy
networks, and for 4n / 3 slices of each other network with full credit. It holds while at most 40 networks have frames
of more than 10 ms.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from .scheduler import Fiber

Thing = TypeVar("Thing")


class WorkLevel(NamedTuple):
    """Level of work that needs more slices than the levels below allow. `slices`: after these, work moves up.

    Places: the first one of at most `networks` networks, and `more` further ones, with at most `share` per network.
    """

    networks: int
    more: int
    share: int
    slices: int


NEVER = 1 << 60
LEVELS = (
    WorkLevel(NEVER, NEVER, NEVER, 2),  # most frames need no more than 10 ms
    WorkLevel(40, 8, 8, 18),  # up to 0.1 s, 6 MB each
    WorkLevel(20, 4, 2, 40),  # up to 0.3 s, 18 MB each
    WorkLevel(2, 0, 1, NEVER),  # up to 200 MB each
)
CREDIT = 20  # slices: a frame of 0.1 s
REGAIN = 0.32  # seconds per slice of credit: 1.6 % of a core, less than one of 40 busy networks uses
COMPARED = 64  # a place goes to the network with the fewest slices among this many
BUSY_TURN = 4  # every BUSY_TURN-th slice is for networks without credit, if any exist


class RoundRobin(Generic[Thing]):
    """Lines of things by address. Addresses take turns; things of one address keep their order."""

    def __init__(self, gone: Callable[[Thing], bool]) -> None:
        self.gone = gone
        self.lines: OrderedDict[str, deque[Thing]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self.lines)

    def add(self, address: str, thing: Thing) -> None:
        self.lines.setdefault(address, deque()).append(thing)

    def next(self) -> Thing | None:
        """Take the first thing of the next address in turn, without those that have gone."""
        while self.lines:
            address, line = self.lines.popitem(last=False)
            while line:
                thing = line.popleft()
                if not self.gone(thing):
                    if line:
                        self.lines[address] = line
                    return thing
        return None


class Places:
    """Places of one level, and the work that waits for them.

    The first places go to networks with the fewest slices (`used`). For further places, networks take turns.
    """

    def __init__(self, level: WorkLevel, used: Callable[[str], int]) -> None:
        self.level, self.used = level, used
        self.taken: Counter[str] = Counter()  # places by network
        self.total = 0
        self.lines: dict[str, deque[Fiber]] = {}  # waiting work by network
        self.without: OrderedDict[str, None] = OrderedDict()  # networks with waiting work: those without a place,
        self.below: OrderedDict[str, None] = OrderedDict()  # and those with fewer places than their share

    def add(self, work: Fiber) -> None:
        self.lines.setdefault(work.address, deque()).append(work)
        self.line_up(work.address)

    def line_up(self, network: str) -> None:
        """Let the network take turns with those that are in the same situation."""
        taken, turns = self.taken[network], None
        if network in self.lines and taken < self.level.share:
            turns = self.below if taken else self.without
        for other in (self.without, self.below):
            if other is not turns:
                other.pop(network, None)
        if turns is not None:
            turns.setdefault(network)

    def next(self) -> Fiber | None:
        """Give a free place to waiting work, and return this work; None if no work waits or no place is free."""
        while True:
            networks = len(self.taken)
            if self.without and networks < self.level.networks:
                network = min(islice(self.without, COMPARED), key=self.used)
                del self.without[network]
            elif self.below and self.total - networks < self.level.more:
                network, _ = self.below.popitem(last=False)
            else:
                return None
            line = self.lines[network]
            work = line.popleft()
            if not line:
                del self.lines[network]
            if not work.dead:
                self.taken[network] += 1
                self.total += 1
            self.line_up(network)
            if not work.dead:
                return work

    def release(self, network: str) -> None:
        self.total -= 1
        self.taken[network] -= 1
        if not self.taken[network]:
            del self.taken[network]
        self.line_up(network)


class NetworkTurns:
    """Work of one network that has places, by level. `credit`: in slices, as of the time `seen`. `used`: slices."""

    __slots__ = ("credit", "last", "line", "seen", "used", "works")

    def __init__(self, now: float) -> None:
        self.works: list[deque[Fiber]] = [deque() for _ in LEVELS]
        self.last = self.used = 0  # level of its last slice; slices
        self.credit, self.seen = float(CREDIT), now
        self.line: OrderedDict[str, NetworkTurns] | None = None  # line with its next slice

    def spend(self, slices: int, now: float) -> None:
        self.used += slices
        self.credit = max(-CREDIT, min(CREDIT, self.credit + (now - self.seen) / REGAIN) - slices)
        self.seen = now

    def next(self) -> Fiber | None:
        """Return the work that has the next slice of the network; levels take turns."""
        for more in range(1, len(LEVELS) + 1):
            level = (self.last + more) % len(LEVELS)
            works = self.works[level]
            while works:
                work = works.popleft()
                if not work.dead:
                    self.last = level
                    return work
        return None


class Admission:
    """Order of the suspended work of one reactor."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.places: list[Places] = [Places(level, self.used) for level in LEVELS]
        self.networks: OrderedDict[str, NetworkTurns] = OrderedDict()  # last slice first
        self.lines: list[OrderedDict[str, NetworkTurns]] = [OrderedDict() for _ in range(CREDIT + 1)]  # by credit
        self.count = 0  # slices so far

    def used(self, address: str) -> int:
        network = self.networks.get(address)
        return 0 if network is None else network.used

    def add(self, work: Fiber) -> None:
        """Let the work wait for its next slice, or for a place on the next level after the slices of its own."""
        level = work.level
        if level < 0 or work.slices >= LEVELS[level].slices:
            self.places[level + 1].add(work)
        else:
            self.wait(work)

    def wait(self, work: Fiber) -> None:
        now, address = self.clock(), work.address
        network = self.networks.get(address)
        if network is None:
            network = self.networks[address] = NetworkTurns(now)
        network.works[work.level].append(work)
        self.line_up(address, network, now)

    def line_up(self, address: str, network: NetworkTurns, now: float) -> None:
        if network.line is None and any(network.works):
            network.spend(0, now)
            network.line = self.lines[max(0, int(network.credit))]
            network.line[address] = network

    def next(self) -> Fiber | None:
        """Take the work that has the next slice. None: no work has a place, or none waits."""
        for level in reversed(range(len(LEVELS))):  # work that moves up returns a place
            while (admitted := self.places[level].next()) is not None:
                self.release(admitted)
                admitted.level, admitted.slices = level, 0
                self.wait(admitted)
        self.count += 1
        busy, *rich = self.lines
        for line in (busy, *reversed(rich)) if self.count % BUSY_TURN == 0 else (*reversed(rich), busy):
            while line:
                address, network = line.popitem(last=False)
                network.line = None
                work = network.next()
                if work is not None:
                    now = self.clock()
                    network.spend(1, now)
                    self.line_up(address, network, now)
                    self.networks.move_to_end(address)
                    self.forget(now)
                    work.slices += 1
                    return work
        return None

    def forget(self, now: float) -> None:
        """Drop up to two networks that have no work and full credit. Each slice adds at most one."""
        for _ in range(2):
            address, network = next(iter(self.networks.items()))
            if now - network.seen < 2 * CREDIT * REGAIN:
                break
            del self.networks[address]
            if network.line is not None or any(address in places.lines for places in self.places):
                self.networks[address] = network

    def release(self, work: Fiber) -> None:
        """Return the place of work that has ended, or moves up."""
        level, work.level = work.level, -1
        if level >= 0:
            self.places[level].release(work.address)

    def all(self) -> list[Fiber]:
        """Take out all suspended work, at the end of the process."""
        lines = [line for places in self.places for line in places.lines.values()]
        lines += [works for network in self.networks.values() for works in network.works]
        found = [work for line in lines for work in line if not work.dead]
        for line in lines:
            line.clear()
        for turns in self.lines:
            turns.clear()
        for places in self.places:
            for waiting in (places.lines, places.without, places.below):
                waiting.clear()
        self.networks.clear()
        return found
