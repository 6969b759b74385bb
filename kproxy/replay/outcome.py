"""Outcome of one recorded exchange in a replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kproxy.wire import Message

from .recording import RecordedExchange

ReplayStatus = Literal["answered", "silent", "unanswered", "not sent"]
"""silent: sent, and no answer is due."""


@dataclass(slots=True, eq=False)
class ReplayOutcome:
    """Outcome of one exchange.

    `frame`: the new response, without its length; `message`: the same decoded, if it can be read; `seconds`: from the
    sending to it; `reason`: why it was not sent, or not answered; `notes`: what is different about the request;
    `tries`: how often it was sent.
    """

    exchange: RecordedExchange
    how: ReplayStatus
    frame: bytes | None = None
    message: Message | None = None
    seconds: float | None = None
    reason: str = ""
    notes: list[str] = field(default_factory=list)
    tries: int = 1
