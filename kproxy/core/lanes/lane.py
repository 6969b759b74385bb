"""One direction of a connection: finds the frames in what is read and passes on what nobody needs to see.

Strategy. `receive` gets a view of a buffer that belongs to the driver and is overwritten after the call. It returns how
many leading bytes go to the other side; that is all of them in the usual case, and then one send does. If the last
frame of a read is changed, what becomes of it is put where it was, and goes the same way. Else what follows a frame
that is changed, or not all there, goes by `Send` commands or is copied into `kept`:

    skip     bytes of a frame that passes as it streams in, still to come
    kept     bytes from the start of a frame on that cannot be judged yet, until there are `need` of them
    blocked  why the lane waits ("nodes", "topics", "memory"), its bytes in `kept`; its side is not read meanwhile
    stream   a long frame of which only the tail is looked at (see stream.py)

`scan` (the subclass has one for each state of the connection) runs over whole frames as fast as Python can, and stops
with `halt` set at the first one that does not simply pass. `go_on` deals with that one and scans on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kproxy.core.commands import BROKER, CLIENT, LONG, Send
from kproxy.core.identity import LONGEST_TOKEN
from kproxy.core.memory import HeldMemory
from kproxy.core.rewrite import Buffer
from kproxy.wire.breath import FEW, rest

from .frame import Blocked, Changed, Halt, Keep, Streaming

if TYPE_CHECKING:
    from kproxy.core.names.lone import LoneName
    from kproxy.core.observer import Observer
    from kproxy.core.session import Session

    from .tail_stream import TailStream


LONE_HEAD = 1024
"""Bytes in which the only name of a frame stands, if ids are not far longer than people make them."""

MOST_GROWTH = 4096
"""Bytes by which a frame may grow where it lies in the driver's buffer, which may have to be set aside."""

BY_RULE = ("delay", "held")
"""Words for what a lane waits for that are a rule's doing."""
CORRELATION_AT = {CLIENT: 8, BROKER: 4}
"""Offset of the correlation id in a frame with its size, by the side that sent it."""

MANY = 4096
"""Pieces that are put together in one go."""

Scan = Callable[[Buffer, int, int, float], int]


