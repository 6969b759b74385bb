"""move_leader: partitions with another leader in Metadata."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import defer_free, yielding, yielding_sort
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.message_rule import PartitionRule


class MoveLeader(PartitionRule):
    """Tells clients that another broker leads a partition than does.

    The broker that they turn to answers NOT_LEADER_OR_FOLLOWER, with the true leader in answers that have room for it
    (KIP-951), and they ask for Metadata again. The leader epoch stays as it is: a client that has seen a higher one
    would take the truth for outdated when the rule has gone.
    """

    group = "cluster metadata"
    example: ClassVar[str] = """\
- name: the leader of orders is elsewhere
  kind: move_leader
  match: {topic: orders, partition: 0}
  when: {first: 2}
  node: 3
"""

    kind: Literal["move_leader"] = Field(description="kind of the rule")
    node: int | None = Field(
        default=None,
        description="id of the leader, existing or not (default: next replica, or next broker)",
    )

    def changer(self, exchange: Exchange) -> Callable[[dict[str, Any]], bool]:
        return LeaderChange(self.node, exchange).move


class LeaderChange:
    """Change of the leaders in one response. Broker ids are sorted once, for the first partition that needs them."""

    def __init__(self, node: int | None, exchange: Exchange) -> None:
        self.node, self.exchange = node, exchange

    def move(self, partition: dict[str, Any]) -> bool:
        """Change the partition's leader in place. Return False if it stays."""
        before = partition["leader_id"]
        if before < 0:
            return False
        partition["leader_id"] = after = self.node if self.node is not None else self.following(before, partition)
        return bool(after != before)

    @cached_property
    def brokers(self) -> list[int]:
        """Return the broker ids of the response in order, or of the connection if the response has no list."""
        listed = self.exchange.response.body.get("brokers")
        if listed is None:
            return defer_free(list(self.exchange.connection.cluster.nodes))
        return defer_free(list(yielding_sort(broker["node_id"] for broker in yielding(listed))))

    def following(self, leader: int, partition: dict[str, Any]) -> int:
        """Return the replica after the leader. Without such a replica, return the broker with the next higher id."""
        replicas: list[int] = partition["replica_nodes"]
        if len(replicas) >= 2 and leader in replicas:
            return replicas[(replicas.index(leader) + 1) % len(replicas)]
        brokers = self.brokers
        place = bisect_right(brokers, leader)
        return brokers[place % len(brokers)] if brokers else leader
