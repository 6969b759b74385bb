"""Data that is not what its type declares is found, with its path."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.record.events.column import Column, EventType
from tests.support.event_validation import mistakes

PART = Column("parts", "struct", "parts", array=True, columns=(Column("weight", "int", "weight"),))
TYPE = EventType(
    "kproxy.thing.v1",
    "A thing",
    (
        Column("name", "string", "name"),
        Column("good", "boolean", "good"),
        Column("count", "int", "count"),
        Column("size", "long", "size"),
        Column("price", "double", "price"),
        Column("made", "timestamp", "made"),
        Column("marks", "long", "marks", array=True),
        PART,
    ),
)


def test_good_data() -> None:
    """Whatever is left out is fine, and all values may stand at the edges of their types."""
    data = {
        "name": "größe", "good": False, "count": -(1 << 31), "size": (1 << 63) - 1, "price": 1.5,
        "made": "2026-11-21T10:00:00.000001Z", "marks": [], "parts": [{}, {"weight": 1}],
    }  # fmt: skip
    assert mistakes(TYPE, data) == []
    assert mistakes(TYPE, {}) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"other": 1}, "other: there is no such column"),
        ({"name": None}, "name: null, which is to be left out"),
        ({"name": b"x"}, "name: b'x', expected string"),
        ({"name": "\udcff"}, "name: '\\udcff', expected string"),
        ({"good": 1}, "good: 1, expected boolean"),
        ({"count": True}, "count: True, expected int"),
        ({"count": 1 << 31}, "count: 2147483648, expected int"),
        ({"size": 1 << 63}, "size: 9223372036854775808, expected long"),
        ({"size": 1.0}, "size: 1.0, expected long"),
        ({"price": 1}, "price: 1, expected double"),
        ({"made": "2026-11-21T10:00:00Z"}, "made: '2026-11-21T10:00:00Z', expected timestamp"),
        ({"marks": 3}, "marks: 3, expected a list"),
        ({"marks": [1, "x"]}, "marks[1]: 'x', expected long"),
        ({"parts": [{"weight": "x"}]}, "parts[0].weight: 'x', expected int"),
        ({"parts": [3]}, "parts[0]: 3, expected struct"),
        ({"parts": [{"other": 3}]}, "parts[0].other: there is no such column"),
    ],
)
def test_what_does_not_fit(data: dict[str, Any], said: str) -> None:
    """Unknown columns, null, other types and numbers that are too large."""
    assert mistakes(TYPE, data) == [said]
