"""Avro: any schema and any datum.

- a schema is read or raises SchemaError, and a datum is decoded or raises UnreadableRecord
- a datum that can be decoded has the same values at a path for the compiled walk and for the decoded value
- no result is larger than the limits allow
"""

from __future__ import annotations

import json
from typing import Any

from kproxy.rules.content.avro import AvroSchema
from kproxy.rules.content.avro_types import SchemaError, at_path, read_datum
from kproxy.rules.filter.record_fields import EVERY, MOST_LOOKS, Step, UnreadableRecord
from tests.lab.fuzz.feed import Feed

WORDS = (b"\x00", b"\x02", b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01", b"\x04ab", b"\x04ab\x02\x04ab", b"\x03\x04")
PATHS: tuple[tuple[Step, ...], ...] = (
    ("a",),
    ("a", "b"),
    ("a", EVERY),
    ("b", 1, "a"),
    ("b", EVERY, "a"),
    ("c", "ab"),
    (),
)
PLAIN = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEEPEST = 5


def seeds() -> list[bytes]:
    return [bytes([number, 9, 10, 2, 8, 7, 11, 12]) + b"\x02\x04ab\x00\x02" * 3 for number in range(len(PATHS))]


def check(data: bytes) -> None:
    feed = Feed(data)
    path = PATHS[feed.below(len(PATHS))]
    text = feed.piece() if feed.below(4) == 0 else json.dumps(schema_of(feed, [], DEEPEST))
    try:
        schema = AvroSchema(text)
    except SchemaError:
        return
    compare(schema, path, feed.rest())


def schema_of(feed: Feed, names: list[str], depth: int) -> Any:
    """A schema from the bytes of the feed, in which records may contain themselves."""
    kind = feed.below(len(PLAIN) + 8)
    if kind < len(PLAIN) or not depth:
        return PLAIN[kind % len(PLAIN)]
    inner = lambda: schema_of(feed, names, depth - 1)  # noqa: E731
    match kind - len(PLAIN):
        case 0:
            return {"type": "array", "items": inner()}
        case 1:
            return {"type": "map", "values": inner()}
        case 2 | 3:
            return [one for one in (inner() for _ in range(1 + feed.below(3))) if not isinstance(one, list)]
        case 4 if names:
            return feed.pick(names)
        case 5:
            names.append(f"F{len(names)}")
            return {"type": "fixed", "name": names[-1], "size": feed.below(9)}
        case 6:
            names.append(f"E{len(names)}")
            return {"type": "enum", "name": names[-1], "symbols": ["X", "Y"]}
    names.append(f"R{len(names)}")
    return {"type": "record", "name": names[-1], "fields": [
        {"name": name, "type": inner()} for name in "abc"[: feed.below(4)]]}  # fmt: skip


def compare(schema: AvroSchema, path: tuple[Step, ...], data: bytes) -> None:
    try:
        json.dumps(schema.decode(data), allow_nan=False)
        value = read_datum(schema.root, data, plain=False)
        expected = [shape(one) for one in at_path(value, path)]
    except UnreadableRecord:
        expected = None
    try:
        found = [shape(one) for one in schema.search(path)(data)]
    except UnreadableRecord:
        found = None
    assert found is None or len(found) <= MOST_LOOKS + 1
    if expected is not None:
        assert found == expected, (path, data)


def shape(value: Any) -> Any:
    """A value without the bytes of arrays, maps and records."""
    return bool(value) if isinstance(value, tuple) else value
