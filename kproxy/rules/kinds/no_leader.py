"""no_leader: partitions without a leader in Metadata."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.message_rule import PartitionRule

LEADER_NOT_AVAILABLE = 5
NOBODY = -1


class NoLeader(PartitionRule):
    """Shows clients a partition without a leader.

    Metadata has LEADER_NOT_AVAILABLE for it, as during an election. Clients ask again until it has a leader; records to
    produce wait. A client that knows the leader from an earlier response may continue to use it.
    """

    group = "cluster metadata"
    example: ClassVar[str] = """\
- name: orders has no leader for 20 s
  kind: no_leader
  match: {topic: orders, partition: 0}
  when: {for: 20s}
"""

    kind: Literal["no_leader"] = Field(description="kind of the rule")

    def change_partition(self, partition: dict[str, Any], exchange: Exchange) -> bool:
        before = partition["error_code"], partition["leader_id"]
        partition["error_code"], partition["leader_id"] = LEADER_NOT_AVAILABLE, NOBODY
        return before != (LEADER_NOT_AVAILABLE, NOBODY)
