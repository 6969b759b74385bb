"""hide_topic: a topic that clients do not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal
from uuid import UUID

from pydantic import Field

from kproxy.base.cooperative import defer_free
from kproxy.protocol.elements import topics
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.rules.bodies import topic_entity
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.message_rule import WholeTopicRule
from kproxy.rules.kinds.base.rule import Permanent

UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID = 3, 100
NO_OPERATIONS = -(2**31)


class HideTopic(WholeTopicRule):
    """Hides a topic from clients.

    It is removed from lists of all topics. In Metadata and DescribeTopicPartitions, a request by name gets
    UNKNOWN_TOPIC_OR_PARTITION, a request by id gets UNKNOWN_TOPIC_ID. Other APIs still reach the broker: add an `error`
    rule on Produce and Fetch to fail these.
    """

    group = "cluster metadata"
    example: ClassVar[str] = """\
- name: orders has gone for a while
  kind: hide_topic
  match: {topic: orders}
  when: {after: 10s, for: 30s}
"""

    kind: Literal["hide_topic"] = Field(description="kind of the rule")
    permanent: Permanent = False

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        body = exchange.response.body
        names, ids = asked_for(exchange)
        kept, hidden = [], False
        for topic in topics(exchange.response):
            entity = topic_entity(topic, exchange)
            if not self.selects(exchange, entity):
                kept.append(topic.fields)
                continue
            hidden = True
            if entity.topic_id in ids:
                kept.append(gone(topic.fields, UNKNOWN_TOPIC_ID, by_id=True))
            elif entity.topic in names:
                kept.append(gone(topic.fields, UNKNOWN_TOPIC_OR_PARTITION, by_id=False))
        if hidden:
            body["topics"] = kept
        return hidden


def asked_for(exchange: Exchange) -> tuple[set[str | None], set[UUID]]:
    """Return the names and the ids of topics that the request lists; none when it wants all."""
    names: set[str | None] = defer_free(set())
    ids: set[UUID] = defer_free(set())
    for topic in topics(exchange.request):
        if topic.topic_id is None or topic.topic_id == ZERO_UUID:
            names.add(topic.name)
        else:
            ids.add(topic.topic_id)
    return names, ids


def gone(entry: dict[str, Any], code: int, by_id: bool) -> dict[str, Any]:
    """Return a broker's entry for an unknown topic: the requested name or id, and the error."""
    fresh = {**entry, "error_code": code, "partitions": []}
    if by_id:
        fresh["name"] = None
    elif "topic_id" in fresh:
        fresh["topic_id"] = ZERO_UUID
    if "topic_authorized_operations" in fresh:
        fresh["topic_authorized_operations"] = NO_OPERATIONS
    return fresh
