"""What was released stays; columns are only added."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kproxy.record.events.column import Column, EventType
from kproxy.record.events.schema import EVENT_TYPES
from tests.record.events.release import FILE
from tests.support.event_compatibility import broken_promises, release_of

OLD = EventType(
    "kproxy.thing.v1",
    "A thing",
    (
        Column("size", "long", "how large", "bytes"),
        Column("parts", "struct", "what it has", array=True, columns=(Column("name", "string", "its name"),)),
    ),
)
SIZE, PARTS = OLD.columns


def test_the_schema_keeps_what_was_released() -> None:
    """No column that readers know is gone or is another thing. The message says what to do."""
    broken = broken_promises(json.loads(FILE.read_text()), EVENT_TYPES)
    assert not broken, "\n".join(broken)


def test_additions_are_no_break() -> None:
    """New types, columns and columns of structs are fine, and so are better words."""
    longer = replace(PARTS, columns=(*PARTS.columns, Column("weight", "double", "how heavy", "g")))
    columns = (Column("new", "int", "news"), replace(SIZE, meaning="how large it is"), longer)
    new = EventType("kproxy.other.v1", "Another thing", ())
    assert broken_promises(release_of([OLD]), [replace(OLD, columns=columns), new]) == []


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ((PARTS,), "kproxy.thing.v1: column size is gone"),
        ((replace(SIZE, type="int"), PARTS), "column size was 'long, bytes' and is 'int, bytes' now"),
        ((replace(SIZE, unit="kB"), PARTS), "column size was 'long, bytes' and is 'long, kB' now"),
        ((SIZE, replace(PARTS, array=False)), "column parts was 'struct[]' and is 'struct' now"),
        ((SIZE, replace(PARTS, columns=())), "column parts[].name is gone"),
    ],
)
def test_anything_else_is(columns: tuple[Column, ...], said: str) -> None:
    """A column that is gone, or that has another type or unit, is named, with what to do instead."""
    first = broken_promises(release_of([OLD]), [replace(OLD, columns=columns)])[0]
    assert said in first
    assert "gets a new column" in first


def test_a_type_that_is_gone() -> None:
    """An event type stays, too."""
    assert "event type kproxy.thing.v1 is gone" in broken_promises(release_of([OLD]), [])[0]
