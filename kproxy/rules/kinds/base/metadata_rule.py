"""The base classes of kinds that change topics and partitions in responses to Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from pydantic import Field

from kproxy.rules.bodies.topics import DESCRIBING, partition_bodies, topics_of_answer
from kproxy.rules.document.model import KEY, Wrong
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.select.answer_match import AnswerMatch, selects

from .message_rule import ResponseRule


class MetadataRule(ResponseRule):
    """Rule that changes what clients are told of topics; its selectors of topic and partition hold for the answer."""

    apis: ClassVar = dict.fromkeys(DESCRIBING, 0)

    match: AnswerMatch | None = Field(
        default=None, description="frames that it is for, and topics and partitions in their answers; all if left out"
    )

    def selects(self, exchange: Exchange, entity: Entity) -> bool:
        """Return True if the selectors hold for a topic or partition of the answer."""
        return selects(self.match, self.not_, exchange, entity)


class PartitionRule(MetadataRule):
    """Rule that changes what clients are told of single partitions. Override `change_partition`."""

    def change_partition(self, partition: dict[str, Any], exchange: Exchange) -> bool:
        """Change a partition's dict in place. Return False if nothing changed."""
        raise NotImplementedError

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        """Change each partition that is selected."""
        changed = [
            self.change_partition(place.body, exchange)
            for place in partition_bodies(exchange.response, exchange)
            if self.selects(exchange, place.entity)
        ]
        return any(changed)


class WholeTopicRule(MetadataRule):
    """Rule that changes what clients are told of whole topics. Override `change`, or use `TopicRule`."""

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Refuse selectors of partitions, which a rule about topics cannot have."""
        match = raw.get("match")
        if isinstance(match, dict) and "partition" in match:
            yield ("match", "partition", KEY), '"partition" cannot be selected on here: the rule is about whole topics'


class TopicRule(WholeTopicRule):
    """Rule that changes topics one by one. Override `change_topic`."""

    def change_topic(self, topic: dict[str, Any], exchange: Exchange) -> bool:
        """Change a topic's dict in place. Return False if nothing changed."""
        raise NotImplementedError

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        """Change each topic that is selected and that the broker knows."""
        changed = [
            self.change_topic(entry, exchange)
            for topic, entry in topics_of_answer(exchange)
            if entry["error_code"] == 0 and self.selects(exchange, topic)
        ]
        return any(changed)
