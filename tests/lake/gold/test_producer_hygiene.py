"""How producers are set."""

import pytest

WRITE = {
    "api": "Produce",
    "client_id": "a",
    "topic": "t",
    "partition": 0,
    "acks": -1,
    "idempotent": True,
    "codec": "lz4",
}


def test_parts_and_means_are_weighed_by_requests(answer):
    """Acks over all writes; idempotence and compression over those that could be read; records per request over all
    topics of the client."""
    writes = [
        {**WRITE, "count": 6, "records": 60, "bytes": 6000, "batches": 6},
        {
            **WRITE,
            "count": 2,
            "records": 20,
            "bytes": 20000,
            "batches": 2,
            "acks": 1,
            "idempotent": False,
            "codec": "none",
        },
        {**WRITE, "count": 2, "acks": 0, "idempotent": None, "codec": None, "error": "CORRUPT_MESSAGE"},
        {**WRITE, "topic": "u", "records": 20, "bytes": 2, "batches": 1},
    ]
    requests = [{"api": "Produce", "client_id": "a", "count": 4}, {"api": "Fetch", "client_id": "a", "count": 99}]
    found = {row["topic"]: row for row in answer("producer_hygiene", produce_partitions=writes, requests=requests)}

    names = ("acks_0", "acks_1", "idempotent", "uncompressed", "batch_records", "batch_bytes", "records_per_request")
    assert (0.2, 0.2, 0.75, 0.25, 10.0, 3250.0, 25.0) == tuple(found["t"][name] for name in names)
    assert (["lz4", "none"], 10, 80) == (found["t"]["codecs"], found["t"]["writes"], found["t"]["records"])
    assert (["acks=0", "acks=1", "not idempotent"], []) == (found["t"]["findings"], found["u"]["findings"])


@pytest.mark.parametrize(
    ("batches", "size", "expected"),
    [(100, 1023, ["tiny batches"]), (99, 1023, []), (100, 1024, []), (100, 1_000_001, ["huge batches"])],
)
def test_sizes_of_batches_are_judged_when_there_are_enough(answer, batches, size, expected):
    """A mean of few batches says nothing."""
    rows = [{**WRITE, "batches": batches, "records": batches, "bytes": batches * size}]
    [row] = answer("producer_hygiene", produce_partitions=rows)

    assert expected == row["findings"]
