"""Hooks as examples, for `kind: python`."""

from __future__ import annotations

from kproxy.protocol.codec.message import Message
from kproxy.rules.exchange import Exchange

from .exchange import Decision, Delay


def many_topics_wait(exchange: Exchange, message: Message) -> Decision | None:
    """Delay requests that write to more than ten topics by a second."""
    return Delay(1.0) if len(message.body["topic_data"]) > 10 else None
