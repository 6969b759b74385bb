"""Leader epochs."""

from __future__ import annotations

from typing import Any

from kproxy.tools.replay.request_fixes import LeaderEpochFix


def test_no_leader_epoch_is_claimed(tools: Any) -> None:
    """Of Fetch, ListOffsets and OffsetForLeaderEpoch; the epoch that the last one asks about stays."""
    fetched = {"partition": 0, "current_leader_epoch": 7, "last_fetched_epoch": 6}
    listed = {"partition_index": 0, "current_leader_epoch": 7}
    epochs = {"partition": 0, "current_leader_epoch": 7, "leader_epoch": 5}
    asked = [
        tools.asked(tools.exchange(1, 12, {"topics": [{"topic": "t", "partitions": [fetched]}]}, {})),
        tools.asked(tools.exchange(2, 6, {"topics": [{"name": "t", "partitions": [listed]}]}, {})),
        tools.asked(tools.exchange(23, 3, {"topics": [{"topic": "t", "partitions": [epochs]}]}, {})),
    ]
    for one in asked:
        LeaderEpochFix().request(one)
    fetch, lists, ends = (one.message.body["topics"][0]["partitions"][0] for one in asked)

    assert (fetch["current_leader_epoch"], fetch["last_fetched_epoch"]) == (-1, -1)
    assert lists["current_leader_epoch"] == -1
    assert (ends["current_leader_epoch"], ends["leader_epoch"]) == (-1, 5)
