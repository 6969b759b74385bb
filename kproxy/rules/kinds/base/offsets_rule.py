"""The base class of kinds that change committed offsets on their way to consumers: OffsetFetch in all its versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from kproxy.rules.bodies.topics import topic_entity
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.select.answer_match import AnswerMatch, selects
from kproxy.wire.elements import Topic, topics
from kproxy.wire.table.api_keys import OFFSET_FETCH

from .message_rule import ResponseRule

UNCOMMITTED = -1


class OffsetsRule(ResponseRule):
    """Rule that changes committed offsets in responses to OffsetFetch. Override `change_offset`."""

    apis: ClassVar = {OFFSET_FETCH: 0}

    match: AnswerMatch | None = Field(
        default=None, description="frames that it is for, and topics and partitions in their answers; all if left out"
    )

    def change_offset(self, partition: dict[str, Any]) -> dict[str, Any] | None:
        """Return a partition with another committed offset, the same dict for no change, None to leave it out."""
        raise NotImplementedError

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        """Change the partitions that the selectors hold for, in each group that the request is about."""
        changed = False
        groups = {entity.group: entity for entity in entities}
        for topic in topics(exchange.response):
            group = next(iter(groups.values()), None) if topic.around is None else groups.get(topic.around["group_id"])
            if group is not None:
                changed |= self.change_topic(exchange, group, topic)
        return changed

    def change_topic(self, exchange: Exchange, group: Entity, topic: Topic) -> bool:
        """Change the partitions of one topic of one group. Return False if nothing changed."""
        whole = topic_entity(topic, exchange)
        kept, before = [], topic.partitions
        for partition in before:
            number = partition["partition_index"]
            entity = Entity(whole.topic, whole.topic_id, number, group=group.group, member=group.member)
            selected = selects(self.match, self.not_, exchange, entity)
            after = self.change_offset(partition) if selected else partition
            if after is not None:
                kept.append(after)
        if len(kept) == len(before) and all(new is old for new, old in zip(kept, before, strict=True)):
            return False
        topic.fields["partitions"] = kept
        return True
