"""Why a lane's scan stops at a frame that does not simply pass, and what it takes to go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kproxy.core.rewrite import Pieces

if TYPE_CHECKING:
    from .tail_stream import TailStream

IDENTITY = "identity"
"""The word for a frame that waits until it is known who the client is."""


class Keep:
    """Disposition of a frame that needs `need` bytes here before it can be judged. `hold`: that is the whole frame, and
    its memory is to be reserved."""

    __slots__ = ("hold", "need")

    def __init__(self, need: int, hold: bool = False) -> None:
        self.need, self.hold = need, hold


class Changed:
    """Disposition of a frame whose bytes at hand, up to `after`, are replaced by `pieces` (none: they are dropped).

    `rest` bytes of the frame follow and pass as they stream in; then, or at once, the next frame starts. `then` is
    called when the pieces are in commands.
    """

    __slots__ = ("after", "pieces", "rest", "then")

    def __init__(self, pieces: Pieces, after: int, rest: int = 0, then: Callable[[], None] | None = None) -> None:
        self.pieces, self.after, self.rest, self.then = pieces, after, rest, then


class Blocked:
    """Disposition of a frame that has to wait: for what `reason` says, or, if that is empty, until the session has
    found out what a rewrite asked for."""

    __slots__ = ("reason",)

    def __init__(self, reason: str = "") -> None:
        self.reason = reason


class Streaming:
    """Disposition of a frame that passes by way of a `TailStream`, from byte `body` of the buffer on."""

    __slots__ = ("body", "stream")

    def __init__(self, stream: TailStream, body: int) -> None:
        self.stream, self.body = stream, body


Halt = Keep | Changed | Blocked | Streaming
