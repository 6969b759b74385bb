"""Commands of a player. They name links by number; the result of each is passed to the player as an event."""

from __future__ import annotations

from dataclasses import dataclass

from .target import NodeAddress


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Command to connect, authenticate if need be, and call `opened` or `failed`."""

    link: int
    address: NodeAddress


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Command to send these bytes, with their length in front, over this link."""

    link: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Command to close a link that is not needed any more. No event follows."""

    link: int


@dataclass(frozen=True, slots=True)
class TickAt:
    """Command to call `tick` at this time, or soon after it."""

    when: float


@dataclass(frozen=True, slots=True)
class FinishReplay:
    """Command to end the replay. `reason`: why it could not even begin; empty if it did."""

    reason: str = ""


PlayerCommand = OpenLink | SendRequest | CloseLink | TickAt | FinishReplay
