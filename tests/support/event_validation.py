"""Validation of an event's data against its type: known columns, values of their types, nothing null."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kproxy.record.events.column import Column, EventType

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
BITS = {"int": 32, "long": 64}


def mistakes(event_type: EventType, data: Mapping[str, Any]) -> list[str]:
    """Return a message with a path for each value that does not fit the type; empty if all do."""
    return list(struct_mistakes(event_type.columns, data, ""))


def struct_mistakes(columns: tuple[Column, ...], data: Mapping[str, Any], path: str) -> Iterator[str]:
    declared = {column.name: column for column in columns}
    for name, value in data.items():
        if name not in declared:
            yield f"{path}{name}: there is no such column"
        elif value is None:
            yield f"{path}{name}: null, which is to be left out"
        else:
            yield from value_mistakes(declared[name], value, f"{path}{name}")


def value_mistakes(column: Column, value: Any, path: str) -> Iterator[str]:
    if not column.array:
        yield from element_mistakes(column, value, path)
    elif not isinstance(value, list):
        yield f"{path}: {value!r:.80}, expected a list"
    else:
        for index, element in enumerate(value):
            yield from element_mistakes(column, element, f"{path}[{index}]")


def element_mistakes(column: Column, value: Any, path: str) -> Iterator[str]:
    if column.type == "struct" and isinstance(value, Mapping):
        yield from struct_mistakes(column.columns, value, f"{path}.")
    elif not fits(column.type, value):
        yield f"{path}: {value!r:.80}, expected {column.type}"


def fits(kind: str, value: Any) -> bool:
    """Return True if a value that is not null is of this type. A bool is no number here."""
    match kind:
        case "string":
            return isinstance(value, str) and encodes(value)
        case "boolean":
            return isinstance(value, bool)
        case "double":
            return isinstance(value, float)
        case "timestamp":
            return isinstance(value, str) and TIMESTAMP.fullmatch(value) is not None
        case "int" | "long":
            edge = 1 << (BITS[kind] - 1)
            return isinstance(value, int) and not isinstance(value, bool) and -edge <= value < edge
        case _:
            return False


def encodes(text: str) -> bool:
    """Return True if the text can be written as UTF-8."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
