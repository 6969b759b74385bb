"""Columns and event types, the two things that a schema is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Type = Literal["string", "boolean", "int", "long", "double", "timestamp", "struct"]
"""int has 32 bits, long 64; a timestamp is RFC 3339 in UTC with microseconds; a struct has columns of its own."""


@dataclass(frozen=True, slots=True)
class Column:
    """One value of an event. All may be absent: null is not written.

    `array`: many of `type`. `columns`: of a struct. `unit`: "" for none, else "bytes", "ms", "records", ….
    """

    name: str
    type: Type
    meaning: str
    unit: str = ""
    array: bool = False
    columns: tuple[Column, ...] = ()
    since: str = "0.1"


@dataclass(frozen=True, slots=True)
class EventType:
    """`name` with its version is the CloudEvents type: kproxy.request.v1."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    since: str = "0.1"

    @property
    def short(self) -> str:
        """`request` of `kproxy.request.v1`."""
        return self.name.split(".")[1]
