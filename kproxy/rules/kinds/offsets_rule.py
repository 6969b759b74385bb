"""What kinds share that change committed offsets on their way to consumers: OffsetFetch in all its versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import Field

from kproxy.rules.answer_match import AnswerMatch, selects
from kproxy.rules.bodies.apis import OFFSET_FETCH
from kproxy.rules.bodies.topics import topic_of
from kproxy.rules.decision import Edit
from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base import Direction
from kproxy.rules.kinds.live import Decisions, Effect
from kproxy.rules.kinds.reading import SelectingRule

UNCOMMITTED = -1


class OffsetsRule(SelectingRule):
    """Acts on answers to OffsetFetch; topics and partitions are looked for in the answer."""

    match: AnswerMatch | None = Field(
        default=None, description="frames that it is for, and topics and partitions in their answers; all if left out"
    )

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        return Depth.BODY if direction == "response" and key == OFFSET_FETCH else Depth.NOTHING

    def change(self, partition: dict[str, Any]) -> dict[str, Any] | None:
        """A partition with its committed offset as it shall be, the same dict for no change, None to leave it out."""
        raise NotImplementedError

    def start(self) -> Effect:
        return OffsetChanges(self)


class OffsetChanges(Effect):
    """Goes through the committed offsets of an answer."""

    def __init__(self, rule: OffsetsRule) -> None:
        self.rule = rule

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        changed = False
        for group, topics in groups_of_answer(exchange, entities):
            for topic in topics:
                changed |= self.topic(exchange, group, topic)
        return (Edit(),) if changed else ()

    def topic(self, exchange: Exchange, group: Entity, topic: dict[str, Any]) -> bool:
        """Change the partitions of one topic of one group."""
        name, topic_id = topic_of(topic, exchange)
        kept, before = [], topic["partitions"] or []
        for partition in before:
            number = partition["partition_index"]
            entity = Entity(name, topic_id, number, group=group.group, member=group.member)
            chosen = selects(self.rule.match, self.rule.not_, exchange, entity)
            after = self.rule.change(partition) if chosen else partition
            if after is not None:
                kept.append(after)
        if len(kept) == len(before) and all(one is other for one, other in zip(kept, before, strict=True)):
            return False
        topic["partitions"] = kept
        return True


def groups_of_answer(exchange: Exchange, entities: Sequence[Entity]) -> Iterator[tuple[Entity, list[dict[str, Any]]]]:
    """Those groups of an answer that are among the entities of its request, and their topics."""
    groups = {entity.group: entity for entity in entities}
    body = exchange.response.body
    if "groups" not in body:
        for entity in list(groups.values())[:1]:
            yield entity, body["topics"] or []
        return
    for group in body["groups"] or ():
        if group["group_id"] in groups:
            yield groups[group["group_id"]], group["topics"] or []
