"""What came of one recorded exchange."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kproxy.wire import Message

from .recording import Exchange

How = Literal["answered", "silent", "unanswered", "not sent"]
"""silent: sent, and no answer is due."""


@dataclass(slots=True, eq=False)
class Outcome:
    """`frame`: the new answer, without its length; `message`: what it says, if it can be read; `seconds`: from the
    sending to it; `reason`: why it was not sent, or not answered; `notes`: what is different about the request;
    `tries`: how often it was sent."""

    exchange: Exchange
    how: How
    frame: bytes | None = None
    message: Message | None = None
    seconds: float | None = None
    reason: str = ""
    notes: list[str] = field(default_factory=list)
    tries: int = 1
