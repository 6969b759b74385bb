"""One direction of a connection: finds the frames in a read and passes on those that need no decoding.

Strategy. `receive` gets a view of a buffer that belongs to the driver and is overwritten after the call. It returns how
many leading bytes go to the other side. Usually these are all bytes, and one `send` is sufficient. If the last frame of
a read is changed, the result is written in place, and goes the same way. Otherwise bytes after a changed or incomplete
frame go by `Send` commands or are kept (`assembler.py`). `skip` is the number of pending bytes of a passing frame that
streams in. `stream` is a long frame of which only the tail is decoded.

`scan` (the subclass has one for each state of the connection) runs over whole frames, and stops at the first one that
does not simply pass, with its `disposition`. `go_on` applies that disposition and continues the scan. If only the topic
name in the header of a frame changes, the scan does not stop: `NewHeads` records the new header, and all new headers of
a read are written together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kproxy.base.cooperative import yield_point
from kproxy.protocol.primitives import Buffer
from kproxy.rules.kinds.base.rule import Direction
from kproxy.rules.names.layer import TOPIC
from kproxy.session.frame import PASS, Disposition, FrameView, Need, Pass, Reject, Replace, Streaming, Wait
from kproxy.session.held_frames import HeldFrame
from kproxy.session.held_memory import HeldMemory, Hold
from kproxy.session.live.evaluation import Evaluation, may_hold
from kproxy.session.rewrite.names.rewrites import KnownHead
from kproxy.session.rewrite.rewriter import Pieces, Splicer
from kproxy.session.sasl.login import MAX_TOKEN
from kproxy.session.sasl.principal import LONGEST_TOKEN

from .assembler import Assembler
from .services import LaneHost

if TYPE_CHECKING:
    from kproxy.session.frame import LongFrame


class NewHeads:
    """Pieces that replace buf[first:done], with `changes` changed headers."""

    __slots__ = ("changes", "done", "first", "pieces")

    def __init__(self, pos: int) -> None:
        self.first = self.done = pos
        self.pieces: Pieces = []
        self.changes = 0

    def write(self, buf: Buffer, pos: int, size: int, stop: int, head: KnownHead) -> None:
        """Write the head up to `stop` of the frame of `size` bytes at `pos`. Others have turns: a read may have ten
        thousand of them."""
        yield_point()
        if pos > self.done:
            self.pieces.append(buf[self.done : pos])
        start = stop - head.length
        self.pieces += ((size + len(head.written) - head.length).to_bytes(4, "big"), buf[pos + 4 : start], head.written)
        self.done = stop
        self.changes += 1

    def replace(self, pos: int) -> Replace:
        """Return the disposition of the frames from the first with a changed header to `pos`, which may be after the
        received bytes: after the last header they pass."""
        return Replace(self.pieces, self.done, rest=pos - self.done)


LONE_HEAD = 1024
"""Bytes that contain the only name of a frame, unless ids are much longer than usual."""

Scan = Callable[[Buffer, int, int, float], int]


class Lane(Assembler):
    """One direction of a connection, base of both. `source` and `target` are the sides CLIENT and BROKER."""

    scan: Scan
    """From a frame's start: where the bytes end that pass. If that is before n, `disposition` is that of the frame
    there; when the last frame passes but is incomplete, `skip` is the number of its pending bytes."""

    def __init__(self, session: LaneHost, memory: HeldMemory) -> None:
        self.session, self.memory = session, memory
        self.skip = 0
        self.kept: bytearray | None = None
        self.stream: LongFrame | None = None

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

    # ---- frames that do not simply pass

    def run(self, buf: Buffer, base: int, pos: int, n: int, now: float, direct: bool) -> int:
        """Pass buf[base:n] on; a frame starts at `pos`. See `go_on`."""
        return self.go_on(buf, base, pos, self.scan(buf, pos, n, now), n, now, direct)

    def go_on(self, buf: Buffer, base: int, pos: int, stop: int, n: int, now: float, direct: bool) -> int:
        """Pass buf[base:stop] on, then apply the disposition to the frame at `stop`, and handle the bytes after it.

        Return how many leading bytes of the buffer the caller sends. `direct`: the caller sends those (and base is 0),
        and the buffer may be written to; otherwise they go by command.
        """
        passed = stop
        if stop < n:
            self.skip = 0
        if not direct:
            self.emit(buf[base:stop])
        while (disposition := self.disposition) is not None and not self.dead:
            self.disposition = None
            if isinstance(disposition, Replace):
                if disposition.then is not None:
                    direct = False
                    self.emit(*disposition.pieces)
                    disposition.then()
                    break
                stop = disposition.after + disposition.rest
                if stop < n:
                    stop = self.scan(buf, stop, n, now)
                else:
                    self.skip, stop = stop - n, n
                if direct and (end := self.put_back(disposition, buf, passed, stop)) is not None:
                    passed = end
                    break
                direct = False  # the bytes that follow are sent after the pieces
                self.emit(*disposition.pieces, buf[disposition.after : stop])
            elif isinstance(disposition, Streaming):
                self.stream = disposition.stream
                self.end_waits(buf, pos, n)  # a tail that waits has a new clock
                if direct:
                    return disposition.stream.receive(buf, disposition.body, n, now, direct=True)
                self.emit(buf[stop : disposition.body])
                disposition.stream.receive(buf, disposition.body, n, now, direct=False)
            elif isinstance(disposition, Reject):
                self.session.close(disposition.cause, disposition.message, disposition.blame)
            elif isinstance(disposition, (Need, Wait)):
                self.report_waits(buf, pos, stop)
                if stop > pos:  # a frame has passed, so the kept frame has only begun
                    self.complete()
                    self.hand_over()
                self.keep(bytearray(buf[stop:n]), disposition, now, gone=stop)
        self.end_waits(buf, pos, n)
        if self.session.has_pending:
            self.session.run_pending(now)
        return passed

    def stop(self, disposition: Disposition, pos: int) -> int:
        """Stop the scan at the frame at `pos` with this disposition; return `pos`."""
        self.disposition = disposition
        return pos

    def stop_at_new(self, new: NewHeads, pos: int) -> int:
        """Have the scan stop at the first frame with another head; those up to `pos` are dealt with."""
        self.session.context.rewrote(TOPIC.changed, new.changes)
        return self.stop(new.replace(pos), new.first)

    def treat_tail(self, stream: Any, tail: bytearray, now: float) -> Disposition:
        raise NotImplementedError

    def take_tail(self, stream: LongFrame, data: bytearray, now: float) -> None:
        """Send the tail of a streamed frame by its disposition, and go on with the bytes of `data` after it."""
        disposition = self.treat_tail(stream, data, now)
        if isinstance(disposition, Replace):
            if self.clock is not None:
                self.report_wait(stream.correlation, *self.clock.of(0))
            self.stream = None
            self.emit(*disposition.pieces)
            self.run(data, disposition.after, disposition.after, len(data), now, direct=False)
        elif isinstance(disposition, Reject):
            self.session.close(disposition.cause, disposition.message, disposition.blame)
        elif isinstance(disposition, Wait):
            self.keep(data, disposition, now)

    def splice(self, splicer: Splicer, frame: FrameView) -> Pass | Need | Replace | None:
        """Change the frame in one place, if that can be done now. None: look at it whole."""
        found = splicer.splice(frame.buf, frame.start, frame.have, self.session.context)
        if found is None:
            if frame.have < frame.end and frame.have - frame.start < LONE_HEAD:
                return Need(min(frame.length, LONE_HEAD))
            return None
        start, stop, name = found
        if frame.buf[start:stop] == name:
            return PASS
        size = frame.end - frame.start - 4 + len(name) - (stop - start)
        pieces = [size.to_bytes(4, "big"), frame.buf[frame.start + 4 : start], name]
        return Replace(pieces, stop, rest=frame.end - stop)

    def begin_hold(self, evaluation: Evaluation, at: Direction, size: int, now: float) -> None:
        """Start the holds that rules decided for the current frame. While a long frame is evaluated, a rule may end
        without releasing it, and other frames may take the room."""
        session = self.session
        in_force = set(session.plan.live)
        evaluation.holds = [
            HeldFrame(session, self, evaluation, running, at, hold, now, size)
            for running, hold in evaluation.to_hold
            if running in in_force and (hold is None or may_hold(session, running, hold, size))
        ]
        for held in evaluation.holds:
            session.shared.desk.enter(held)

    def watch_token(self, buf: Buffer, pos: int, n: int, size: int) -> bool:
        """Show a bare token to the identity, which reads the client's name in it. False: the token has to be whole for
        that."""
        if pos + 4 + size <= n:
            self.session.identity.watch.raw_token(self.source, bytes(buf[pos + 4 : pos + 4 + size]))
        elif size <= LONGEST_TOKEN:
            self.disposition = Need(4 + size)
            return False
        else:
            self.session.identity.watch.give_up()
        return True

    def end(self) -> list[Hold]:
        """Stop: the connection has ended. Returns the reservations to give back.

        The session keeps this lane. The lane drops its references to the session, so no cycle needs the garbage
        collector.
        """
        self.die()
        self.stream = self.disposition = None
        holds = [*(self.handed_over or ())]
        if self.reserved is not None:
            holds.append(self.reserved)
        self.reserved = self.handed_over = None
        del self.session, self.scan
        return holds


def too_long(frame: FrameView, what: str, blame: str, most: int = MAX_TOKEN) -> Reject | None:
    """Return the refusal of a login's frame of more than `most` bytes, None for a shorter one."""
    size = frame.length - 4
    if size <= most:
        return None
    return Reject("frame_size", f"{frame.step.api} {what} of {size} bytes, expected at most {most}", blame)
