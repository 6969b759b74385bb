"""How far groups are behind, and commits that went back."""


def commit(time, offset, **more):
    given = {"api": "OffsetCommit", "group": "g", "topic": "t", "partition": 0, "committed_offset": offset}
    return {"time": f"2026-11-{time}", **given, **more}


def test_lag_is_the_end_of_the_log_less_the_last_commit(answer):
    """By the broker's names, by the time of the event; the end is a high watermark, or the end of what was written."""
    commits = [
        commit("20 10:00:00", 10),
        commit("20 11:00:00", 40),
        commit("20 10:30:00", 30),
        commit("20 12:00:00", 99, error="ILLEGAL_GENERATION"),
        commit("20 10:00:00", 7, partition=1),
        commit("20 10:00:00", 7, topic="u", broker_topic="eu.u"),
    ]
    reads = [
        {"api": "Fetch", "topic": "t", "partition": 0, "high_watermark": 41, "time": "2026-11-19 10:00:00"},
        {"api": "Fetch", "topic": "t", "partition": 0, "high_watermark": 100, "time": "2026-11-20 10:00:00"},
        {"api": "Fetch", "topic": "u", "partition": 0, "high_watermark": 1000},
    ]
    writes = [{"api": "Produce", "topic": "x", "broker_topic": "eu.u", "partition": 0, "last_offset": 9}]
    rows = answer("group_lag", commits=commits, fetch_partitions=reads, produce_partitions=writes)
    found = {(row["topic"], row["partition"]): row for row in rows}

    assert {("t", 0): (40, 100, 60), ("t", 1): (7, None, None), ("u", 0): (7, 10, 3)} == {
        key: (row["committed_offset"], row.get("log_end"), row.get("lag")) for key, row in found.items()
    }
    assert (3, 0, "2026-11-20 11:00:00") == (
        found["t", 0]["commits"], found["t", 0]["commits_back"], str(found["t", 0]["committed_at"]),
    )  # fmt: skip


def test_commits_back_are_those_below_the_one_before(answer):
    """Within a day and over midnight, also over days without any; never behind the end, however old that is."""
    commits = [
        commit("18 10:00:00", 10),
        commit("18 10:00:01", 20),
        commit("18 10:00:02", 15),
        commit("18 10:00:03", 15),
        commit("20 10:00:00", 14),
        commit("20 10:00:01", 50),
        commit("21 10:00:00", 50),
        commit("21 10:00:00", 5, group="other"),
    ]
    reads = [{"api": "Fetch", "topic": "t", "partition": 0, "high_watermark": 30, "time": "2026-11-18 10:00:00"}]
    found = {row["group"]: row for row in answer("group_lag", commits=commits, fetch_partitions=reads)}

    assert {"g": (7, 2, 0), "other": (1, 0, 25)} == {
        group: (row["commits"], row["commits_back"], row["lag"]) for group, row in found.items()
    }
