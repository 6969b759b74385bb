"""Memory for held frames: one budget per cluster and direction, shared by client networks in turns.

A frame that must be held reserves its whole length when its header is read. It returns the reservation once the kernel
has all bytes of the result. A budget has two areas: an eighth for frames below `SMALL` bytes, and the rest for longer
ones. A small frame that finds its area full may use the other area while no frame waits there.

Rules of an area:
- A network reserves at most `NETWORK_SHARE` of the area. A single frame of a network may exceed that.
- Networks with waiting frames take turns. Within a network, frames are ordered by the bytes granted to the network
  before their arrival plus their own length, lowest first. So frames that arrive later pass a waiting frame with fewer
  bytes in total than its own length.
- While frames wait, a reservation must progress. `evictions` yields those without progress, slowest first, then those
  of networks above their fair share (area / networks) for the benefit of networks below it.
- A network below its fair share that has waited `PATIENCE` seconds goes to the front.

No deadlock: a lane has at most one reservation for a frame that it receives, and reserves only when it has none. While
it waits, its other reservations belong to frames that are complete; these return when a socket accepts bytes, or when
the connection ends. Requests and responses have separate budgets: a held request may wait for its broker, which may
wait until its response is read. A response only waits for its client. A frame is never longer than its area, so the
next frame fits at the latest when all reservations have returned. Each returns after finite time: by progress,
eviction, `buffer_timeout`, `write_timeout`, or the end of the rule that holds it.

Cost: constant per grant and return, except the heap of the frames of one network (logarithmic). `evictions` reads all
reservations of an area, runs only while frames wait there, and yields between parts of that work.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .lanes.assembler import Assembler

SMALL_AREA = 8  # divisor of max_buffered_bytes: the part for frames below SMALL
SMALL = 1 << 20  # bytes; frames below use the small area
SMALL_FRAMES = 4  # frames that the small area holds at least, where the budget is small
NETWORK_SHARE = 15 / 16
PATIENCE = 0.4  # seconds without enough progress, where the client is the one to read or send
BROKER_PATIENCE = 5.0  # seconds; brokers pause for garbage collection, and only clients of their cluster wait for them
PACE = 60.0  # seconds for a whole frame, while others wait: 1.7 MB/s for the longest request
STALE = 4  # patiences until the last measurement belongs to an earlier wait, or the process was suspended since
NOBODY: Sequence[Any] = ()
BATCH = 256  # reservations that `evictions` reads in one go


class Movement(NamedTuple):
    """Movement of one held frame. `missing`: bytes that it still has to move. `moved`: count of all bytes that moved on
    its way so far. `patience`: seconds until a lack of progress counts."""

    missing: int
    moved: int
    patience: float


Progress = Callable[["Hold"], "Movement | None"]
"""Function that measures a reservation; None: kproxy itself, or a rule, is why its frame does not move."""


class Hold:
    """Reservation of `size` bytes. `missing`: bytes that its frame had to move at the last look. `moved`: the count of
    its `Movement` at `since`."""

    __slots__ = ("lane", "missing", "moved", "share", "since", "size", "slow")

    def __init__(self, lane: Assembler, size: int, share: NetworkShare) -> None:
        self.lane, self.size, self.share = lane, size, share
        self.missing = self.moved = 0
        self.since: float | None = None
        self.slow = False


class Ticket:
    """Frame of `size` bytes that waits in the line of its network."""

    __slots__ = ("lane", "number", "share", "size", "tag")

    def __init__(self, lane: Assembler, size: int, share: NetworkShare, number: int) -> None:
        self.lane: Assembler | None = lane  # None: the connection ended
        self.size, self.share, self.number = size, share, number
        self.tag = share.granted + size

    def __lt__(self, other: Ticket) -> bool:
        return (self.tag, self.number) < (other.tag, other.number)


class NetworkShare:
    """Share of one client network in an area. `granted`: bytes granted so far; `line`: heap of its waiting frames;
    `dead`: those of connections that ended."""

    __slots__ = ("area", "dead", "granted", "holds", "line", "network", "used")

    def __init__(self, area: Area, network: str) -> None:
        self.area, self.network = area, network
        self.used = self.granted = self.dead = 0
        self.holds: dict[Hold, None] = {}
        self.line: list[Ticket] = []

    def head(self) -> Ticket | None:
        """Return the next ticket of the line; None if the line is empty."""
        line = self.line
        while line and line[0].lane is None:
            heappop(line)
            self.dead -= 1
        return line[0] if line else None


class Area:
    """Part of a budget: `limit` bytes, of them `used` reserved; `queued` frames wait.

    `turns` has the networks with waiting frames in the order of their turns, `capped` those that have to return some
    bytes first.
    """

    def __init__(self) -> None:
        self.limit = self.used = self.queued = 0
        self.shares: dict[str, NetworkShare] = {}
        self.turns: OrderedDict[str, NetworkShare] = OrderedDict()
        self.capped: OrderedDict[str, NetworkShare] = OrderedDict()

    @property
    def fair_share(self) -> float:
        """Return the bytes of a network if all networks that use the area or wait have as much."""
        return self.limit / max(1, len(self.shares))

    def share_of(self, network: str) -> NetworkShare:
        share = self.shares.get(network)
        if share is None:
            share = self.shares[network] = NetworkShare(self, network)
        return share

    def drop_if_unused(self, share: NetworkShare) -> None:
        if not share.used and not share.line:
            self.shares.pop(share.network, None)

    def allows(self, share: NetworkShare, size: int) -> bool:
        """Return True if the network may have this many more bytes."""
        return not share.used or share.used + size <= self.limit * NETWORK_SHARE

    def has_room(self, size: int) -> bool:
        """Return True if this many bytes are free. A frame that waited before the limit was lowered is granted
        alone."""
        return not self.used or self.used + size <= self.limit

    def take(self, share: NetworkShare, lane: Assembler, size: int) -> None:
        hold = lane.reserved = Hold(lane, size, share)
        share.holds[hold] = None
        share.used += size
        share.granted += size
        self.used += size

    def give_back(self, hold: Hold) -> None:
        share = hold.share
        del share.holds[hold]
        share.used -= hold.size
        self.used -= hold.size
        head = share.head()
        if head is not None and share.network in self.capped and self.allows(share, head.size):
            self.turns[share.network] = self.capped.pop(share.network)
        self.drop_if_unused(share)

    def put(self, ticket: Ticket) -> None:
        share = ticket.share
        heappush(share.line, ticket)
        self.queued += 1
        if share.head() is ticket:
            self.line_up(share)

    def line_up(self, share: NetworkShare) -> None:
        """Queue the network, whose first waiting frame changed, among the turns or the capped networks."""
        head, network = share.head(), share.network
        if head is None:
            self.turns.pop(network, None)
            self.capped.pop(network, None)
            self.drop_if_unused(share)
        elif self.allows(share, head.size):
            self.capped.pop(network, None)
            self.turns.setdefault(network, share)
        else:
            self.turns.pop(network, None)
            self.capped[network] = share

    def pop(self, share: NetworkShare) -> Ticket:
        """Take the next ticket out of the line. `line_up` must follow."""
        self.queued -= 1
        return heappop(share.line)

    def cancel(self, ticket: Ticket) -> None:
        share = ticket.share
        was_head = share.head() is ticket
        ticket.lane = None
        share.dead += 1
        self.queued -= 1
        if 2 * share.dead > len(share.line):
            share.line = [one for one in share.line if one.lane is not None]
            heapify(share.line)
            share.dead = 0
        if was_head:
            self.line_up(share)

    def next(self) -> NetworkShare | None:
        """Return the network whose next frame is first and fits; None: the first frame has to wait."""
        while self.turns:
            share = next(iter(self.turns.values()))
            head = share.head()
            if head is None or not self.allows(share, head.size):
                self.line_up(share)
            else:
                return share if self.has_room(head.size) else None
        return None

    # ---- reservations that give way

    def evictions(self, now: float, progress: Progress) -> Iterator[Hold | None]:
        """Yield the reservations to end while frames wait here, in order, and None between parts of long work.

        The caller ends the connection of each before it goes on, and calls `HeldMemory.grant` for None.
        """
        slow = []
        holds = (hold for share in list(self.shares.values()) for hold in list(share.holds))
        while batch := list(islice(holds, BATCH)):
            slow += [hold for hold in batch if hold in hold.share.holds and is_slow(hold, now, progress)]
            yield None
        slow.sort(key=lambda hold: (-hold.share.used, -hold.missing / hold.size))
        for hold in slow:
            if not self.queued:
                return
            if not self.turns and hold.share.network not in self.capped:
                continue  # the waiting networks wait for bytes of their own
            if hold in hold.share.holds:
                hold.slow = True
                yield hold
        yield from self.share_evenly(now)

    def share_evenly(self, now: float) -> Iterator[Hold | None]:
        """Yield reservations of networks above their fair share, for networks below it that have waited long enough."""
        for share in [*self.turns.values()]:
            head = share.head()
            if head is None or head.lane is None or self.turns.get(share.network) is not share:
                continue
            if now - head.lane.reserved_at < PATIENCE or share.used + head.size > self.fair_share:
                continue
            self.turns.move_to_end(share.network, last=False)
            while share.head() is head and not self.has_room(head.size):
                hold = self.above_fair_share()
                if hold is None:
                    return
                yield hold
            yield None

    def above_fair_share(self) -> Hold | None:
        """Return the slowest reservation of the network with the most bytes, if it has more than its fair share.

        Networks keep their only reservations if these have at most half of the area together: where networks are many,
        no long frame would come through otherwise. Beyond that, the slowest of these reservations is returned.
        """
        fair, half = self.fair_share, self.limit / 2
        above = [share for share in self.shares.values() if share.used > fair]
        several = [share for share in above if len(share.holds) > 1 or share.used > half]
        if several:
            holds = list(max(several, key=lambda one: one.used).holds)
        elif sum(share.used for share in above) > half:
            holds = [hold for share in above for hold in share.holds]
        else:
            return None
        return max(holds, key=lambda hold: hold.missing / hold.size)


def is_slow(hold: Hold, now: float, progress: Progress) -> bool:
    """Return True if the frame has moved fewer bytes since the last measurement than it needs for its whole length in
    `PACE` seconds."""
    state = progress(hold)
    if state is None:
        hold.since = None
        return False
    hold.missing, moved, patience = state
    seconds = 0.0 if hold.since is None else now - hold.since
    if hold.since is not None and seconds <= STALE * patience:
        if seconds < patience:
            return False
        # `missing` is not compared: a client that does not read increases it with further requests.
        if moved - hold.moved < hold.size * seconds / PACE:
            return True
    hold.moved, hold.since = moved, now
    return False


class HeldMemory:
    """Budget of `limit` bytes for held frames; see the module.

    `on_wait` is called when a frame begins to wait.
    """

    def __init__(self, limit: int) -> None:
        self.small, self.general = Area(), Area()
        self.waiting: dict[Assembler, Ticket] = {}
        self.on_wait: Callable[[], object] = lambda: None
        self.numbers = 0
        self.use_limit(limit)

    def use_limit(self, limit: int) -> list[Assembler]:
        """Set another limit; return the lanes that get memory by that."""
        self.limit = limit
        self.small.limit = limit // SMALL_AREA
        self.general.limit = limit - self.small.limit
        self.below = min(SMALL, self.small.limit // SMALL_FRAMES)
        for area in (self.small, self.general):
            for share in list(area.capped.values()):
                area.line_up(share)
        return self.grant()

    @property
    def used(self) -> int:
        return self.small.used + self.general.used

    @property
    def largest(self) -> int:
        """Return the bytes of the longest frame that can be held."""
        return self.general.limit

    def reserve(self, lane: Assembler, size: int) -> Sequence[Assembler]:
        """Reserve `size` bytes now (`lane.reserved`), or have the lane wait until `release` returns it.

        Returns the other lanes that get memory by that: the lane may pass a frame of its network, which others waited
        behind.
        """
        network, general = lane.network, self.general
        area = self.small if size < self.below else general
        if self.reserve_at_once(area, network, lane, size):
            return NOBODY
        if area is not general and self.reserve_at_once(general, network, lane, size):
            return NOBODY
        share = area.share_of(network)
        self.numbers += 1
        ticket = self.waiting[lane] = Ticket(lane, size, share, self.numbers)
        area.put(ticket)
        granted = self.grant() if share.head() is ticket else NOBODY
        if self.waiting:
            self.on_wait()
        return [other for other in granted if other is not lane]

    def reserve_at_once(self, area: Area, network: str, lane: Assembler, size: int) -> bool:
        """Reserve the bytes if they are free and no frame with a claim to them waits."""
        if area.turns or not area.has_room(size):
            return False
        share = area.share_of(network)
        if share.line or not area.allows(share, size):
            return False
        area.take(share, lane, size)
        return True

    def release(self, hold: Hold) -> list[Assembler]:
        """Return a reservation. Returns the lanes that get theirs by that, in order."""
        hold.share.area.give_back(hold)
        return self.grant() if self.waiting else []

    def forget(self, lane: Assembler) -> list[Assembler]:
        """Remove the waiting lane of a connection that ended; return the lanes that can go on instead."""
        ticket = self.waiting.pop(lane, None)
        if ticket is None:
            return []
        ticket.share.area.cancel(ticket)
        return self.grant()

    def grant(self) -> list[Assembler]:
        """Reserve memory for waiting lanes if it fits, in turns; return these lanes."""
        granted = []
        for area in (self.small, self.general):
            while (share := area.next()) is not None:
                area.turns.move_to_end(share.network)
                granted.append(self.take_next(area, share, area))
        small, general = self.small, self.general
        while small.queued and not general.queued:
            share = next(iter((small.turns or small.capped).values()))
            head, other = share.head(), general.share_of(share.network)
            assert head is not None, "networks in turn have waiting frames"
            if not general.has_room(head.size) or not general.allows(other, head.size):
                general.drop_if_unused(other)
                break
            granted.append(self.take_next(small, share, general))
        return granted

    def take_next(self, area: Area, share: NetworkShare, source: Area) -> Assembler:
        """Reserve bytes of `source` for the next waiting frame of the network; return its lane."""
        ticket = area.pop(share)
        lane = ticket.lane
        assert lane is not None, "`head` has dropped the tickets of ended connections"
        del self.waiting[lane]
        source.take(source.share_of(share.network), lane, ticket.size)
        area.line_up(share)
        return lane

    def evictions(self, now: float, progress: Progress) -> Iterator[Hold | None]:
        """Yield the reservations to end while frames wait; see `Area.evictions`."""
        for area in (self.small, self.general):
            if area.queued:
                yield from area.evictions(now, progress)