class Lane:
    """One direction of a connection, base of both. `source` and `target` are the sides CLIENT and BROKER."""

    scan: Scan
    """From a frame's start: where the bytes end that pass. If that is before n, `halt` says what is there; when the
    last frame passes but is not all there, `skip` says how much of it is still to come."""

    source: int
    target: int
    # What most connections never need stands here as long as it is so: it costs nothing to set up.
    held_since: float | None = None
    need = 0
    reserved = 0
    reserved_at = 0.0  # since when memory is reserved for the frame at hand
    blocked = ""
    arrived: float | None = None  # when the bytes came that are kept because something has to wait
    waits_since: float | None = None  # when the frame at hand was blocked
    halt: Halt | None = None
    dead = False

    def __init__(self, session: Session, memory: HeldMemory) -> None:
        self.session, self.memory = session, memory
        self.skip = 0
        self.kept: bytearray | None = None
        self.stream: TailStream | None = None

    def receive(self, view: memoryview, n: int, now: float) -> int:
        """Take view[:n]; return how many leading bytes of the view go on, as they are now. The rest is in commands, or
        kept."""
        if self.kept is not None:
            self.receive_slowly(view, 0, n, now)
            return 0
        pos = self.skip
        if pos >= n:
            self.skip = pos - n
            if pos == n and self.session.has_pending:
                self.session.run_pending(now)
            return n
        if self.stream is not None:
            self.skip = 0
            return self.stream.receive(view, pos, n, now, direct=True)
        stop = self.scan(view, pos, n, now)
        if stop == n and not self.session.has_pending:
            return n
        return self.go_on(view, 0, pos, stop, n, now, direct=True)

    def treat_tail(self, stream: TailStream, tail: bytearray, now: float) -> Halt:
        """Evaluate the tail of a streamed frame; return Changed with the bytes that leave, or Blocked."""
        raise NotImplementedError

    # ---- frames that do not simply pass

    def run(self, buf: Buffer, base: int, pos: int, n: int, now: float, direct: bool) -> int:
        """Pass buf[base:n] on, in which a frame starts at `pos`. See `go_on`."""
        return self.go_on(buf, base, pos, self.scan(buf, pos, n, now), n, now, direct)

    def go_on(self, buf: Buffer, base: int, pos: int, stop: int, n: int, now: float, direct: bool) -> int:
        """Pass buf[base:stop] on, then do what `halt` says of the frame at `stop`, and deal with all that follows.

        Return how many leading bytes of the buffer the caller sends. `direct`: those are the caller's to send (and base
        is 0), and the buffer may be written to; else they go by command, too.
        """
        passed = stop
        if stop < n:
            self.skip = 0
        if not direct:
            self.emit(buf[base:stop])
        while (halt := self.halt) is not None and not self.dead:
            self.halt = None
            if isinstance(halt, Changed):
                if halt.then is not None:
                    direct = False
                    self.emit(*halt.pieces)
                    halt.then()
                    break
                stop = halt.after + halt.rest
                if stop < n:
                    stop = self.scan(buf, stop, n, now)
                else:
                    self.skip, stop = stop - n, n
                if direct and (end := self.put_back(halt, buf, passed, stop)) is not None:
                    passed = end
                    break
                direct = False  # the bytes that follow go behind the pieces
                self.emit(*halt.pieces, buf[halt.after : stop])
            elif isinstance(halt, Streaming):
                self.stream = halt.stream
                if direct:
                    return halt.stream.receive(buf, halt.body, n, now, direct=True)
                self.emit(buf[stop : halt.body])
                halt.stream.receive(buf, halt.body, n, now, direct=False)
            else:
                if stop > pos:  # a frame has passed, so what is kept has only begun
                    self.session.complete(self)
                    self.hand_over()
                self.keep(bytearray(buf[stop:n]), halt, now)
        if self.session.has_pending:
            self.session.run_pending(now)
        return passed

    def put_back(self, halt: Changed, buf: Buffer, at: int, stop: int) -> int | None:
        """Write the pieces that replace buf[at:halt.after] to that place, with the bytes that pass behind it, up to
        `stop`.

        Return where that ends. None: there is not enough room, or a command may have to be obeyed before it leaves.
        """
        if self.halt is not None or self.session.commands or not isinstance(buf, memoryview):
            return None
        head = b"".join(halt.pieces)
        start = at + len(head)
        end = start + stop - halt.after
        if end > len(buf) or end > stop + MOST_GROWTH:
            return None
        if start != halt.after:
            buf[start:end] = buf[halt.after : stop]
        buf[at:start] = head
        return end

    def splice(self, lone: LoneName, buf: Buffer, pos: int, n: int, end: int) -> bool | None:
        """Replace the only name of the frame buf[pos:end], of which the bytes before n are here, if that can be done
        now.

        True: the name stays, the frame passes as it is. False: `halt` says how it goes on. None: look at it whole.
        """
        here = min(n, end)
        found = lone.splice(buf, pos, here, self.session.context)
        if found is None:
            if here < end and here - pos < LONE_HEAD:
                self.halt = Keep(min(end - pos, LONE_HEAD))
                return False
            return None
        start, stop, name = found
        if buf[start:stop] == name:
            return True
        size = end - pos - 4 + len(name) - (stop - start)
        self.halt = Changed([size.to_bytes(4, "big"), buf[pos + 4 : start], name], stop, rest=end - stop)
        return False

    def watch_token(self, buf: Buffer, pos: int, n: int, size: int) -> bool:
        """Show a bare token to the identity, which reads the client's name in it. False: the token has to be whole for
        that."""
        if pos + 4 + size <= n:
            self.session.identity.watch.raw_token(self.source, bytes(buf[pos + 4 : pos + 4 + size]))
        elif size <= LONGEST_TOKEN:
            self.halt = Keep(4 + size)
            return False
        else:
            self.session.identity.watch.lose()
        return True

    def keep(self, data: bytearray, halt: Keep | Blocked, now: float) -> None:
        """Keep `data` until there is enough of it, or until what it waits for has come."""
        self.kept = data
        if self.held_since is None and (isinstance(halt, Blocked) or halt.hold):
            self.held_since = now
        if isinstance(halt, Blocked):
            self.need = len(data)
            if self.arrived is None:
                self.arrived = now
            self.waits_since = now
            self.block(halt.reason or self.session.find_out(now))
            return
        self.need = halt.need
        self.session.incomplete(self, now)
        if halt.hold and not self.reserved:
            self.waits_since = self.reserved_at = now
            self.reserve(halt.need)

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
        self.session.pause(self.source, "blocked")

    def unblock(self, now: float) -> None:
        """Go on with the kept bytes, as the lane has got what it waited for."""
        if self.dead:
            return
        if self.session.observer is not None:
            self.tell_wait(self.session.observer, now)
        self.blocked = ""
        self.session.resume(self.source, "blocked", now)
        self.receive_slowly(b"", 0, 0, now)
        if not self.blocked:
            self.arrived = None
            if self.source in self.session.ended:
                self.session.eof(self.source, now)

    def tell_wait(self, observer: Observer, now: float) -> None:
        """Tell the observer how long the frame at hand was blocked until now."""
        at = CORRELATION_AT[self.source]
        if self.waits_since is None or self.kept is None or len(self.kept) < at + 4:
            return
        correlation = int.from_bytes(self.kept[at : at + 4], "big", signed=True)
        by_rule = self.blocked in BY_RULE
        response = self.source == BROKER
        older = 0 if response else self.session.inflight.older(correlation)
        observer.waited(correlation, now - self.waits_since, response=response, by_rule=by_rule, older=older)

    def since(self, now: float) -> float:
        """Return when the frame at hand came: before `now`, if others before it have waited."""
        return now if self.arrived is None else self.arrived

    def try_again(self, now: float) -> None:
        """Try the frame at hand again if it waits for a time that may have come."""
        if self.blocked in BY_RULE:
            self.unblock(now)

    def granted(self, now: float) -> None:
        """Take over the memory that the lane waited for, and go on."""
        self.reserved, self.reserved_at = self.need, now
        self.unblock(now)

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
                    self.session.incomplete(self, now)
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
            halt = self.treat_tail(self.stream, data, now)
            if isinstance(halt, Changed):
                self.stream = None
                self.emit(*halt.pieces)
                self.run(data, halt.after, halt.after, len(data), now, direct=False)
            elif isinstance(halt, Blocked):
                self.keep(data, halt, now)
        else:
            self.run(data, 0, 0, len(data), now, direct=False)
        if self.kept is None:
            self.session.complete(self)
            self.hand_over()
            if self.held_since is not None:
                self.session.counters.held_time.add(now - self.held_since)
                self.held_since = None

    def hand_over(self) -> None:
        """Hand the memory of a held frame that has left to the session: an empty Send carries it to where the kernel
        has all of the frame."""
        if self.reserved and not self.dead:
            size, self.reserved = self.reserved, 0
            self.session.hand_over(self.target, size)

    def emit(self, *pieces: Buffer) -> None:
        """Send a copy of the pieces, in one piece with what goes just before it; the buffer is the driver's. Long
        `bytes`, which nobody changes, leave as they are: to copy them would take long."""
        if not any(map(len, pieces)):
            return
        if len(pieces) < FEW and any(type(piece) is bytes and len(piece) >= LONG for piece in pieces):
            for piece in pieces:
                self.put(piece if type(piece) is bytes and len(piece) >= LONG else bytearray(piece))
        else:
            self.put(joined(pieces))

    def put(self, data: bytes | bytearray) -> None:
        """Send this behind everything that the lane has sent before."""
        session = self.session
        commands, end = session.commands, session.tail_position
        last = commands[(len(commands) if end is None else end) - 1] if end != 0 and commands else None
        before = last.data if isinstance(last, Send) and last.side == self.target else None
        if isinstance(before, bytearray) and isinstance(data, bytearray):
            before.extend(data)
        elif end is None:
            commands.append(Send(self.target, data))
        else:
            commands.insert(end, Send(self.target, data))
            session.tail_position = end + 1

    def die(self) -> None:
        """Stop passing bytes; from now on they are taken and thrown away."""
        self.dead = True
        self.kept = bytearray()

    def end(self) -> int:
        """Stop for good, as the connection is over. Return the bytes of held memory to give back.

        The session still has this lane; what this lane has of the session goes, or both would wait for the garbage
        collector.
        """
        self.die()
        self.stream = self.halt = None
        size, self.reserved = self.reserved, 0
        del self.session, self.scan
        return size

    @property
    def at_boundary(self) -> bool:
        """Return True if no frame is under way."""
        return not self.skip and not self.kept and self.stream is None


def joined(pieces: Sequence[Any]) -> bytearray:
    """Return a copy of all pieces in one; a long list is joined in parts, so that others can run in between."""
    if len(pieces) <= MANY:
        return bytearray().join(pieces)
    data = bytearray()
    for start in range(0, len(pieces), MANY):
        rest()
        data += b"".join(pieces[start : start + MANY])
    return data
