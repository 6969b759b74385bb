"""move_leader: clients are told that another broker leads."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.message_rule import PartitionRule


class MoveLeader(PartitionRule):
    """Tells clients that another broker leads a partition than does.

    The broker that they turn to answers NOT_LEADER_OR_FOLLOWER, with the true leader in answers that have room for it
    (KIP-951), and they ask for Metadata again. The leader epoch stays as it is: a client that has seen a higher one
    would take the truth for outdated when the rule has gone.
    """

    group = "the cluster as clients see it"
    example: ClassVar[str] = """\
- name: the leader of orders is elsewhere
  kind: move_leader
  match: {topic: orders, partition: 0}
  when: {first: 2}
  node: 3
"""

    kind: Literal["move_leader"] = Field(description="what the rule does")
    node: int | None = Field(
        default=None,
        description="id of the broker that leads, whether there is one or not; by default the next replica, "
        "for a partition with a single replica the next broker",
    )

    def change_partition(self, partition: dict[str, Any], exchange: Exchange) -> bool:
        before = partition["leader_id"]
        if before < 0:
            return False
        partition["leader_id"] = after = self.node if self.node is not None else following(before, partition, exchange)
        return bool(after != before)


def following(leader: int, partition: dict[str, Any], exchange: Exchange) -> int:
    """Return the broker after the leader, in the order of the replicas, else of the ids."""
    nodes = list(partition["replica_nodes"])
    if len(nodes) < 2 or leader not in nodes:
        listed = exchange.response.body.get("brokers")
        ids = exchange.connection.cluster.nodes if listed is None else [broker["node_id"] for broker in listed]
        nodes = sorted({*ids, leader})
    return int(nodes[(nodes.index(leader) + 1) % len(nodes)])
