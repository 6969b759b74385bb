"""What kinds share that change what clients are told of topics and partitions: Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import Field

from kproxy.rules.answer_match import AnswerMatch, selects
from kproxy.rules.bodies.topics import DESCRIBING, partitions_of_topic, topics_of_answer
from kproxy.rules.decision import Edit
from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.explain import KEY, Wrong
from kproxy.rules.kinds.base import Direction
from kproxy.rules.kinds.live import Decisions, Effect
from kproxy.rules.kinds.reading import SelectingRule


class DescribingRule(SelectingRule):
    """Acts on answers that describe topics; its selectors of topic and partition are looked for in the answer."""

    match: AnswerMatch | None = Field(
        default=None, description="frames that it is for, and topics and partitions in their answers; all if left out"
    )

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        """Answers are read."""
        return Depth.BODY if direction == "response" and key in DESCRIBING else Depth.NOTHING

    def selects(self, exchange: Exchange, entity: Entity) -> bool:
        """Whether a topic or partition of the answer is meant."""
        return selects(self.match, self.not_, exchange, entity)


class PartitionRule(DescribingRule):
    """Changes what is said of single partitions."""

    def change(self, partition: dict[str, Any], exchange: Exchange) -> bool:
        """Change a partition's dict; whether anything is another now."""
        raise NotImplementedError

    def start(self) -> Effect:
        return PartitionChanges(self)


class PartitionChanges(Effect):
    """Goes through the partitions of an answer."""

    def __init__(self, rule: PartitionRule) -> None:
        self.rule = rule

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        """Change those that are selected."""
        changed = [
            self.rule.change(place.body, exchange)
            for topic, entry in topics_of_answer(exchange)
            for place in partitions_of_topic(exchange.api.key, topic, entry)
            if self.rule.selects(exchange, place.entity)
        ]
        return (Edit(),) if any(changed) else ()


class WholeTopicRule(DescribingRule):
    """Is about whole topics."""

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """No partition can be selected then."""
        match = raw.get("match")
        if isinstance(match, dict) and "partition" in match:
            yield ("match", "partition", KEY), '"partition" cannot be selected on here: the rule is about whole topics'


class TopicRule(WholeTopicRule):
    """Changes what is said of whole topics."""

    def change(self, topic: dict[str, Any], exchange: Exchange) -> bool:
        """Change a topic's dict; whether anything is another now."""
        raise NotImplementedError

    def start(self) -> Effect:
        return TopicChanges(self)


class TopicChanges(Effect):
    """Goes through the topics of an answer."""

    def __init__(self, rule: TopicRule) -> None:
        self.rule = rule

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        """Change those that are selected and that the broker knows."""
        changed = [
            self.rule.change(entry, exchange)
            for topic, entry in topics_of_answer(exchange)
            if entry["error_code"] == 0 and self.rule.selects(exchange, topic)
        ]
        return (Edit(),) if any(changed) else ()
