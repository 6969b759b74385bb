"""drop_records: records that are lost."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.records import Producer
from kproxy.protocol.records.entry import CODEC
from kproxy.protocol.table import schema

PRODUCE, FETCH = 0, 1
ODD = "kind: drop_records\noffsets: [6, 8]"


def test_what_is_read_lacks_them(carried: Any, form: dict[str, int]) -> None:
    """The others keep their offsets, in every format and codec."""
    talk = carried(ODD)
    part = talk.fetched(talk.batch("a", "b", "c", "d", "e", **form))

    assert talk.read(part["records"]) == [(5, "a"), (7, "c"), (9, "e")]


def test_what_is_written_is_numbered_anew(carried: Any, form: dict[str, int]) -> None:
    """The broker gets a batch without gaps, as it wants one."""
    talk = carried("kind: drop_records\nat: produce\noffsets: 1")
    got = talk.produced(talk.batch("a", "b", "c", first=0, **form), version=9)

    values = [value for _, value in talk.read(got)]
    if form["magic"] == 2 or form["codec"]:
        assert talk.read(got) == [(0, "a"), (1, "c")]
    assert values == ["a", "c"]


@pytest.mark.parametrize("version", schema.load(FETCH).versions)
def test_every_version_of_fetch(carried: Any, version: int) -> None:
    """By name and by id."""
    talk = carried("kind: drop_records\nmatch: {topic: orders}\noffsets: 5")

    assert talk.read(talk.fetched(talk.batch("a", "b"), version)["records"]) == [(6, "b")]


@pytest.mark.parametrize("codec", range(5))
def test_all_of_a_batch(carried: Any, codec: int) -> None:
    """What is read is an empty batch that ends at the same offset, as after compaction, with no codec."""
    talk = carried("kind: drop_records")
    batch = talk.batch("a", "b", codec=codec)
    part = talk.fetched(batch)

    assert talk.read(part["records"]) == []
    assert bytes(part["records"][:8]) == batch[:8]
    assert bytes(part["records"][23:27]) == batch[23:27]
    assert part["records"][22] & CODEC == 0


def test_all_that_is_written(carried: Any) -> None:
    """The producer is told that all went well, and the broker gets nothing."""
    talk = carried("kind: drop_records\nat: produce")
    assert talk.produced(talk.batch("a", "b", first=0)) is None

    (topic,) = talk.received(PRODUCE, 9)["responses"]
    assert [(part["index"], part["error_code"]) for part in topic["partition_responses"]] == [(0, 0)]


def test_all_that_is_written_without_acks(carried: Any) -> None:
    """Nothing goes to the broker, nothing comes back, and the connection lives."""
    talk = carried("kind: drop_records\nmatch: {topic: orders}\nat: produce")
    assert talk.produced(talk.batch("a", first=0), acks=0) is None
    data = [
        {"name": name, "partition_data": [{"index": 0, "records": talk.batch("a", first=0)}]}
        for name in ("orders", "clicks")
    ]
    seen = talk.ask(PRODUCE, 9, acks=0, topic_data=data)

    assert [topic["name"] for topic in seen["topic_data"]] == ["clicks"]
    assert talk.talk.closed is None


def test_idempotent_producers_are_left_alone(carried: Any) -> None:
    """Their records are counted, the next batch would be refused; the rule says so when it loads."""
    talk = carried("kind: drop_records\nat: produce\noffsets: 0")
    batch = talk.batch("a", "b", first=0, producer=Producer(7, 0, 0))

    assert talk.produced(batch) == batch
    assert "idempotent" in "".join(talk.talk.rules.live[0].rule.warnings())


def test_a_share_of_them(carried: Any) -> None:
    """The same seed takes the same ones, about as many as it says; another seed takes others."""
    batch = carried.batch(*(f"v{number}" for number in range(1000)), first=0)
    kept = [
        carried.read(carried(f"kind: drop_records\nfraction: 0.2\nseed: {seed}").fetched(batch)["records"])
        for seed in (1, 1, 2)
    ]

    assert kept[0] == kept[1] != kept[2]
    assert 750 < len(kept[0]) < 850


def test_control_batches_stay(carried: Any) -> None:
    """They are the brokers' own."""
    talk = carried("kind: drop_records")
    control = talk.batch("marker", control=True)

    assert bytes(talk.fetched(control)["records"]) == control
    assert talk.rule.applied == 0


@pytest.mark.parametrize("cut", [1, 20, 70])
def test_a_cut_batch_at_the_end_stays(carried: Any, cut: int) -> None:
    """Brokers send whole bytes, not whole batches."""
    talk = carried(ODD)
    rest = talk.batch("x", first=7)[:cut]
    part = talk.fetched(talk.batch("a", "b") + rest)

    assert bytes(part["records"]).endswith(rest)
    assert talk.read(bytes(part["records"])[: -len(rest)]) == [(5, "a")]
