"""preferred_replica: consumers are sent elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.records import Record, encode_batch
from kproxy.protocol.table import schema
from kproxy.rules.exchange import Facts

FETCH = 1
VERSIONS = [version for version in schema.load(FETCH).versions if 11 <= version <= 12]
RECORDS = encode_batch([Record(0, 0, None, b"v")])


def fetched(dialogue: Any, version: int, facts: Facts) -> tuple[list[tuple[int, bytes]], Any]:
    """(preferred replica, records) of two topics, of which the first is meant."""
    talk = dialogue("kind: preferred_replica\nmatch: {topic: orders}\nnode: 9", facts=facts)
    talk.ask(
        FETCH, version, topics=[{"topic": name, "partitions": [{"partition": 0}]} for name in ("orders", "clicks")]
    )
    found = [
        {"topic": name, "partitions": [{"partition_index": 0, "records": RECORDS, "high_watermark": 1}]}
        for name in ("orders", "clicks")
    ]
    body = talk.answer(FETCH, version, responses=found)
    parts = [topic["partitions"][0] for topic in body["responses"]]
    return [(part["preferred_read_replica"], bytes(part["records"])) for part in parts], talk.rule


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_names_the_replica_and_has_no_records(dialogue: Any, version: int) -> None:
    """The other topic's records are there."""
    seen, _ = fetched(dialogue, version, Facts("main", "main", "10.0.0.1", node=1))

    assert seen == [(9, b""), (-1, RECORDS)]


def test_that_broker_itself_gives_its_records(dialogue: Any) -> None:
    """Who has come there is not sent there."""
    seen, rule = fetched(dialogue, 11, Facts("main", "main", "10.0.0.1", node=9))

    assert seen == [(-1, RECORDS), (-1, RECORDS)]
    assert rule.applied == 0
