"""Bytes that wait for the rest of their frame, for memory, or for an answer: what a lane keeps until a frame can go on.

    kept     bytes from the start of a frame on that cannot be judged yet, until there are `need` of them
    blocked  why the lane waits ("nodes", "topics", "memory"), its bytes in `kept`; its side is not read meanwhile

Whatever a frame waits for, it goes on by `unblock`, which hands it to the scan again.
"""

from __future__ import annotations

from kproxy.core.commands import BROKER, CLIENT
from kproxy.core.observer import Observer
from kproxy.core.shared import HeldMemory
from kproxy.wire.primitives import Buffer

from .forwarder import Forwarder
from .frame import LongFrame, Need, Wait

BY_RULE = ("delay", "held")
"""Words for what a lane waits for that are a rule's doing."""
CORRELATION_AT = {CLIENT: 8, BROKER: 4}
"""Offset of the correlation id in a frame with its size, by the side that sent it."""


class Assembler(Forwarder):
    """Keeper of one lane's unfinished frame, within the budget `memory` for frames that are held whole."""

    source: int
    memory: HeldMemory
    skip: int
    kept: bytearray | None
    stream: LongFrame | None
    # What most connections never need stands here as long as it is so: it costs nothing to set up.
    held_since: float | None = None
    need = 0
    reserved_at = 0.0  # since when memory is reserved for the frame at hand
    blocked = ""
    arrived: float | None = None  # when the bytes came that are kept because something has to wait
    waits_since: float | None = None  # when the frame at hand was blocked
    dead = False

    def keep(self, data: bytearray, cause: Need | Wait, now: float) -> None:
        """Keep `data` until there is enough of it, or until what it waits for has come."""
        self.kept = data
        if self.held_since is None and (isinstance(cause, Wait) or cause.hold):
            self.held_since = now
        if isinstance(cause, Wait):
            self.need = len(data)
            if self.arrived is None:
                self.arrived = now
            self.waits_since = now
            self.block(cause.reason or self.session.lookups.ask(now))
            return
        self.need = cause.need
        self.incomplete(now)
        if cause.hold and not self.reserved:
            self.waits_since = self.reserved_at = now
            self.reserve(cause.need)

    def incomplete(self, now: float) -> None:
        """Note that the frame at hand is not whole yet."""

    def complete(self) -> None:
        """Note that the frame at hand is whole."""

    def reserve(self, size: int) -> None:
        """Reserve memory for a frame that is held; wait for it if others have it, close if no frame may be so long."""
        if size > self.memory.limit:
            self.session.close(
                "held_memory", f"a frame of {size} bytes has to be held, the limit is {self.memory.limit}"
            )
        elif self.memory.reserve(self, size):
            self.reserved = size
        else:
            self.need = size
            self.block("memory")

    def block(self, reason: str) -> None:
        self.blocked = reason
        self.session.flow.pause(self.source, "blocked")

    def unblock(self, now: float) -> None:
        """Go on with the kept bytes, as the lane has got what it waited for."""
        if self.dead:
            return
        if self.session.observer is not None:
            self.tell_wait(self.session.observer, now)
        self.blocked = ""
        self.session.flow.resume(self.source, "blocked", now)
        self.receive_slowly(b"", 0, 0, now)
        if not self.blocked:
            self.arrived = None
            if self.source in self.session.ended:
                self.session.eof(self.source, now)

    def try_again(self, now: float) -> None:
        """Try the frame at hand again if it waits for a time that may have come."""
        if self.blocked in BY_RULE:
            self.unblock(now)

    def granted(self, now: float) -> None:
        """Take over the memory that the lane waited for, and go on."""
        self.reserved, self.reserved_at = self.need, now
        self.unblock(now)

    def tell_wait(self, observer: Observer, now: float) -> None:
        """Tell the observer how long the frame at hand was blocked until now."""
        at = CORRELATION_AT[self.source]
        if self.waits_since is None or self.kept is None or len(self.kept) < at + 4:
            return
        correlation = int.from_bytes(self.kept[at : at + 4], "big", signed=True)
        by_rule = self.blocked in BY_RULE
        response = self.source == BROKER
        older = 0 if response else self.session.inflight.count(correlation)
        observer.waited(correlation, now - self.waits_since, response=response, by_rule=by_rule, older=older)

    def since(self, now: float) -> float:
        """Return when the frame at hand came: before `now`, if others before it have waited."""
        return now if self.arrived is None else self.arrived

    def receive_slowly(self, buf: Buffer, pos: int, n: int, now: float) -> None:
        """Take buf[pos:n] when there are kept bytes to go before it; everything leaves by command."""
        while not self.dead:
            if self.blocked:
                assert self.kept is not None
                self.kept += buf[pos:n]
                return
            if self.kept is not None:
                want = max(self.need - len(self.kept), 0)
                self.kept += buf[pos : pos + min(want, n - pos)]
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

    def take_kept(self, now: float) -> None:
        """Look at the kept bytes (again), of which there are enough now."""
        data, self.kept = self.kept, None
        assert data is not None
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
        """Pass buf[base:n] on, in which a frame starts at `pos`; see `Lane`."""
        raise NotImplementedError

    def take_tail(self, stream: LongFrame, data: bytearray, now: float) -> None:
        """Deal with the tail of a streamed frame, which is all in `data`."""
        raise NotImplementedError

    def hand_over(self) -> None:
        """Hand the memory of a held frame that has left to the session, unless nothing leaves any more."""
        if not self.dead:
            super().hand_over()

    def die(self) -> None:
        """Stop passing bytes; from now on they are taken and thrown away."""
        self.dead = True
        self.kept = bytearray()

    @property
    def at_boundary(self) -> bool:
        """Return True if no frame is under way."""
        return not self.skip and not self.kept and self.stream is None
