"""shift_epoch: leader epochs that are older or newer than the brokers'."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.message_rule import PartitionRule

EPOCH = "leader_epoch"
HIGHEST = 2**31 - 1


class ShiftEpoch(PartitionRule):
    """Moves the leader epochs in responses to clients, back or forward.

    Consumers send the epoch in requests: brokers reject an older one with FENCED_LEADER_EPOCH, a newer one with
    UNKNOWN_LEADER_EPOCH (KIP-320). A client keeps the highest epoch and ignores Metadata with an older one. So after a
    shift forward, it ignores true epochs until they are higher, or until it restarts. Metadata before version 7 has no
    epochs. No epoch becomes negative.
    """

    group = "cluster metadata"
    example: ClassVar[str] = """\
- name: metadata from before the last election
  kind: shift_epoch
  match: {topic: orders}
  offset_by: -1
"""

    kind: Literal["shift_epoch"] = Field(description="kind of the rule")
    offset_by: int = Field(ge=-HIGHEST, le=HIGHEST, description="added to each leader epoch")

    def change_partition(self, partition: dict[str, Any], exchange: Exchange) -> bool:
        before = partition.get(EPOCH, -1)
        if before < 0:
            return False
        partition[EPOCH] = after = min(max(before + self.offset_by, 0), HIGHEST)
        return bool(after != before)
