"""Ids in front of values, the cache of schemas, and what conditions and viewers read with it."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.records import Record, encode_batch, entries
from kproxy.protocol.records.spans import EntrySpans
from kproxy.rules.content import schemas
from kproxy.rules.content.avro_types import SchemaError
from kproxy.rules.content.schemas import (
    Schema,
    SchemaCache,
    SchemaKey,
    SchemaNeeded,
    decoder_of,
    framing_of,
    plain_bytes,
    shown_value,
)
from kproxy.rules.filter.evaluate import RecordCondition
from kproxy.rules.filter.record_fields import UnreadableRecord

ORDER = '{"type": "record", "name": "shop.Order", "fields": [{"name": "country", "type": "string"}]}'
GUID = bytes(range(16))
GUID_KEY = SchemaKey("guid", "00010203-0405-0607-0809-0a0b0c0d0e0f")
AVRO_DE = b"\0\0\0\0\x07" + b"\x04DE"
Headers = tuple[tuple[str, bytes | None], ...]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cache() -> SchemaCache:
    made = SchemaCache(Clock())
    made.put(SchemaKey("id", "7"), Schema("AVRO", ORDER, []))
    made.put(GUID_KEY, Schema("AVRO", ORDER, []))
    made.put(SchemaKey("id", "8"), Schema("JSON", '{"title": "Order"}', []))
    made.put(SchemaKey("id", "9"), Schema("PROTOBUF", "", []))
    made.put(SchemaKey("id", "10"), None)
    made.put(SchemaKey("subjects", "7"), ("orders-value", "all"))
    return made


def view(value: bytes | None, headers: Headers = (), key: bytes | None = None) -> Any:
    spans = EntrySpans(next(entries(encode_batch([Record(0, 0, key, value, headers)]))))
    return spans, next(iter(spans))


@pytest.mark.parametrize(
    ("data", "headers", "id_bytes", "expected"),
    [
        (AVRO_DE, (), 4, ("id", "7", 5)), (AVRO_DE[:5], (), 4, ("id", "7", 5)), (AVRO_DE[:4], (), 4, None),
        (b"\x01" + AVRO_DE[1:], (), 4, None), (b"\0\xff\xff\xff\xff", (), 4, None), (b"", (), 4, None),
        (b"\0" + bytes(7) + b"\x07x", (), 8, ("id", "7", 9)),
        (b"x", (("__value_schema_id", b"\x01" + GUID),), 4, (*GUID_KEY, 0)),
        (b"x", (("__value_schema_id", b"\0\0\0\0\x07"),), 4, ("id", "7", 0)),
        (b"x", (("__value_schema_id", b"\x01" + GUID[1:]), ("__key_schema_id", b"\x01" + GUID)), 4, None),
        (b"x", (("apicurio.value.globalId", b"\0" * 7 + b"\x07"),), 4, ("id", "7", 0)),
        (b"x", (("apicurio.value.globalId", b"7"),), 4, None),
    ],
)  # fmt: skip
def test_a_framing_has_its_schema_and_start(data: bytes, headers: Headers, id_bytes: int, expected: Any) -> None:
    spans, span = view(data, headers)
    found = framing_of(data, lambda name: spans.header(span, name), "value", id_bytes)
    assert (found and (*found.key, found.start)) == expected


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("value.country == DE", AVRO_DE), ("schema_id == 7 and schema == shop.Order", AVRO_DE),
        ("subject == all and subject == orders-value and structured", AVRO_DE), ("not subject == other", AVRO_DE),
        ("value.country == DE", b'\0\0\0\0\x08{"country": "DE"}'), ("schema == Order", b"\0\0\0\0\x08{}"),
        ("value.country == DE and not schema_id", b'{"country": "DE"}'), ("not structured", b"\0\0\0\0\x09x"),
        ("not structured and not schema_id", b"\0\0\0\0\x0ax"), ("not value.x", b"text"), ("not structured", None),
    ],
)  # fmt: skip
def test_a_condition_reads_values_with_a_schema(cache: SchemaCache, condition: str, value: bytes | None) -> None:
    assert RecordCondition(condition, "auto", decoder_of(lambda: cache)).matches(*view(value))


def test_a_condition_reads_a_key_and_a_guid_in_a_header(cache: SchemaCache) -> None:
    condition = RecordCondition(
        "key.country == DE and schema_id == " + GUID_KEY.text, "auto", decoder_of(lambda: cache)
    )
    headers = (("__value_schema_id", b"\x01" + GUID), ("__key_schema_id", b"\x01" + GUID))
    assert condition.matches(*view(b"\x04FR", headers, b"\x04DE"))


def test_an_unknown_schema_is_needed_and_then_not_found(cache: SchemaCache) -> None:
    wanted: list[SchemaKey] = []
    cache.want = wanted.append
    condition = RecordCondition("value.country == DE", "auto", decoder_of(lambda: cache))
    with pytest.raises(UnreadableRecord, match="schema 11 is not loaded yet"):
        condition.matches(*view(b"\0\0\0\0\x0b\x04DE"))
    with pytest.raises(SchemaNeeded):
        cache.schema(SchemaKey("id", "11"))
    assert shown_value(b"\0\0\0\0\x0b\xff", cache=cache) == {
        "value": {"base64": "AAAAAAv/"}, "pending": True, "schema_id": 11,
    }  # fmt: skip
    assert wanted == [SchemaKey("id", "11")] * 2
    cache.put(SchemaKey("id", "11"), None)
    assert not condition.matches(*view(b"\0\0\0\0\x0b\x04DE"))
    cache.clock.now += schemas.NOT_FOUND  # type: ignore[attr-defined]
    with pytest.raises(UnreadableRecord):
        condition.matches(*view(b"\0\0\0\0\x0b\x04DE"))
    assert condition.matches(*view(AVRO_DE))


def test_the_format_avro_makes_other_values_unreadable(cache: SchemaCache) -> None:
    condition = RecordCondition("value.country == DE", "avro", decoder_of(lambda: cache))
    assert condition.matches(*view(AVRO_DE))
    with pytest.raises(UnreadableRecord, match="expected Avro with the id of a schema"):
        condition.matches(*view(b"{}"))


def test_the_cache_evicts_by_number_and_by_bytes() -> None:
    cache = SchemaCache(Clock(), most=3)
    for number in range(5):
        cache.put(SchemaKey("id", str(number)), Schema("AVRO", '"int"', []))
    assert [key.text for key in cache.schemas] == ["2", "3", "4"]
    large = '{"type": "int", "doc": "' + "x" * (schemas.MOST_BYTES // schemas.WEIGHT // 2) + '"}'
    with pytest.raises(SchemaError, match="at most 1048576 bytes"):
        Schema("AVRO", large, [])
    for number in range(5):
        cache.put(SchemaKey("id", str(number)), Schema("PROTOBUF", large, []))
    assert len(cache) <= 3
    assert cache.schemas.budget is not None
    assert cache.schemas.budget.used <= schemas.MOST_BYTES


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, {"value": None}), (b"text", {"value": "text"}), (b"\xff", {"value": {"base64": "/w=="}}),
        (b'{"a": 18446744073709551617}', {"value": {"a": 18446744073709551617}, "format": "json"}),
        (AVRO_DE, {"value": {"country": "DE"}, "format": "avro", "schema_id": 7, "schema": "shop.Order"}),
        (b"\0\0\0\0\x08[1]", {"value": [1], "format": "json", "schema_id": 8, "schema": "Order"}),
        (b"\0\0\0\0\x09x", {"value": {"base64": "AAAAAAl4"}}),
        (b"\0\0\0\0\x07\x04D", {"value": {"base64": "AAAAAAcERA=="},
                                "schema_id": 7, "schema": "shop.Order",
                                "why": "expected more bytes than the 2 of the datum"}),
        (b"{", {"value": "{", "why": "expected JSON, got Input data was truncated"}),
    ],
)  # fmt: skip
def test_a_viewer_gets_the_decoded_value(cache: SchemaCache, value: bytes | None, shown: dict[str, Any]) -> None:
    assert shown_value(value, cache=cache) == shown


def test_bytes_with_a_zero_are_not_text() -> None:
    assert plain_bytes(b"a\0") == {"base64": "YQA="}
