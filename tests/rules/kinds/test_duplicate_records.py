"""duplicate_records: records that are there twice."""

from __future__ import annotations

from typing import Any

from kproxy.protocol.records import Producer


def test_what_is_written_is_stored_twice(carried: Any, form: dict[str, int]) -> None:
    """The copy stands behind its original, and the batch is numbered without gaps."""
    talk = carried("kind: duplicate_records\nat: produce\noffsets: 1")
    got = talk.produced(talk.batch("a", "b", "c", first=0, **form))

    assert [value for _, value in talk.read(got)] == ["a", "b", "b", "c"]
    if form["magic"] == 2 or form["codec"]:
        assert [offset for offset, _ in talk.read(got)] == [0, 1, 2, 3]


def test_what_is_read_is_read_twice(carried: Any, form: dict[str, int]) -> None:
    """The copy has the offset of its original."""
    talk = carried("kind: duplicate_records\noffsets: 6\ncopies: 2")
    part = talk.fetched(talk.batch("a", "b", "c", **form))

    assert talk.read(part["records"]) == [(5, "a"), (6, "b"), (6, "b"), (6, "b"), (7, "c")]


def test_idempotent_producers_are_left_alone(carried: Any) -> None:
    """Their records are counted; what they read is doubled all the same."""
    talk = carried("kind: duplicate_records\nat: produce")
    batch = talk.batch("a", first=0, producer=Producer(7, 0, 0))
    assert talk.produced(batch) == batch

    talk = carried("kind: duplicate_records")
    assert talk.read(talk.fetched(batch)["records"]) == [(0, "a"), (0, "a")]


def test_it_says_who_does_not_notice(carried: Any) -> None:
    """Both ways have somebody whom it does nothing to."""
    warned = [
        next(iter(carried(f"kind: duplicate_records\nat: {at}").talk.rules.live[0].rule.warnings()))
        for at in ("produce", "fetch")
    ]

    assert "idempotent" in warned[0]
    assert "offsets" in warned[1]
