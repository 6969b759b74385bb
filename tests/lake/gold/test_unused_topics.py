"""Topics that nobody writes to, or nobody reads."""

NAMES = ("both", "written", "read", "nobody", "__consumer_offsets")


def told(time, *names):
    topics = [{"topic": name, "topic_id": f"id-{name}", "internal": name[0] == "_", "partitions": 3} for name in names]
    return {"time": time, "topics": topics}


def test_verdicts(answer):
    """Topics of the last state that the cluster told, by what was done with them through kproxy under the broker's
    name; what it told earlier and no more is gone. Failed writes are no use."""
    topology = [
        told("2026-11-19 10:00:00", *NAMES, "old"),
        told("2026-11-20 10:00:00", *NAMES[:3]),
        told("2026-11-20 10:00:20", *NAMES[3:]),
    ]
    write = {"api": "Produce", "partition": 0, "records": 4}
    writes = [
        {**write, "topic": "both"},
        {**write, "topic": "w", "broker_topic": "written"},
        {**write, "topic": "nobody", "error": "TOPIC_AUTHORIZATION_FAILED"},
    ]
    reads = [{**write, "api": "Fetch", "topic": name, "count": 5} for name in ("both", "read", "elsewhere")]
    rows = answer("unused_topics", topology=topology, produce_partitions=writes, fetch_partitions=reads)
    found = {row["topic"]: row for row in rows}

    assert {
        "both": "in use", "w": "never read", "read": "never written", "nobody": "unused",
        "__consumer_offsets": "internal", "old": "gone", "elsewhere": "never written",
    } == {topic: row["verdict"] for topic, row in found.items()}  # fmt: skip
    assert (3, "id-both", True, 4, 4) == tuple(
        found["both"][name] for name in ("partitions", "topic_id", "known", "records_written", "records_read")
    )
    assert found["w"]["broker_topic"] == "written"
    assert (False, False) == (found["old"]["known"], found["elsewhere"]["known"])
