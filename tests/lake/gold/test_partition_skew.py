"""How evenly topics are spread."""

from statistics import mean, pstdev

import pytest


def test_partitions_that_got_nothing_count(answer):
    """How many there are is what the cluster told, or what was seen if that is more; names are the broker's."""
    writes = [
        {
            "api": "Produce",
            "topic": "t",
            "broker_topic": "eu.t",
            "partition": n,
            "records": records,
            "bytes": 10,
            "count": 3,
        }
        for n, records in ((0, 60), (2, 20), (0, 10))
    ]
    writes.append({"api": "Produce", "topic": "eu.t", "partition": 1, "records": 99, "error": "CORRUPT_MESSAGE"})
    writes.append({"api": "Produce", "topic": "u", "partition": 4, "records": 5, "bytes": 5})
    reads = [{"api": "Fetch", "topic": "eu.t", "partition": 1, "records": 8, "bytes": 80}]
    topology = [{"topics": [{"topic": "eu.t", "partitions": 4}, {"topic": "idle", "partitions": 9}]}]
    rows = answer("partition_skew", produce_partitions=writes, fetch_partitions=reads, topology=topology)
    found = {row["topic"]: row for row in rows}

    skewed, values = found["eu.t"], [70, 0, 20, 0]
    assert {"t": "eu.t", "eu.t": "eu.t", "u": "u"} == {name: row["broker_topic"] for name, row in found.items()}
    assert skewed | {"topic": "t"} == found["t"]
    assert (4, 90, 30, 0, 70) == tuple(
        skewed[name] for name in ("partitions", "records", "bytes", "largest_partition", "largest_records")
    )
    assert pytest.approx(70 / mean(values)) == skewed["records_max_to_mean"]
    assert pytest.approx(pstdev(values) / mean(values)) == skewed["records_variation"]
    assert (8, 4.0) == (skewed["records_read"], skewed["records_read_max_to_mean"])
    assert (5, 5.0, 2.0) == tuple(
        found["u"][name] for name in ("partitions", "records_max_to_mean", "records_variation")
    )


def test_an_even_topic_has_no_variation(answer):
    """Whatever the sums are, rounding makes no variance below zero."""
    writes = [{"api": "Produce", "topic": "t", "partition": n, "records": 333333333, "bytes": 7} for n in range(3)]
    [row] = answer("partition_skew", produce_partitions=writes)

    assert (1.0, 0.0) == (row["records_max_to_mean"], pytest.approx(row["records_variation"], abs=1e-6))
