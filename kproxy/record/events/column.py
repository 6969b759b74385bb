"""Columns and event types, the two things that a schema is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

ColumnType = Literal["string", "boolean", "int", "long", "double", "timestamp", "struct"]
"""int has 32 bits, long 64; a timestamp is RFC 3339 in UTC with microseconds; a struct has columns of its own."""

EventData = Mapping[str, Any]
"""Columns of an event, or of a struct in it, by name; what is unknown is left out. Times are RFC 3339 text or aware
datetimes."""


@dataclass(frozen=True, slots=True)
class Column:
    """Declaration of one value of an event. Every value may be absent: null is not written.

    `array`: many of `type`. `columns`: of a struct. `unit`: "" for none, else "bytes", "ms", "records", ….
    """

    name: str
    type: ColumnType
    meaning: str
    unit: str = ""
    array: bool = False
    columns: tuple[Column, ...] = ()
    since: str = "0.1"


@dataclass(frozen=True, slots=True)
class EventType:
    """Declaration of one type of event. `name` with its version is the CloudEvents type: kproxy.request.v1."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    since: str = "0.1"

    @property
    def short(self) -> str:
        """Return the type's own word: `request` for `kproxy.request.v1`."""
        return self.name.split(".")[1]


def walk_columns(columns: tuple[Column, ...], parent: str = "") -> Iterator[tuple[str, Column]]:
    """Yield (path, column) of all columns: `topics`, `topics[].partitions`, `topics[].partitions[].error`."""
    for column in columns:
        path = f"{parent}{column.name}"
        yield path, column
        yield from walk_columns(column.columns, f"{path}[]." if column.array else f"{path}.")
