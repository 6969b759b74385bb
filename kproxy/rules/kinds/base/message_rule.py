"""Base classes of kinds that change requests or responses: any message, topics and partitions in Metadata and
DescribeTopicPartitions, committed offsets in OffsetFetch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from kproxy.base.cooperative import yield_point, yielding
from kproxy.protocol.elements import Topic, topics
from kproxy.protocol.table.api_keys import OFFSET_FETCH
from kproxy.rules.bodies import DESCRIBING, partition_bodies, topic_entity, topics_of_answer
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange, FrameDepth
from kproxy.rules.select.frame_match import AnswerMatch, selects
from kproxy.rules.values.model import KEY, Wrong

from .rule import Decisions, Direction, Effect, SelectingRule


class MessageRule(SelectingRule):
    """Rule that changes fields of messages in one direction. Override `apis`, and `change`, or `start` for
    a rule with a memory."""

    changes: ClassVar[Direction]
    apis: ClassVar[Mapping[int, int]] = {}
    """API keys, each with the first version that it changes."""

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        wanted = direction == self.changes and key in self.apis and version >= self.apis[key]
        return FrameDepth.BODY if wanted else FrameDepth.NOTHING

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        """Change the message's body in place for the entities that matched. Return False if nothing changed."""
        raise NotImplementedError

    def decide(self, exchange: Exchange, entities: Sequence[Entity]) -> Decisions:
        """Return the decisions about the message. Override for decisions other than an edit."""
        return (Edit(),) if self.change(exchange, entities) else ()

    def start(self) -> Effect:
        return MessageEffect(self)


class RequestRule(MessageRule):
    """Rule that changes `exchange.request.body`."""

    changes = "request"


class ResponseRule(MessageRule):
    """Rule that changes `exchange.response.body`."""

    changes = "response"


class MessageEffect(Effect):
    """Effect that asks its rule for each message in the direction that the rule changes."""

    def __init__(self, rule: MessageRule) -> None:
        self.rule = rule

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.rule.decide(exchange, entities) if self.rule.changes == "request" else ()

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.rule.decide(exchange, entities) if self.rule.changes == "response" else ()


class MetadataRule(ResponseRule):
    """Rule that changes topics in responses. Its topic and partition selectors apply to the response."""

    apis: ClassVar = dict.fromkeys(DESCRIBING, 0)
    of_answers: ClassVar = True

    match: AnswerMatch | None = Field(
        default=None, description="frames, and topics and partitions of their responses (default: all)"
    )

    def selects(self, exchange: Exchange, entity: Entity) -> bool:
        """Return True if the selectors hold for a topic or partition of the answer."""
        return selects(self.match, self.not_, exchange, entity)


class PartitionRule(MetadataRule):
    """Rule that changes single partitions in responses. Override `change_partition`.

    Override `changer` instead if all partitions of a response share a value that costs a walk of the response.
    """

    def change_partition(self, partition: dict[str, Any], exchange: Exchange) -> bool:
        """Change a partition's dict in place. Return False if nothing changed."""
        raise NotImplementedError

    def changer(self, exchange: Exchange) -> Callable[[dict[str, Any]], bool]:
        return lambda partition: self.change_partition(partition, exchange)

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        change = self.changer(exchange)
        changed = [
            change(place.body)
            for place in partition_bodies(exchange.response, exchange)
            if self.selects(exchange, place.entity)
        ]
        return any(changed)


class WholeTopicRule(MetadataRule):
    """Rule that changes whole topics in responses. Override `change`, or use `TopicRule`."""

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
        """Change each selected topic without an error."""
        changed = [
            self.change_topic(entry, exchange)
            for topic, entry in topics_of_answer(exchange)
            if entry["error_code"] == 0 and self.selects(exchange, topic)
        ]
        return any(changed)


UNCOMMITTED = -1


class OffsetsRule(ResponseRule):
    """Rule that changes committed offsets in responses to OffsetFetch. Override `change_offset`."""

    apis: ClassVar = {OFFSET_FETCH: 0}
    of_answers: ClassVar = True

    match: AnswerMatch | None = Field(
        default=None, description="frames, and topics and partitions of their responses (default: all)"
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
            yield_point()
            number = partition["partition_index"]
            entity = Entity(whole.topic, whole.topic_id, number, group=group.group, member=group.member)
            selected = selects(self.match, self.not_, exchange, entity)
            after = self.change_offset(partition) if selected else partition
            if after is not None:
                kept.append(after)
        if len(kept) == len(before) and all(new is old for new, old in yielding(zip(kept, before, strict=True))):
            return False
        topic.fields["partitions"] = kept
        return True
