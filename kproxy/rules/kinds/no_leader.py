"""no_leader: partitions without a leader in Metadata."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.message_rule import PartitionRule

LEADER_NOT_AVAILABLE = 5
NOBODY = -1


class NoLeader(PartitionRule):
    """Tells clients that a partition has no leader.

    They get LEADER_NOT_AVAILABLE for it in Metadata, as during an election, and ask again until it has one; what they
    want to produce waits. A client that knows the leader from an earlier answer may go on using it.
    """

    group = "the cluster as clients see it"
    example: ClassVar[str] = """\
- name: orders has no leader for 20 s
  kind: no_leader
  match: {topic: orders, partition: 0}
  when: {for: 20s}
"""

    kind: Literal["no_leader"] = Field(description="what the rule does")

    def change_partition(self, partition: dict[str, Any], exchange: Exchange) -> bool:
        before = partition["error_code"], partition["leader_id"]
        partition["error_code"], partition["leader_id"] = LEADER_NOT_AVAILABLE, NOBODY
        return before != (LEADER_NOT_AVAILABLE, NOBODY)
