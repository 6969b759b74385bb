"""Avro data against fastavro, and hostile schemas and data."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from contextlib import suppress
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.rules.content import avro
from kproxy.rules.content.avro import AvroSchema
from kproxy.rules.content.avro_types import SchemaError, at_path, read_datum
from kproxy.rules.filter.record_fields import EVERY, UnreadableRecord

R = '{"type": "record", "name": "R", "fields": [%s]}'
TEXTS = {"type": "array", "items": "string"}
SCHEMA: dict[str, Any] = {
    "type": "record", "name": "Order", "namespace": "com.example", "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "ok", "type": "boolean"},
        {"name": "rate", "type": "double"},
        {"name": "small", "type": "float"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 3}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}},
        {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
            {"name": "sku", "type": "string"}, {"name": "sizes", "type": {"type": "array", "items": "int"}},
            {"name": "more", "type": {"type": "map", "values": {"type": "array", "items": TEXTS}}},
        ]}}},
        {"name": "attrs", "type": {"type": "map", "values": ["int", "null", "string"]}},
        {"name": "parent", "type": ["null", "Order"]},
        {"name": "last", "type": ["int", "Item", {"type": "array", "items": "Hash"}]},
    ],
}  # fmt: skip
PARSED = fastavro.parse_schema(SCHEMA)
LONGS, INTS = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
SHORT = st.text(max_size=3)
ITEMS = st.fixed_dictionaries({
    "sku": st.text(max_size=70), "sizes": st.lists(INTS, max_size=4),
    "more": st.dictionaries(SHORT, st.lists(st.lists(SHORT, max_size=2), max_size=2), max_size=2),
})  # fmt: skip
FIELDS = {
    "id": LONGS, "note": st.none() | st.text(max_size=90), "raw": st.binary(max_size=90), "ok": st.booleans(),
    "rate": st.floats(allow_nan=False, allow_infinity=False),
    "small": st.floats(width=32, allow_nan=False, allow_infinity=False), "state": st.sampled_from(["NEW", "DONE"]),
    "hash": st.binary(min_size=3, max_size=3), "price": st.decimals(-(10**9), 10**9, places=2),
    "items": st.lists(ITEMS, max_size=3), "attrs": st.dictionaries(SHORT, st.none() | INTS | SHORT, max_size=3),
    "last": INTS | ITEMS | st.lists(st.binary(min_size=3, max_size=3), max_size=2),
}  # fmt: skip
ORDERS = st.recursive(
    st.fixed_dictionaries({**FIELDS, "parent": st.none()}),
    lambda inner: st.fixed_dictionaries({**FIELDS, "parent": inner}), max_leaves=3,
)  # fmt: skip
PATHS: list[tuple[str | int, ...]] = [
    ("id",), ("note",), ("rate",), ("small",), ("state",), ("hash",), ("price",), ("items",), ("items", EVERY, "sku"),
    ("items", 1, "sizes", 0), ("items", EVERY, "more", "a", EVERY, 0), ("attrs", "a"), ("parent", "parent", "id"),
    ("parent",), ("last",), ("last", "sku"), ("last", EVERY), ("id", "x"), ("nope",), (0,), ("items", "sku"),
    ("items", 0, "more"), ("ok",), ("raw",),
]  # fmt: skip
OWN = AvroSchema(json.dumps(SCHEMA))


def plain(value: Any) -> Any:
    """Return a value of fastavro as `decode` returns it."""
    match value:
        case bytes():
            return {"base64": b64encode(value).decode()}
        case Decimal():
            return f"{value:f}"
        case dict():
            return {name: plain(one) for name, one in value.items()}
        case list():
            return [plain(one) for one in value]
    return value


def shape(value: Any) -> Any:
    """Return a found value without the bytes of arrays, maps and records."""
    return bool(value) if isinstance(value, tuple) else value


@settings(max_examples=60, deadline=None)
@given(ORDERS, st.booleans())
def test_any_datum_decodes_and_searches_as_fastavro(order: dict[str, Any], sized: bool) -> None:
    out = BytesIO()
    fastavro.schemaless_writer(out, PARSED, order)
    data = out.getvalue()
    read = plain(fastavro.schemaless_reader(BytesIO(data), PARSED, None))
    decoded = OWN.decode(data)
    for one, other in zip(levels(decoded), levels(read), strict=True):
        assert struct.pack("<f", one.pop("small")) == struct.pack("<f", other.pop("small"))
    assert decoded == read
    for path in PATHS:
        expected = at_path(read_datum(OWN.root, data, plain=False), path)
        assert [shape(one) for one in OWN.search(path)(data)] == [shape(one) for one in expected], path


def levels(order: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [] if order is None else [order, *levels(order["parent"])]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=120), st.sampled_from(PATHS))
def test_hostile_bytes_raise_unreadable_record(data: bytes, path: tuple[str | int, ...]) -> None:
    for act in (OWN.decode, OWN.search(path)):
        with suppress(UnreadableRecord):
            act(data)


def test_a_block_with_a_wrong_size_is_unreadable() -> None:
    """Consumers that ignore sizes and those that skip by them would read other values."""
    schema = AvroSchema(R % f'{{"name": "a", "type": {json.dumps(TEXTS)}}}, {{"name": "b", "type": "int"}}')
    for size in (b"\x06", b"\x0a", b"\x07", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"):
        data = b"\x03" + size + b"\x02x\x02y\x00\x0e"
        for read in (schema.decode, schema.search(("b",)), schema.search(("a", EVERY))):
            with pytest.raises(UnreadableRecord, match="expected a block"):
                read(data)
    empty = AvroSchema(json.dumps(TEXTS)).search(())
    assert [list(empty(data)) for data in (b"\x00", b"\x80\x00")] == [[()], [()]]


def test_a_block_with_its_size_is_read_and_skipped() -> None:
    schema = AvroSchema(R % f'{{"name": "a", "type": {json.dumps(TEXTS)}}}, {{"name": "b", "type": "int"}}')
    data = b"\x03\x08\x02x\x02y\x02\x02z\x00\x0e"
    assert schema.decode(data) == {"a": ["x", "y", "z"], "b": 7}
    assert list(schema.search(("b",))(data)) == [7]
    assert list(schema.search(("a", 2))(data)) == ["z"]


DEEP = '{"type": "array", "items": ' * 80 + '"int"' + "}" * 80
WRONG_SCHEMAS = {
    "{": "expected a schema in JSON", "3": "expected a type", '"nope"': "expected a known type, got nope",
    "[]": "expected branches", '[["null"]]': "which are not unions", DEEP: "expected at most 64 levels",
    '{"type": "enum", "name": "E"}': "expected a list of symbols",
    '{"type": "enum", "name": "E", "symbols": [3]}': "names and symbols of at most 255 characters, got 3",
    R % f'{{"name": "{"x" * 256}", "type": "int"}}': "names and symbols of at most 255",
    f'{{"type": "fixed", "name": "{"x" * 256}"}}': "at most 255",
    '{"type": "fixed", "name": "F", "size": -1}': "size of 0", '{"type": "record", "fields": []}': "expected a name",
    R % '{"name": 3, "type": "int"}': "expected fields with a name",
    R % '{"name": "a", "type": "int"}, {"name": "a", "type": "int"}': "expected different fields",
    R % '{"name": "a", "type": {"type": "fixed", "name": "R", "size": 1}}': "expected one type of a name",
    R % ",".join(f'{{"name": "f{n}", "type": "int"}}' for n in range(10_001)): "expected at most 10000 types",
    '"' + "x" * (1 << 20) + '"': "expected a schema of at most", "[" * 100_000: "expected a schema in JSON",
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG_SCHEMAS.items(), ids=range(len(WRONG_SCHEMAS)))
def test_a_wrong_schema_raises_its_error(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        AvroSchema(text)


LOOP = AvroSchema(R % '{"name": "next", "type": ["null", "R"]}, {"name": "v", "type": "int"}')
NULLS = AvroSchema('{"type": "array", "items": "null"}')
ENDLESS = AvroSchema(R % '{"name": "self", "type": "R"}')
MANY = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
BAD_DATA = [
    (LOOP, b"\x02" * 70, "64 levels"), (NULLS, MANY + b"\0", "20000 values"), (ENDLESS, b"\0", "64 levels"),
    (AvroSchema('"long"'), b"\xff" * 11, "64 bits"), (AvroSchema('"string"'), b"\x01", "more bytes"),
    (AvroSchema('"string"'), b"\x04a", "more bytes"), (AvroSchema('"int"'), b"\x02\x02", "of 1 bytes, got 2"),
    (AvroSchema('["int"]'), b"\x02\x00", "below 1, got 1"), (AvroSchema('"bytes"'), bytes(1 << 21), "at most 1048576"),
    (AvroSchema('{"type": "bytes", "logicalType": "decimal"}'),
     b"\x80\x10" + b"\1" * 1024, "of at most 512 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "data", "message"), BAD_DATA)
def test_a_datum_beyond_a_limit_is_unreadable(schema: AvroSchema, data: bytes, message: str) -> None:
    with pytest.raises(UnreadableRecord, match=message):
        schema.decode(data)


@pytest.mark.parametrize(
    ("schema", "path", "data"),
    [
     (LOOP, ("v",), b"\x02" * 70), (NULLS, (EVERY,), MANY + b"\0"), (ENDLESS, ("self",), b"\0"),
     (AvroSchema('{"type": "array", "items": "int"}'), (9,), MANY + b"\0"),
     (AvroSchema('{"type": "map", "values": "int"}'), ("a",), b"\x02\x01")],
)  # fmt: skip
def test_a_search_beyond_a_limit_is_unreadable(schema: AvroSchema, path: tuple[str | int, ...], data: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        list(schema.search(path)(data))


def test_the_last_of_equal_names_in_a_map_counts() -> None:
    schema = AvroSchema('{"type": "map", "values": {"type": "map", "values": "int"}}')
    data = b"\x04\x02a\x02\x02b\x02\x00\x02a\x04\x02b\x04\x02b\x06\x00\x00"
    assert schema.decode(data) == {"a": {"b": 3}}
    assert list(schema.search(("a", "b"))(data)) == [3]


def test_a_search_of_a_large_schema_decodes_the_datum() -> None:
    fields = ",".join(f'{{"name": "f{n}", "type": "int"}}' for n in range(avro.MOST_COMPILED_FIELDS + 1))
    schema = AvroSchema(R % fields)
    assert list(schema.search(("f7",))(b"\0" * 7 + b"\x02" + b"\0" * (avro.MOST_COMPILED_FIELDS - 7))) == [1]


def test_references_share_their_types_and_namespaces() -> None:
    first = '{"type": "record", "name": "a.b.Money", "fields": [{"name": "cents", "type": "int"}]}'
    fields = '"fields": [{"name": "sum", "type": "Money"}, {"name": "tip", "type": "a.b.Money"}]'
    schema = AvroSchema('{"type": "record", "name": "Bill", "namespace": "a.b", ' + fields + "}", [first])
    assert schema.name == "a.b.Bill"
    assert schema.decode(b"\x02\x04") == {"sum": {"cents": 1}, "tip": {"cents": 2}}


def test_floats_have_their_shortest_text_and_odd_ones_are_text() -> None:
    for data, shown in ((b"\xcd\xcc\xcc\x3d", 0.1), (b"\0\0\x80\x7f", "Infinity"), (b"\0\0\xc0\x7f", "NaN")):
        assert AvroSchema('"float"').decode(data) == shown


EMPTY_ITEMS = {
    "absent field of empty records": ((EVERY, "q"), []),
    "element of empty records": ((70_000,), [()]),
    "element of another list": ((3, EVERY), []),
}


@pytest.mark.parametrize(("steps", "expected"), EMPTY_ITEMS.values(), ids=EMPTY_ITEMS)
def test_search_among_items_without_bytes_ends(steps: Any, expected: Any) -> None:
    """Ten bytes can announce any number of them."""
    schema = AvroSchema('{"type": "array", "items": {"type": "record", "name": "E", "fields": []}}')
    assert list(schema.search(steps)(b"\x80\x80\x80\x80\x80\x80\x80\x80\x40" + b"\0")) == expected
