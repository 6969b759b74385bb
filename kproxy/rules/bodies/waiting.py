"""Waits of brokers with a Fetch answer that has nothing in it."""

from __future__ import annotations

from kproxy.rules.bodies.topics import OF_ANSWER
from kproxy.rules.decision import Decision, Delay
from kproxy.rules.exchange import Exchange


def waited(exchange: Exchange) -> tuple[Decision, ...]:
    """Return the wait for an answer without records and errors, so that consumers do not ask again and again at
    once."""
    outer, inner, _ = OF_ANSWER[exchange.api.key]
    body = exchange.response.body
    partitions = (partition for topic in body[outer] or () for partition in topic[inner] or ())
    busy = body.get("error_code") or any(one["records"] or one["error_code"] for one in partitions)
    seconds = exchange.request.body["max_wait_ms"] / 1000
    return () if busy or seconds <= 0 else (Delay(seconds),)
