"""fence_producer: transactional ids that another producer has taken."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema
from kproxy.rules.kinds.fence_producer import FENCED, SAID_FROM

PRODUCE, INIT_PRODUCER_ID = 0, 22
INVALID_PRODUCER_EPOCH, PRODUCER_FENCED = 47, 90
PLACES = [(key, version) for key in sorted(FENCED) for version in schema.load(key).versions if (key, version) >= (0, 3)]


def asked(key: int, version: int, name: str | None = "transfers") -> dict[str, Any]:
    """A request of a producer that has its id, with one partition where that belongs."""
    part = [{"name": "orders", "partitions": [0]}]
    commits = [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": b"r" * 70}]}]
    values = {
        "transactional_id": name, "producer_id": 7, "topic_data": data, "group_id": "g",
        "v3_and_below_transactional_id": name, "v3_and_below_topics": part, "topics": commits,
        "transactions": [{"transactional_id": name, "topics": part}],
    }  # fmt: skip
    fields = {field.name for field in schema.load(key).request if version in field.versions}
    return {field: value for field, value in values.items() if field in fields}


def codes(body: Any) -> set[int]:
    if isinstance(body, list):
        return set().union(*map(codes, body)) if body else set()
    if not isinstance(body, dict):
        return set()
    own = {value for name, value in body.items() if name.endswith("error_code") and value}
    return own.union(*(codes(value) for value in body.values()))


@pytest.mark.parametrize(("key", "version"), [(key, version) for key, version in PLACES if version < 13 or key])
def test_with_the_error_that_a_broker_gives(dialogue: Any, key: int, version: int) -> None:
    """PRODUCER_FENCED where the version knows it, else INVALID_PRODUCER_EPOCH; the broker is not asked."""
    talk = dialogue("kind: fence_producer\nmatch: {transactional_id: transfers}")
    values = asked(key, version)
    if key == 28 and version >= 6:
        values["topics"][0].pop("name")
    starting = key == INIT_PRODUCER_ID and version < 3
    assert (talk.ask(key, version, **values) is None) == (not starting)

    if not starting:
        newer = version >= SAID_FROM.get(key, 1000)
        assert codes(talk.received(key, version)) == {PRODUCER_FENCED if newer else INVALID_PRODUCER_EPOCH}


def test_producers_without_transactions_and_new_ones_are_left_alone(dialogue: Any) -> None:
    """Without a transactional id there is nothing to be fenced from; the first id is the newer producer's."""
    talk = dialogue("kind: fence_producer")
    assert talk.ask(PRODUCE, 9, **asked(PRODUCE, 9, None)) is not None
    talk.answer(PRODUCE, 9)
    assert talk.ask(INIT_PRODUCER_ID, 4, transactional_id="transfers", producer_id=-1) is not None
