"""Ways out of a lane: pieces go where the frame lay in the driver's buffer, or by `Send` commands, in order.

Bytes that a lane keeps while a frame waits for its rest, for memory, for a rule, or for the result of a lookup.

    kept     bytes from the start of the waiting frame on, until there are `need` of them
    blocked  reason of the wait ("nodes", "topics", "memory", BY_RULE); the side is then not read

Every wait ends with `unblock`, which scans the frame again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from kproxy.base.cooperative import FEW, yield_now, yield_point
from kproxy.protocol.primitives import Buffer
from kproxy.rules.values.address import network_of
from kproxy.session.commands import BROKER, CLIENT, LONG, Send
from kproxy.session.frame import Disposition, Need, Replace, Wait
from kproxy.session.held_memory import HeldMemory, Hold
from kproxy.session.rewrite.context import NeedsLookup

from .services import LaneHost

if TYPE_CHECKING:
    from kproxy.session.frame import LongFrame

MOST_GROWTH = 4096
"""Bytes that a frame may grow in place in the driver's buffer, since the rest of the read may have to be copied."""
HELD_SENT = 2
"""Token of a Send that ends a held frame, without its lowest bit: the side."""
MANY = 4096
"""Pieces that are put together in one go."""


class Forwarder:
    """Way out of one lane, to the side `target`."""

    session: LaneHost
    target: int
    disposition: Disposition | None = None  # disposition of the frame where the scan has stopped
    reserved: Hold | None = None  # for the current frame
    handed_over: deque[Hold] | None = None  # of frames that the driver has not written yet, in their order

    def put_back(self, replace: Replace, buf: Buffer, at: int, stop: int) -> int | None:
        """Write the pieces that replace buf[at:replace.after] to that place, with the bytes that pass behind it, up to
        `stop`.

        Return where that ends. None: there is not enough room, or a command may have to be obeyed before it leaves.
        """
        if self.disposition is not None or self.session.commands or not isinstance(buf, memoryview):
            return None
        head = b"".join(replace.pieces)
        start = at + len(head)
        end = start + stop - replace.after
        if end > len(buf) or end > stop + MOST_GROWTH:
            return None
        if start != replace.after:
            buf[start:end] = buf[replace.after : stop]
        buf[at:start] = head
        return end

    def emit(self, *pieces: Buffer) -> None:
        """Send a copy of the pieces, joined with the command before it; the buffer belongs to the driver. Long `bytes`,
        which are immutable, are sent as they are: copying them would take long."""
        size = sum(map(len, pieces))
        if size < LONG or (len(pieces) < FEW and not any(map(stays, pieces))):
            if size:
                self.put_pieces(pieces)
        elif len(pieces) < FEW:
            for piece in pieces:
                self.put(piece if type(piece) is bytes and stays(piece) else bytearray(piece))
        else:
            self.put(joined(pieces))

    def put_pieces(self, pieces: Sequence[Buffer]) -> None:
        """Send a copy of a few pieces after all earlier bytes of the lane."""
        before = self.last_sent()
        if before is None:
            self.put(bytearray().join(pieces))
        else:
            for piece in pieces:
                before += piece

    def put(self, data: bytes | bytearray) -> None:
        session = self.session
        before = self.last_sent()
        if before is not None and isinstance(data, bytearray):
            before += data
        elif session.tail_position is None:
            session.commands.append(Send(self.target, data))
        else:
            session.commands.insert(session.tail_position, Send(self.target, data))
            session.tail_position += 1

    def last_sent(self) -> bytearray | None:
        """Return the payload of this lane's last command before its current position, if it can be extended."""
        session = self.session
        commands, end = session.commands, session.tail_position
        if not commands or end == 0:
            return None
        last = commands[-1 if end is None else end - 1]
        if isinstance(last, Send) and last.side == self.target and isinstance(last.data, bytearray):
            return last.data
        return None

    def hand_over(self) -> None:
        """Have the session return the memory of the held frame that was just sent, once the kernel has all of it: the
        token of an empty Send reports that."""
        if self.reserved is not None:
            if self.handed_over is None:
                self.handed_over = deque()
            self.handed_over.append(self.reserved)
            self.reserved = None
            self.session.commands.append(Send(self.target, b"", HELD_SENT | self.target))


