"""Who reads each topic."""

READ = {"topic": "orders", "partition": 0, "client_id": "ship", "api": "Fetch"}


def test_reads_are_summed_by_topic_and_client(answer):
    """Fetches that brought nothing count as requests and as empty; errors bring nothing."""
    rows = [
        {**READ, "records": 5, "bytes": 500, "empty": 0},
        {**READ, "detail": "summary", "count": 60, "records": 30, "bytes": 3000, "empty": 50},
        {**READ, "count": 3, "error": "OFFSET_OUT_OF_RANGE"},
    ]
    [row] = answer("topic_consumers", fetch_partitions=rows)

    assert (64, 50, 35, 3500, 3) == (row["requests"], row["empty"], row["records"], row["bytes"], row["errors"])
