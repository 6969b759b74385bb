"""Base class of kinds about the content of records that are not faults.

Records are changed through `rules/content/edits.py`. On fetch, longer records must not exceed the client's limits:
requests ask for at most MOST_FETCHED bytes, and batches beyond the client's `max_bytes` are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.protocol.table.api_keys import FETCH
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, FrameDepth
from kproxy.rules.kinds.base.quota import has_max_bytes

from .records_rule import RecordChanges, RecordsRule, edits_of
from .rule import UNCOUNTED, Decisions, Direction, Effect, Family

MOST_FETCHED = 8 << 20
"""Bytes of one Fetch response that a rule about content handles."""


class ContentRule(RecordsRule):
    """Rule about the content of records, which stays in force while faults are disabled. Override `change`."""

    family: ClassVar[Family] = "content"
    selects_single_records: ClassVar[bool] = True

    at: Literal["produce", "fetch"] = Field(
        default="produce", description="records of Produce requests, or of Fetch and ShareFetch responses"
    )

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        if self.at == "fetch" and direction == "request" and key == FETCH and has_max_bytes(key, version):
            return FrameDepth.BODY
        return super().depth(direction, key, version)

    def start(self) -> Effect:
        return ContentEffect(self)


class ContentEffect(RecordChanges):
    """Effect that keeps responses within the limits of the client."""

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        if exchange.api.key != FETCH:
            return super().on_request(exchange, entities, now)
        body = exchange.request.body
        if exchange.max_bytes is None:
            exchange.max_bytes = body["max_bytes"]
        if body["max_bytes"] <= MOST_FETCHED:
            return ()
        body["max_bytes"] = MOST_FETCHED
        body["min_bytes"] = min(body["min_bytes"], MOST_FETCHED)  # above max_bytes the broker would wait in vain
        return (UNCOUNTED,)

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        if exchange.max_bytes is not None and exchange.api.key == FETCH:
            edits_of(exchange, "response").limit(exchange.max_bytes)
        return super().on_response(exchange, entities, now)
