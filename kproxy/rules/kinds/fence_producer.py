"""fence_producer: another producer has taken the transactional id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, Fail, FrameDepth
from kproxy.rules.kinds.base.message_rule import RequestRule
from kproxy.rules.kinds.base.rule import Decisions, Direction

INVALID_PRODUCER_EPOCH, PRODUCER_FENCED = 47, 90
SAID_FROM = {INIT_PRODUCER_ID: 4, ADD_PARTITIONS_TO_TXN: 2, ADD_OFFSETS_TO_TXN: 2, END_TXN: 2}
"""First versions that return PRODUCER_FENCED (KIP-588). Earlier versions and other APIs return the older error."""
FENCED = frozenset({*SAID_FROM, PRODUCE, TXN_OFFSET_COMMIT})


class FenceProducer(RequestRule):
    """Tells a transactional producer that another one has taken its transactional id.

    The error is the one that brokers give in that API and version: PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH where
    they know only that. PRODUCER_FENCED ends a producer; INVALID_PRODUCER_EPOCH may only abort its transaction. A
    producer that is starting, and asks for its first id, is left alone: it is the newer one. The broker does not see
    what is fenced, so a transaction stays open until its time is up.
    """

    group = "groups, offsets and transactions"
    example: ClassVar[str] = """\
- name: the producer of transfers is fenced at its third commit
  kind: fence_producer
  match: {api: EndTxn, transactional_id: transfers}
  when: {nth: 3}
"""

    kind: Literal["fence_producer"] = Field(description="kind of the rule")

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        if direction == "response" or key not in FENCED:
            return FrameDepth.NOTHING
        return FrameDepth.BODY if version in transactional(key) else FrameDepth.NOTHING

    def decide(self, exchange: Exchange, entities: Sequence[Entity]) -> Decisions:
        key, version = exchange.api.key, exchange.version
        fenced = tuple(entity for entity in entities if entity.transactional_id is not None)
        if not fenced or (key == INIT_PRODUCER_ID and exchange.request.body.get("producer_id", -1) < 0):
            return ()
        newer = key in SAID_FROM and version >= SAID_FROM[key]
        return (Fail(PRODUCER_FENCED if newer else INVALID_PRODUCER_EPOCH, entities=fenced),)


def transactional(key: int) -> schema.Versions:
    """Return the versions of an API with a transactional id in requests."""
    return layout.kinds(key, "request").get("transactional_id", schema.NONE)
