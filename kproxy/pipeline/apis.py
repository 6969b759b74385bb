"""Which APIs are about what, by the names that events give them."""

from __future__ import annotations

WRITES = ("Produce",)
READS = ("Fetch", "ShareFetch")
COMMITS = ("OffsetCommit", "TxnOffsetCommit")
GROUPS = (
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "ConsumerGroupHeartbeat",
    "ShareGroupHeartbeat",
    "StreamsGroupHeartbeat",
)
"""What members of groups send to belong to them, in the protocols of before and after KIP-848, KIP-932, KIP-1071."""
