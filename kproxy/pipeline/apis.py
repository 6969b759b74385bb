"""APIs by what they are about, under the names that events give them."""

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
"""APIs by which members belong to groups, in the protocols before and after KIP-848, KIP-932, KIP-1071."""
