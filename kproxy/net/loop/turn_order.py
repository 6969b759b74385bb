"""Order of the turns that wait: addresses take turns, and only so many are in the middle of something.

Strategy. Work that is put aside keeps what it has made so far, and that is more the longer it has worked: what a frame
of four megabytes is read into takes two hundred. Were all to go on in turn, a thousand frames would be in memory at
once. So work that has taken longer is of a higher level, of which fewer may be under way; the rest waits at its door,
and goes on with it when one of these has ended. Levels take turns, so short work does not wait for long work unless all
places of its level are taken. Client networks get places in turn, and none may have all places of a level: work that
waits for the next level keeps its place, so the long frames of one network would stop those of all others.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

Thing = TypeVar("Thing")


class WorkLevel(NamedTuple):
    """Level of work. `places`: works in it at once; `slices`: after these a work belongs to the next level; `share`:
    places of one client network."""

    places: int
    slices: int
    share: int


NEVER = 1 << 60
LEVELS = (
    WorkLevel(NEVER, 2, NEVER),
    WorkLevel(128, 10, 16),
    WorkLevel(4, 100, 2),
    WorkLevel(2, NEVER, 1),
)
"""With 5 ms a slice and some 60 MB for a second of work, that is 0.4 GB, 0.1 GB and two of the largest frames. The
first level has no limit: most work needs no more."""


class Queue(Generic[Thing]):
    """Lines of things by address. The addresses take turns, so that one with a thousand waits for its own."""

    def __init__(self, gone: Callable[[Thing], bool]) -> None:
        self.gone = gone
        self.lines: OrderedDict[str, deque[Thing]] = OrderedDict()
        self.stopped: dict[str, deque[Thing]] = {}  # lines that do not move for now

    def __bool__(self) -> bool:
        return bool(self.lines)

    def add(self, address: str, thing: Thing) -> None:
        line = self.stopped.get(address)
        if line is None:
            line = self.lines.setdefault(address, deque())
        line.append(thing)

    def next(self) -> Thing | None:
        """Take the first thing of the address whose turn it is, leaving out those that have gone."""
        while self.lines:
            address, line = self.lines.popitem(last=False)
            while line:
                thing = line.popleft()
                if not self.gone(thing):
                    if line:
                        self.lines[address] = line
                    return thing
        return None

    def stop(self, address: str) -> None:
        """Take nothing of this address until `go`."""
        self.stopped[address] = self.lines.pop(address, deque())

    def go(self, address: str) -> None:
        line = self.stopped.pop(address, None)
        if line:
            self.lines[address] = line


class Waiting(Protocol):
    """Work that is put in order. `level`: -1 before it has a place; `slices`: how often it has gone on in its level."""

    address: str
    level: int
    slices: int

    @property
    def dead(self) -> bool: ...


Work = TypeVar("Work", bound=Waiting)


class Order(Generic[Work]):
    """Order of the work of one reactor that waits."""

    def __init__(self) -> None:
        def gone(work: Work) -> bool:
            return bool(work.dead)

        self.doors: list[Queue[Work]] = [Queue(gone) for _ in LEVELS]  # wait for a place
        self.going: list[Queue[Work]] = [Queue(gone) for _ in LEVELS]  # have one
        self.taken = [0] * len(LEVELS)
        self.by_network: list[Counter[str]] = [Counter() for _ in LEVELS]  # places
        self.last = 0  # the level that has had its turn

    def add(self, work: Work) -> None:
        """Put the work in line, at the door of the next level if it has had its slices."""
        level = work.level
        if level < 0 or work.slices >= LEVELS[level].slices:
            self.doors[level + 1].add(work.address, work)
        else:
            self.going[level].add(work.address, work)

    def next(self) -> Work | None:
        """Take the one that goes on now. None: nobody can, until one that has a place leaves or is added."""
        for level in reversed(range(len(LEVELS))):  # who goes up leaves a place
            self.admit(level)
        for more in range(1, len(LEVELS) + 1):
            level = (self.last + more) % len(LEVELS)
            work = self.going[level].next()
            if work is not None:
                self.last = level
                work.slices += 1
                return work
        return None

    def admit(self, level: int) -> None:
        """Give free places to work at the door of this level."""
        door, (places, _, share) = self.doors[level], LEVELS[level]
        while self.taken[level] < places and (work := door.next()) is not None:
            self.leave(work)
            taken = self.by_network[level]
            taken[work.address] += 1
            if taken[work.address] >= share:
                door.stop(work.address)
            self.taken[level] += 1
            work.level, work.slices = level, 0
            self.going[level].add(work.address, work)

    def leave(self, work: Work) -> None:
        """Free the place of work that has ended, or goes up to the next level."""
        level, work.level = work.level, -1
        if level < 0:
            return
        self.taken[level] -= 1
        taken = self.by_network[level]
        taken[work.address] -= 1
        if taken[work.address] < LEVELS[level].share:
            self.doors[level].go(work.address)
        if not taken[work.address]:
            del taken[work.address]

    def all(self) -> list[Work]:
        """Take out all work that waits: nobody will call it any more."""
        found = []
        for queue in (*self.doors, *self.going):
            for address in list(queue.stopped):
                queue.go(address)
            while (work := queue.next()) is not None:
                found.append(work)
        return found