def stays(piece: Buffer) -> bool:
    """Return True for long `bytes`, which leave as they are."""
    return type(piece) is bytes and len(piece) >= LONG


def joined(pieces: Sequence[Any]) -> bytearray:
    """Return a copy of all pieces in one; a long list is joined in parts, so that others can run in between."""
    if len(pieces) <= MANY:
        return bytearray().join(pieces)
    data = bytearray()
    for start in range(0, len(pieces), MANY):
        yield_now()
        data += b"".join(pieces[start : start + MANY])
    return data


BY_RULE = ("delay", "held", "quota")
"""Reasons of blocked lanes: a rule is responsible."""
UNSENT = (*BY_RULE, "memory")
"""Reasons of blocked lanes: a drain does not send the request."""
CORRELATION_AT = {CLIENT: 8, BROKER: 4}
"""Offset of the correlation id in a frame with its size, by the side that sent it."""


MAX_ARRIVALS = 64
"""Reads of one lane with an arrival time of their own. A blocked lane is not read, so one is usual."""


class WaitClock:
    """Seconds that the kept bytes of one lane have waited, by cause.

    `rule` is the time of rules, `other` that of lookups, memory, and a request's rest. Both count from the arrival of
    the first kept byte. `arrivals` has (offset in the kept bytes, rule, other) for each read, in order.
    """

    __slots__ = ("arrivals", "by_rule", "other", "rule", "since")

    def __init__(self) -> None:
        self.rule = self.other = 0.0
        self.by_rule: bool | None = None  # None: the time now passing counts for neither
        self.since = 0.0
        self.arrivals: list[tuple[int, float, float]] = [(0, 0.0, 0.0)]

    def count(self, now: float) -> None:
        """Add the time since the last call to the total of its cause."""
        if self.by_rule:
            self.rule += now - self.since
        elif self.by_rule is not None:
            self.other += now - self.since
        self.since = now

    def begin(self, by_rule: bool | None, now: float) -> None:
        """Count the time from `now` on for this cause."""
        self.count(now)
        self.by_rule = by_rule

    def add(self, offset: int, now: float) -> None:
        """Note that the kept bytes from `offset` on came at `now`."""
        self.count(now)
        if self.arrivals[-1][1:] != (self.rule, self.other) and len(self.arrivals) < MAX_ARRIVALS:
            self.arrivals.append((offset, self.rule, self.other))

    def remove(self, size: int) -> None:
        """Note that the first `size` kept bytes have left."""
        first = self.place(size)
        self.arrivals = [(max(at - size, 0), rule, other) for at, rule, other in self.arrivals[first:]]

    def place(self, offset: int) -> int:
        """Return the index of the arrival of the kept byte at `offset`."""
        return bisect_right(self.arrivals, offset, key=itemgetter(0)) - 1

    def of(self, offset: int) -> tuple[float, float]:
        """Return the seconds (by rules, for other causes) that the kept byte at `offset` has waited."""
        _, rule, other = self.arrivals[self.place(offset)]
        return self.rule - rule, self.other - other


