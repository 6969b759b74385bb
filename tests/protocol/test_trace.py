"""The slow reader: what it yields for each thing on the wire, and where."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol.codec import structs as codec
from kproxy.protocol.codec.trace import smallest_struct, trace
from kproxy.protocol.table import layout, schema

THING = layout.build(
    schema.parse_fields(
        [
            "id int16 0+",
            {"parts []struct 0+": ["name string 0+"]},
            {"extra struct 0+ null 0+": ["size int8 0+"]},
            "label string 0+ tag 2",
        ]
    ),
    0,
    True,
)
VALUE = {"id": 1, "parts": [{"name": "x"}], "extra": {"size": 5}, "label": "y", "_tagged_fields": [(7, b"z")]}


def steps(data: bytes) -> list[tuple[Any, ...]]:
    return [(step.what, step.path, step.start, step.end, step.value) for step in trace(THING, data)]


def test_a_step_for_each_thing_in_wire_order() -> None:
    """Values, counts, null marks, tag buffers, tags and their bytes, with paths that number the elements."""
    assert steps(codec.encode(THING, VALUE)) == [
        ("value", "id", 0, 2, 1),
        ("count", "parts", 2, 3, 1),
        ("value", "parts[0].name", 3, 5, "x"),
        ("tags", "parts[0]._tagged_fields", 5, 6, 0),
        ("present", "extra", 6, 7, True),
        ("value", "extra.size", 7, 8, 5),
        ("tags", "extra._tagged_fields", 8, 9, 0),
        ("tags", "_tagged_fields", 9, 10, 2),
        ("tag", "label", 10, 12, 2),
        ("value", "label", 12, 14, "y"),
        ("tag", "_tagged_fields[7]", 14, 16, 7),
        ("unknown", "_tagged_fields[7]", 16, 17, b"z"),
    ]


def test_null_things_have_a_step_of_their_own() -> None:
    """A null array is a count of -1, a null struct is not present, and nothing follows of either."""
    assert steps(codec.encode(THING, {"id": 1, "parts": None, "extra": None})) == [
        ("value", "id", 0, 2, 1),
        ("count", "parts", 2, 3, -1),
        ("present", "extra", 3, 4, False),
        ("tags", "_tagged_fields", 4, 5, 0),
    ]


def test_steps_come_until_the_first_byte_that_does_not_fit() -> None:
    """So a tree can be printed as far as it goes."""
    found = trace(THING, codec.encode(THING, VALUE)[:5])

    assert [next(found).path for _ in range(3)] == ["id", "parts", "parts[0].name"]
    with pytest.raises(DecodeError) as caught:
        next(found)
    assert (caught.value.path, caught.value.offset) == ("parts[0]._tagged_fields", 5)


def test_the_fewest_bytes_of_a_struct() -> None:
    """What a count is measured against: everything null or empty, and the tag buffer."""
    assert smallest_struct(THING) == len(codec.encode(THING, {"parts": None, "extra": None}))
