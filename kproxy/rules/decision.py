"""What a live rule wants done with a frame or a connection: values, which `core` turns into bytes and commands.

Of the deciding ones (Fail, Answer, Drop, Close) the first that is given for an entity wins; delays add; of several
throttles the longest holds; changes of bodies and frames are made in file order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from kproxy.rules.entity import Entity

How = Literal["fin", "rst", "half"]
"""fin: closed after what is queued has been written. rst: at once, with a reset. half: kproxy sends nothing more to
the client, which may still send."""
AfterDrop = Literal["stall", "close", "continue"]
"""What becomes of a connection on which a frame was dropped: nothing more is sent on it, it is closed, or it
goes on."""


@dataclass(frozen=True, slots=True)
class Edit:
    """The body of `exchange.request` (or `.response`, when given for a response) was changed in place: encode it."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer with this error code. On a request: in the broker's place; on a response: after its work.

    `entities` None: those that matched. `whole`: at the response's top level, for the whole request.
    """

    code: int
    message: str | None = None
    entities: tuple[Entity, ...] | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """What the response lists and the request did not name is left out, unless it is `visible`. Needs depth BODY."""

    visible: Callable[[Entity], bool]


@dataclass(frozen=True, slots=True)
class Answer:
    """The request is answered by kproxy with this body; the broker never sees it. Only for requests."""

    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delay:
    """The frame, and with it all that follows on its connection, goes on this many seconds after it came."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Drop:
    """The frame goes nowhere."""

    then: AfterDrop = "stall"


@dataclass(frozen=True, slots=True)
class Close:
    """The connection is closed in this frame's place."""

    how: How = "fin"


@dataclass(frozen=True, slots=True)
class Throttle:
    """KIP-219: `throttle_time_ms` of this exchange's response is set (`hint`), and nothing more is read from the
    client for that long after it (`mute`). A request without a response mutes at once."""

    seconds: float
    hint: bool = True
    mute: bool = True


@dataclass(frozen=True, slots=True)
class Reframe:
    """`change` gets the whole frame, size in front, as it would leave, and gives what leaves instead of it.

    `then`: what becomes of the connection afterwards; None: it goes on. Needs depth BODY.
    """

    change: Callable[[bytes], bytes]
    then: How | None = None


@dataclass(frozen=True, slots=True)
class Repeat:
    """The response leaves `times` times more. Needs depth BODY."""

    times: int = 1


@dataclass(frozen=True, slots=True)
class Swap:
    """The response leaves after the one that follows it, if one is due; else nothing happens. Needs depth BODY."""


@dataclass(frozen=True, slots=True)
class Swallow:
    """All that comes on this connection is taken and goes nowhere. For `on_connect` and requests."""


Decision = Edit | Fail | LeaveOut | Answer | Delay | Drop | Close | Throttle | Reframe | Repeat | Swap | Swallow