class Assembler(Forwarder):
    """Lane that assembles frames which must be held whole, within the budget `memory`."""

    source: int
    memory: HeldMemory
    skip: int
    kept: bytearray | None
    stream: LongFrame | None
    # Defaults of attributes that most connections never set: they cost nothing to set up.
    held_since: float | None = None
    need = 0
    reserved_at = 0.0  # since when memory is reserved for the current frame
    blocked = ""
    arrived: float | None = None  # when the bytes came that are kept because something has to wait
    clock: WaitClock | None = None  # while bytes are kept
    looked_up: NeedsLookup | None = None  # the last lookup for the current frame
    dead = False

    def keep(self, data: bytearray, cause: Need | Wait, now: float, gone: int = 0) -> None:
        """Keep `data` until it has the bytes of `Need`, or until the cause of `Wait` is over.

        `gone`: bytes before `data` that have been sent, if all of them were kept before.
        """
        self.kept = data
        if self.clock is None:
            self.clock = WaitClock()
        else:
            self.clock.remove(gone)
        if self.held_since is None and (isinstance(cause, Wait) or cause.hold):
            self.held_since = now
        if isinstance(cause, Wait):
            self.need = len(data)
            if self.arrived is None:
                self.arrived = now
            reason = cause.cause
            if isinstance(reason, NeedsLookup):
                self.looked_up = reason
                reason = self.session.lookups.begin(reason, now)
            self.block(reason)
        else:
            self.need = cause.need
            self.incomplete(now)
            if cause.hold and self.reserved is None:
                self.reserved_at = now
                self.reserve(cause.need)
        self.begin_wait(now)

    def begin_wait(self, now: float) -> None:
        """Count the time from `now` on for the present cause of waiting.

        The rest of a request is the client's to send, and the broker has none of the frame: that time is kproxy's. The
        rest of a response is the broker's to send, so it stays with the broker's time.
        """
        if self.clock is not None:
            self.clock.begin(self.blocked in BY_RULE if self.blocked else False if self.source == CLIENT else None, now)

    def incomplete(self, now: float) -> None:
        """Note that the current frame is incomplete."""

    def complete(self) -> None:
        """Note that the current frame is complete."""

    def reserve(self, size: int) -> None:
        """Reserve memory for a frame that must be held, or wait for it. Close if the frame is longer than the budget
        allows."""
        if size > self.memory.largest:
            text = f"a frame of {size} bytes must be held, at most {self.memory.largest} bytes are allowed"
            self.session.close("buffer_limit", text)
        else:
            others = self.memory.reserve(self, size)
            if self.reserved is None:
                self.need = size
                self.block("memory")
            if others:
                self.session.wake(others)

    @property
    def network(self) -> str:
        return network_of(self.session.facts.client_address)

    @property
    def missing(self) -> int:
        """Return how many bytes of the current frame have not arrived."""
        return 0 if self.kept is None else max(self.need - len(self.kept), 0)

    @property
    def unsent(self) -> int:
        """Return how many bytes of a streaming frame have not been sent."""
        tail = 0 if self.stream is None else max(self.stream.length - len(self.kept or b""), 0)
        return self.skip + tail

    def block(self, reason: str) -> None:
        self.blocked = reason
        self.session.flow.pause(self.source, "blocked")

    def unblock(self, now: float) -> None:
        """Continue with the kept bytes, after the end of the lane's wait."""
        if self.dead:
            return
        self.blocked = ""
        self.begin_wait(now)
        self.session.flow.resume(self.source, "blocked", now)
        self.receive_slowly(b"", 0, 0, now)
        if not self.blocked:
            self.arrived = None
            if self.source in self.session.ended:
                self.session.eof(self.source, now)

    def try_again(self, now: float) -> None:
        """Try the current frame again if a rule delays or holds it, or if it waits for its turn at a quota."""
        if self.blocked in BY_RULE:
            self.unblock(now)

    def granted(self, now: float) -> None:
        """Continue with the current frame: the memory that the lane waited for is reserved."""
        self.reserved_at = now
        self.unblock(now)

    def report_waits(self, buf: Buffer, pos: int, end: int) -> None:
        """Report to the observer the waits of all frames that begin in buf[pos:end], where `buf` was kept.

        Each frame is reported once, when it leaves, so the work is linear in the number of frames.
        """
        session, clock = self.session, self.clock
        first = CORRELATION_AT[self.source]
        if clock is None or session.observer is None or session.logins.raw is not None:
            return
        if not (clock.rule or clock.other):
            return
        waits: list[tuple[int, float, float]] = []
        while pos < end and pos + first + 4 <= len(buf):
            yield_point()
            correlation = int.from_bytes(buf[pos + first : pos + first + 4], "big", signed=True)
            waits.append((correlation, *clock.of(pos)))
            pos += 4 + max(int.from_bytes(buf[pos : pos + 4], "big", signed=True), 0)
        left = Counter(correlation for correlation, _, _ in waits)
        seen: Counter[int] = Counter()
        for correlation, rule, other in waits:
            yield_point()
            # These frames are in the FIFO, or were answered and have left it; those before them with the same id count.
            older = 0
            if self.source == CLIENT:
                older = max(session.inflight.count(correlation) - left[correlation], seen[correlation])
            left[correlation] -= 1
            seen[correlation] += 1
            self.report_wait(correlation, rule, other, older)

    def end_waits(self, buf: Buffer, pos: int, n: int) -> None:
        """Report the waits of all frames in buf[pos:n] if none of them is kept any more."""
        if self.clock is not None and (self.kept is None or self.dead):
            self.report_waits(buf, pos, n)
            self.clock = None

    def report_wait(self, correlation: int, rule: float, other: float, older: int = 0) -> None:
        """Report to the observer that a frame waited `rule` seconds for rules and `other` seconds for other causes."""
        observer, response = self.session.observer, self.source == BROKER
        if observer is not None:
            if rule:
                observer.waited(correlation, rule, response=response, by_rule=True, older=older)
            if other:
                observer.waited(correlation, other, response=response, by_rule=False, older=older)

    def report_end(self, now: float) -> None:
        """Report the waits of all frames that are kept, as the connection ends at `now` and none of them leaves."""
        if self.clock is not None and self.kept is not None:
            self.clock.count(now)
            if self.stream is None:
                self.report_waits(self.kept, 0, len(self.kept))
            else:
                self.report_wait(self.stream.correlation, *self.clock.of(0))
                self.report_waits(self.kept, self.stream.length, len(self.kept))
            self.clock = None

    def waited(self, offset: int) -> float:
        """Return the seconds that the byte at `offset` of the current bytes has waited here."""
        return 0.0 if self.clock is None else sum(self.clock.of(offset))

    def since(self, now: float) -> float:
        """Return when the current frame arrived: before `now`, if others before it have waited."""
        return now if self.arrived is None else self.arrived

    def receive_slowly(self, buf: Buffer, pos: int, n: int, now: float) -> None:
        """Take buf[pos:n] when there are kept bytes to go before it; everything leaves by command."""
        while not self.dead:
            if self.blocked:
                self.keep_more(buf, pos, n, now)
                return
            if self.kept is not None:
                want = max(self.need - len(self.kept), 0)
                self.keep_more(buf, pos, pos + min(want, n - pos), now)
                if n - pos < want:
                    self.incomplete(now)
                    return
                pos += want
                self.take_kept(now)
            elif pos >= n:
                return
            elif pos + self.skip >= n:
                self.skip -= n - pos
                self.emit(buf[pos:n])
                if not self.skip and self.session.has_pending:
                    self.session.run_pending(now)
                return
            elif self.stream is not None:
                passing, self.skip = self.skip, 0
                self.emit(buf[pos : pos + passing])
                self.stream.receive(buf, pos + passing, n, now, direct=False)
                return
            else:
                self.run(buf, pos, pos + self.skip, n, now, direct=False)
                return

    def keep_more(self, buf: Buffer, pos: int, end: int, now: float) -> None:
        """Add buf[pos:end], which came at `now`, to the kept bytes."""
        assert self.kept is not None
        if self.clock is not None and self.blocked and pos < end:  # else these bytes are the first frame's
            self.clock.add(len(self.kept), now)
        self.kept += buf[pos:end]

    def take_kept(self, now: float) -> None:
        """Scan the kept bytes again; there are enough now."""
        data, self.kept = self.kept, None
        assert data is not None
        if self.clock is not None:
            self.clock.count(now)
        if self.stream is not None:
            self.take_tail(self.stream, data, now)
        else:
            self.run(data, 0, 0, len(data), now, direct=False)
        if self.kept is None:
            self.complete()
            self.hand_over()
            if self.held_since is not None:
                self.session.counters.held_time.add(now - self.held_since)
                self.held_since = None

    def run(self, buf: Buffer, base: int, pos: int, n: int, now: float, direct: bool) -> int:
        """Pass buf[base:n] on; a frame starts at `pos`. See `Lane`."""
        raise NotImplementedError

    def take_tail(self, stream: LongFrame, data: bytearray, now: float) -> None:
        """Deal with the tail of a streamed frame, which is all in `data`."""
        raise NotImplementedError

    def hand_over(self) -> None:
        """Hand the memory of a held frame that has left to the session, unless nothing leaves any more."""
        if not self.dead:
            super().hand_over()

    def die(self) -> None:
        """Stop passing bytes; later bytes are discarded."""
        self.dead = True
        self.kept = bytearray()

    @property
    def at_boundary(self) -> bool:
        """Return True if no frame is under way."""
        return not self.skip and not self.kept and self.stream is None
