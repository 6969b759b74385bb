"""Traffic shaping by rules: replaces `send` of a side with one that accepts fewer bytes, later.

Sides already support sockets that accept a part of the data. The rest waits in the side's queue, and the peer is not
read until then. So a slow line needs no memory, and the rest of the side does not depend on shaping.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from kproxy.rules.exchange import TrafficShape

from .pollers import Deadline
from .reactor import OUT
from .side import Side

if TYPE_CHECKING:
    from kproxy.runtime.connection import Connection

STEP = 0.01
"""Bytes of this many seconds are written at once: fine enough to look like a slow line."""


LATE = 0.1
"""Seconds of delay that a line may catch up on; after a longer delay it counts as idle."""


class ConnectionShaper:
    """Shapes of one connection: a shaper for each side, and a common count of forwarded bytes."""

    def __init__(self, connection: Connection, shapes: Sequence[TrafficShape]) -> None:
        self.connection, self.shapes = connection, tuple(shapes)
        self.passed = 0
        self.over = False
        self.shapers = [
            SideShaper(self, side, [shape for shape in shapes if way in shape.ways])
            for side, way in ((connection.client, "to_client"), (connection.broker, "to_broker"))
        ]
        now = monotonic()
        self.ends: list[Deadline] = [
            connection.reactor.call_at(max(connection.since + shape.age, now), self.too_old)
            for shape in shapes
            if shape.age is not None
        ]

    def room(self) -> int | None:
        """Return the number of bytes left before the connection is cut; None: unlimited."""
        return min(
            (max(shape.max_bytes - self.passed, 0) for shape in self.shapes if shape.max_bytes is not None),
            default=None,
        )

    def count(self, size: int) -> None:
        self.passed += size
        for shape in self.shapes:
            if shape.max_bytes is not None and self.passed >= shape.max_bytes:
                self.connection.reactor.soon(self.full)
                return

    def full(self) -> None:
        """Cut the connection: its byte limit is reached."""
        if self.over:
            return
        shape = next(shape for shape in self.shapes if shape.max_bytes is not None and self.passed >= shape.max_bytes)
        self.connection.cut(shape.close_with, f"a rule lets {shape.max_bytes} bytes pass")

    def too_old(self) -> None:
        shape = min((one for one in self.shapes if one.age is not None), key=lambda one: one.age or 0.0)
        self.connection.cut(shape.close_with, f"a rule lets connections live for {shape.age:g} s")

    def end(self) -> None:
        self.over = True
        for deadline in self.ends:
            self.connection.reactor.cancel(deadline)
        for shaper in self.shapers:
            shaper.end()


class SideShaper:
    """Shaper of one side that replaces its `send`."""

    def __init__(self, flow: ConnectionShaper, side: Side, shapes: Sequence[TrafficShape]) -> None:
        self.flow, self.side = flow, side
        self.pieces = [shape.piece for shape in shapes if shape.piece is not None]
        self.pieces += [max(1, int(shape.rate * STEP)) for shape in shapes if shape.rate is not None]
        self.rates = [shape.rate for shape in shapes if shape.rate is not None]
        self.pause = max((shape.pause for shape in shapes), default=0.0)
        self.next = 0.0
        self.again = 0  # bytes that the socket did not accept: TLS requires the same size again
        self.waiting: Deadline | None = None
        side.shaper = self
        self.wrap()

    def wrap(self) -> None:
        """Replace `send` of the side's current socket."""
        self.inner, self.side.send = self.side.send, self.send

    def send(self, data: bytes | memoryview) -> int:
        """Send the part of `data` that is allowed now. Raises BlockingIOError when that is nothing."""
        now = monotonic()
        left = self.flow.room()
        if now < self.next or left == 0:
            self.wait()
            raise BlockingIOError
        room = max(min((len(data), *self.pieces) if left is None else (len(data), left, *self.pieces)), self.again)
        self.again = room
        done = self.inner(memoryview(data)[:room])
        self.again = 0
        since = self.next if now - self.next < LATE else now  # catches up on late timers
        self.next = max(since + done / min(self.rates) if self.rates else now, now + self.pause)
        self.flow.count(done)
        return done

    def wait(self) -> None:
        """Let the side try again when it may send more."""
        if self.waiting is None and self.flow.room() != 0:
            self.waiting = self.flow.connection.reactor.call_at(self.next, self.over)

    def over(self) -> None:
        self.waiting = None
        if self.side.out is not None:
            self.side.want(self.side.mask | OUT)

    def end(self) -> None:
        """Restore the side's own `send`."""
        side = self.side
        if self.waiting is not None:
            self.flow.connection.reactor.cancel(self.waiting)
            self.waiting = None
        side.shaper = None
        if side.sock is not None:
            side.send = self.inner
        if side.out is not None:
            side.want(side.mask | OUT)
