"""Check that values in an event file have the types of their columns: a file may be damaged, or not be kproxy's.

Strategy: msgspec structs are made of the declared columns once, and each event is converted to one, which takes some
microseconds. Columns that are unknown here pass: a newer kproxy may have written them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from kproxy.events.column import Column
from kproxy.events.schema import BY_NAME

TYPES: Mapping[str, type] = {
    "string": str, "boolean": bool, "double": float, "timestamp": str, "int": int, "long": int,
}  # fmt: skip


def judge(kind: str, data: dict[str, Any]) -> None:
    """Check an event's data against the columns of its type. Raises msgspec.ValidationError with the path."""
    wanted = struct_of(kind)
    if wanted is not None:
        msgspec.convert(data, wanted)


@lru_cache(maxsize=100)
def struct_of(kind: str) -> type | None:
    """Return the msgspec struct of an event type; None for a type that is not known here."""
    return _struct(kind, BY_NAME[kind].columns) if kind in BY_NAME else None


def _struct(name: str, columns: tuple[Column, ...]) -> type:
    made: type = msgspec.defstruct(
        "".join(char if char.isalnum() else "_" for char in name),
        [(column.name, _type(column) | None, None) for column in columns],
    )
    return made


def _type(column: Column) -> Any:
    one: Any = _struct(column.name, column.columns) if column.type == "struct" else TYPES[column.type]
    return list[one] if column.array else one
