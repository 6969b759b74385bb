"""Waits of brokers with a Fetch answer that has nothing in it."""

from __future__ import annotations

from kproxy.rules.decision import Decision, Delay
from kproxy.rules.exchange import Exchange
from kproxy.wire.elements import partitions


def waited(exchange: Exchange) -> tuple[Decision, ...]:
    """Return the wait for an answer without records and errors, so that consumers do not ask again and again at
    once."""
    response = exchange.response
    busy = response.body.get("error_code") or any(one.records or one.error_code for one in partitions(response))
    seconds = exchange.request.body["max_wait_ms"] / 1000
    return () if busy or seconds <= 0 else (Delay(seconds),)
