"""What a player wants done. A link goes by its number; what comes of a command is told as an event."""

from __future__ import annotations

from dataclasses import dataclass

from .target import Address


@dataclass(frozen=True, slots=True)
class Open:
    """Connect, authenticate if need be, and say `opened` or `failed`."""

    link: int
    address: Address


@dataclass(frozen=True, slots=True)
class Send:
    """These bytes, with their length in front, over this link."""

    link: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Close:
    """This link is not needed any more. Nothing is said about it afterwards."""

    link: int


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Call `tick` at this time, or soon after it."""

    when: float


@dataclass(frozen=True, slots=True)
class Finish:
    """The replay is over. `reason`: why it could not even begin; empty if it did."""

    reason: str = ""


Command = Open | Send | Close | WakeAt | Finish
