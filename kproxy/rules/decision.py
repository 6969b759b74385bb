"""Decisions of live rules about a frame or a connection: values, which `session` turns into bytes and commands. Beside
them the depth to which a rule sees frames, and the limits on how a connection's bytes flow.

Of the deciding ones (Fail, Answer, Drop, Close) the first that is given for an entity wins; delays add; of several
throttles the longest holds; changes of bodies and frames are made in file order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, NewType, Protocol

from kproxy.rules.entity import Entity

How = Literal["fin", "rst", "half"]
"""fin: closed after what is queued has been written. rst: at once, with a reset. half: kproxy sends nothing more to
the client, which may still send."""
AfterDrop = Literal["stall", "close", "continue"]
"""Fate of a connection on which a frame was dropped: nothing more is sent on it, it is closed, or it
goes on."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Decision to encode the body of `exchange.request` (or `.response`, when given for a response), which was changed
    in place."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Decision to answer with this error code. On a request: in the broker's place; on a response: after its work.

    `entities` None: those that matched. `whole`: at the response's top level, for the whole request.
    """

    code: int
    message: str | None = None
    entities: tuple[Entity, ...] | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """Decision to leave out of the response what the request did not name, unless it is `visible`. Needs depth BODY."""

    visible: Callable[[Entity], bool]


@dataclass(frozen=True, slots=True)
class Answer:
    """Decision to answer the request with this body; the broker never sees it. Only for requests."""

    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delay:
    """Decision to let the frame, and with it all that follows on its connection, go on this many seconds after it
    came."""

    seconds: float


HeldError = NewType("HeldError", int)
"""Error code that a held frame is answered with when its time is over."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Decision to hold the frame until somebody lets it go, for so many seconds at most; `then` it passes, or its
    connection is closed, or it is answered with this error code. Needs depth BODY.

    `most`: frames that the rule holds at a time in one process; more pass, and are counted.
    """

    seconds: float
    then: Literal["pass", "close"] | HeldError = "pass"
    most: int = 20


@dataclass(frozen=True, slots=True)
class Drop:
    """Decision to let the frame go nowhere."""

    then: AfterDrop = "stall"


@dataclass(frozen=True, slots=True)
class Close:
    """Decision to close the connection in this frame's place."""

    how: How = "fin"


class Turn(Protocol):
    """Place of one request in the lines of the limits that it is charged to.

    `waiter`: session of the request, set before the first `ask`; None if nothing can wake it. `woken`: waiters at the
    head of a line that can go on since this turn left it. The caller takes them, and has each of them ask again.
    """

    waiter: Any
    woken: list[Any]
    debt: float  # seconds of the longest debt that its charges have left so far

    def ask(self, now: float) -> float:
        """Charge the request and return 0 if it may go on. Otherwise return the seconds until it asks again; infinite:
        another turn is before it, and wakes it."""

    def step_aside(self) -> None:
        """Leave the line until the next `ask`. The request cannot go on now, and others would wait for it."""

    def leave(self, now: float, unsent: float = 0.0) -> None:
        """Give up all places. Take back the `unsent` part of its charges, or all of them if it had a place."""

    def has_late(self, now: float) -> bool:
        """Return True if bytes of a request at one of these limits were late within the last minute."""

    def note_late(self, now: float) -> None:
        """Note at all limits that bytes of the request are late."""

    def part(self, share: float) -> Turn:
        """Return a new turn with this share of the charges."""


@dataclass(frozen=True, slots=True)
class Await:
    """Decision to hold the request, and all that follow on its connection, until its `ConnectionView.turns` are paid.
    Only for requests."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """Decision to throttle the client as in KIP-219.

    throttle_time: seconds in `throttle_time_ms` of this exchange's response. mute: seconds without reads of the
    client's channel after the response. A request without a response mutes at once.
    """

    throttle_time: float = 0.0
    mute: float = 0.0


@dataclass(frozen=True, slots=True)
class Reframe:
    """Decision to replace the frame: `change` gets the whole of it, size in front, as it would leave, and returns what
    leaves instead.

    `then`: what becomes of the connection afterwards; None: it goes on. Needs depth BODY.
    """

    change: Callable[[bytes], bytes]
    then: How | None = None


@dataclass(frozen=True, slots=True)
class Repeat:
    """Decision to send the response `times` times more. Needs depth BODY."""

    times: int = 1


@dataclass(frozen=True, slots=True)
class Swap:
    """Decision to send the response after the one that follows it, if one is due; else nothing happens. Needs depth
    BODY."""


@dataclass(frozen=True, slots=True)
class Swallow:
    """Decision to take all that comes on this connection and send it nowhere. For `on_connect` and requests."""


Decision = (
    Edit | Fail | LeaveOut | Answer | Delay | Await | Hold | Drop | Close | Throttle | Reframe | Repeat | Swap | Swallow
)


class FrameDepth(IntEnum):
    """Depth to which a rule sees a frame. NOTHING: the rule does nothing there. HEADER: api, version, client id and
    length do, the frame streams on. BODY: the frame is held until it is whole, within the budget of held frames."""

    NOTHING, HEADER, BODY = range(3)


ShapedDirection = Literal["to_client", "to_broker"]


@dataclass(frozen=True, slots=True)
class TrafficShape:
    """Limits on the bytes of a connection, in the directions `ways`.

    rate: bytes per second, None: as fast as they come. piece: bytes written at once, with `pause` seconds between two
    pieces. most: bytes after which the connection is closed as `how` says, both directions together. age: seconds after
    which it is closed, counted from its opening.
    """

    ways: frozenset[ShapedDirection] = frozenset(("to_client", "to_broker"))
    rate: float | None = None
    piece: int | None = None
    pause: float = 0.0
    most: int | None = None
    age: float | None = None
    how: Literal["fin", "rst"] = "fin"
