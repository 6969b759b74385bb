"""rebalance: the members of a group have to join again, now or every so often."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.bodies.apis import HEARTBEAT, NEW_HEARTBEATS
from kproxy.rules.decision import Fail
from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base import Direction
from kproxy.rules.kinds.live import Decisions, Effect
from kproxy.rules.kinds.reading import SelectingRule
from kproxy.rules.units import Seconds

REBALANCE_IN_PROGRESS, FENCED_MEMBER_EPOCH = 27, 110
MOST_GROUPS = 10_000
"""Groups that are kept in mind; the one that was quiet for the longest starts anew."""


class Rebalance(SelectingRule):
    """Makes the members of a group join again: once a heartbeat that it fires for, or `every` so often.

    Members of the classic protocol are told REBALANCE_IN_PROGRESS by their heartbeat. They give up their partitions
    (all of them, or with a cooperative assignor none yet) and join again; when the leader of the group does, the broker
    rebalances it. Members of the newer protocols (KIP-848, KIP-932, KIP-1071) cannot be told so. They get
    FENCED_MEMBER_EPOCH, on which they lose all they had and join anew. The broker does not see these heartbeats. `when`
    counts all heartbeats; to those with which a member of the newer protocols joins or leaves nothing is done.
    """

    example: ClassVar[str] = """\
- name: a storm of rebalances
  kind: rebalance
  match: {group: billing}
  every: 10s
"""

    kind: Literal["rebalance"] = Field(description="what the rule does")
    every: Seconds | None = Field(
        default=None,
        gt=0,
        description="each member is told once in such a time, counted from the group's first heartbeat; "
        "by default every heartbeat that the rule fires for",
    )

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        beats = key == HEARTBEAT or key in NEW_HEARTBEATS
        return Depth.BODY if direction == "request" and beats else Depth.NOTHING

    def start(self) -> Effect:
        return Rebalances(self.every)


@dataclass(slots=True)
class Storm:
    """One group: when it was first heard of, in which period it is, whom it told in it, and in which generation."""

    began: float
    period: int = 0
    generation: int | None = None
    told: set[str] = field(default_factory=set)


class Rebalances(Effect):
    """Answers heartbeats in the coordinator's place."""

    def __init__(self, every: float | None) -> None:
        self.every = every
        self.storms: OrderedDict[str, Storm] = OrderedDict()

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        body = exchange.request.body
        if exchange.api.key == HEARTBEAT:
            told = self.due(body["group_id"], body["member_id"], now, body["generation_id"])
            return (Fail(REBALANCE_IN_PROGRESS),) if told else ()
        if body["member_epoch"] <= 0:  # it is joining (0) or leaving (below)
            return ()
        return (Fail(FENCED_MEMBER_EPOCH),) if self.due(body["group_id"], body["member_id"], now) else ()

    def due(self, group: str, member: str, now: float, generation: int | None = None) -> bool:
        """Whether this member is told now. One of a later generation has joined again since the others were told."""
        if self.every is None:
            return True
        storm = self.storm(group, now)
        period = int((now - storm.began) / self.every)
        if period > storm.period:
            storm.period, storm.generation, storm.told = period, generation, set()
        if not period or member in storm.told:
            return False
        if generation is not None and storm.generation is not None and generation > storm.generation:
            return False
        storm.told.add(member)
        return True

    def storm(self, group: str, now: float) -> Storm:
        if group not in self.storms:
            if len(self.storms) >= MOST_GROUPS:
                self.storms.popitem(last=False)
            self.storms[group] = Storm(now)
        self.storms.move_to_end(group)
        return self.storms[group]
