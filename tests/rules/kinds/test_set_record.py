"""set_record: parts of records that become others."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.records import Record, check_crc, decode, encode_batch, encode_message_set, entries

BEFORE = Record(5, 10_000, b"key", b"\0\0\0\0\x07data", (("trace", b"1"), ("other", None)))


def changed(carried: Any, rule: str, before: Record = BEFORE) -> Record:
    (entry,) = entries(carried(f"kind: set_record\n{rule}").fetched(encode_batch([before]))["records"])
    check_crc(entry)
    (record,) = decode(entry)
    return record


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("value: null", {"value": None}),
        ("key: null", {"key": None}),
        ("value: other", {"value": b"other"}),
        ("key: größe", {"key": "größe".encode()}),
        ("headers: {}", {"headers": ()}),
        ("headers: {trace: null}", {"headers": (("other", None),)}),
        ("headers: {trace: two, new: x}", {"headers": (("other", None), ("trace", b"two"), ("new", b"x"))}),
        ("timestamp_by: 1h", {"timestamp": 3_610_000}),
        ("timestamp_by: -3s", {"timestamp": 7_000}),
        ("timestamp_by: -1h", {"timestamp": 0}),
        ("schema_id: 258", {"value": b"\0\0\0\x01\x02data"}),
    ],
)
def test_what_is_named_changes_and_the_rest_stays(carried: Any, rule: str, expected: dict[str, Any]) -> None:
    """Tombstones, keys, headers, timestamps, schema ids."""
    after = changed(carried, rule)

    for name in ("offset", "timestamp", "key", "value", "headers"):
        assert getattr(after, name) == expected.get(name, getattr(BEFORE, name))


def test_values_that_have_no_schema_id(carried: Any) -> None:
    """What does not begin like Confluent's wire format stays."""
    for value in (None, b"", b"\0\0\0", b"text that is long enough"):
        assert changed(carried, "schema_id: 9", Record(5, 0, None, value)).value == value


def test_every_format(carried: Any, form: dict[str, int]) -> None:
    """Both ways; headers cannot be set where the format has none."""
    for at in ("fetch", "produce"):
        talk = carried(f"kind: set_record\nat: {at}\nvalue: null")
        batch = talk.batch("a", "b", first=0, **form)
        after = talk.fetched(batch)["records"] if at == "fetch" else talk.produced(batch)
        assert [value for _, value in talk.read(after)] == [None, None]


def test_headers_of_formats_without_any(carried: Any) -> None:
    """The message stays as it is."""
    before = encode_message_set([Record(5, 1, b"k", b"v")], 1)

    assert bytes(carried("kind: set_record\nheaders: {a: b}").fetched(before)["records"]) == before


def test_what_cannot_be_meant(mistakes_of: Any) -> None:
    """Nothing to set, and a schema id for a value that is set as a whole."""
    assert "something to set" in mistakes_of("kind: set_record")[0]
    assert "leaves nothing" in mistakes_of("kind: set_record, value: x, schema_id: 1")[0]
    assert "duration" in mistakes_of("kind: set_record, timestamp_by: -1 year")[0]
