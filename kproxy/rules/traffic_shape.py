"""How the bytes of a connection flow: slower, in small pieces, or only so many of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ShapedDirection = Literal["to_client", "to_broker"]


@dataclass(frozen=True, slots=True)
class TrafficShape:
    """Limits on one or both directions of a connection.

    rate bytes per second, None: as fast as they come piece bytes written at once, with `pause` seconds between two
    pieces most bytes after which the connection is closed as `how` says, both directions together age seconds after
    which it is closed, counted from its opening
    """

    ways: frozenset[ShapedDirection] = frozenset(("to_client", "to_broker"))
    rate: float | None = None
    piece: int | None = None
    pause: float = 0.0
    most: int | None = None
    age: float | None = None
    how: Literal["fin", "rst"] = "fin"
