"""rebalance: group members that join again, now or at an interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.protocol.table.api_keys import HEARTBEAT, NEW_HEARTBEATS
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, Fail
from kproxy.rules.kinds.base.message_rule import RequestRule
from kproxy.rules.kinds.base.rule import Decisions, Effect
from kproxy.rules.shared_numbers import Remembered, RememberedNumbers
from kproxy.rules.values.quantities import Seconds

REBALANCE_IN_PROGRESS, FENCED_MEMBER_EPOCH = 27, 110
MOST_GROUPS, MOST_MEMBERS = 10_000, 100_000
"""Remembered groups, and members of all groups; beyond that the least recently used one is evicted."""


class Rebalance(RequestRule):
    """Makes the members of a group join again: at each heartbeat that it fires for, or at an interval.

    Members of the classic protocol receive REBALANCE_IN_PROGRESS in heartbeats. They revoke their partitions (all of
    them, or with a cooperative assignor none yet) and join again. When the leader of the group joins, the broker
    rebalances the group. Members of the newer protocols (KIP-848, KIP-932, KIP-1071) receive FENCED_MEMBER_EPOCH, lose
    all partitions and join again. The broker does not see these heartbeats. `when` counts all heartbeats; heartbeats
    that join or leave in the newer protocols pass.
    """

    apis: ClassVar = dict.fromkeys((HEARTBEAT, *NEW_HEARTBEATS), 0)
    group = "groups, offsets and transactions"
    example: ClassVar[str] = """\
- name: a storm of rebalances
  kind: rebalance
  match: {group: billing}
  every: 10s
"""

    kind: Literal["rebalance"] = Field(description="kind of the rule")
    every: Seconds | None = Field(
        default=None,
        gt=0,
        description="interval of rejoins of each member, from the group's first heartbeat (default: at every "
        "heartbeat that matches)",
    )

    def start(self) -> Effect:
        return Rebalances(self.every)


class Rebalances(Effect):
    """Effect that responds to heartbeats instead of the coordinator.

    Remembered per group: time of the first heartbeat, current period, and generation (-1: none). Per member: the period
    of its last REBALANCE_IN_PROGRESS.
    """

    def __init__(self, every: float | None) -> None:
        self.every = every
        self.groups, self.members = Remembered(self, MOST_GROUPS), Remembered(self, MOST_MEMBERS)

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        body = exchange.request.body
        if exchange.api.key == HEARTBEAT:
            due = self.due(body["group_id"], body["member_id"], now, body["generation_id"])
            return (Fail(REBALANCE_IN_PROGRESS),) if due else ()
        if body["member_epoch"] <= 0:  # it is joining (0) or leaving (below)
            return ()
        return (Fail(FENCED_MEMBER_EPOCH),) if self.due(body["group_id"], body["member_id"], now) else ()

    def due(self, group: str, member: str, now: float, generation: int | None = None) -> bool:
        """Return True if this member has to join again. A member of a later generation has already joined again."""
        if self.every is None:
            return True
        every, own = self.every, -1.0 if generation is None else float(generation)

        def later(before: RememberedNumbers | None) -> RememberedNumbers:
            began, period, told_generation = before[:3] if before is not None else (now, 0.0, -1.0)
            at = float(int((now - began) / every))
            return (began, at, own) if at > period else (began, period, told_generation)

        def tell(before: RememberedNumbers | None) -> RememberedNumbers | None:
            return None if before is not None and before[0] == period else (period,)

        _, period, told_generation = self.groups.change((group,), now, later) or (now, 0.0, -1.0)
        if not period or (own >= 0 and told_generation >= 0 and own > told_generation):
            return False
        return self.members.change((group, member), now, tell) is not None
