"""Layouts printed as the protocol guide prints them.

The guide's notation says less than the table: tagged fields are all behind the word TAG_BUFFER, and that an array or a
struct may be null is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import layout, schema
from .layout import Slot, Struct

WORDS = {"bool": "BOOLEAN", "bytes": "BYTES", "records": "RECORDS", "string": "STRING"}


def word(slot: Slot) -> str:
    """Return the guide's name of a primitive type, such as COMPACT_NULLABLE_STRING."""
    name = WORDS.get(slot.type, slot.type.upper())
    if slot.type in ("string", "bytes") and slot.nullable and not slot.array:
        name = f"NULLABLE_{name}"
    return f"COMPACT_{name}" if slot.compact and slot.type in WORDS and slot.type != "bool" else name


def sequence(struct: Struct) -> str:
    names = [f"[{slot.name}]" if slot.array else slot.name for slot in struct.slots]
    return " ".join([*names, "TAG_BUFFER"] if struct.flexible else names)


def lines(struct: Struct, depth: int = 1) -> Iterator[str]:
    """Yield a line for each field, fields of structs one level deeper."""
    for slot in struct.slots:
        yield f"{'  ' * depth}{slot.name} => {word(slot) if slot.struct is None else sequence(slot.struct)}"
        if slot.struct is not None:
            yield from lines(slot.struct, depth + 1)


def printed(title: str, struct: Struct) -> str:
    return "\n".join([f"{title} => {sequence(struct)}".rstrip(), *lines(struct)])


def grammar(api_key: int, version: int, direction: str) -> str:
    """Return the guide's text for a `"request"` or `"response"`. Raises KeyError for an api or a version the table
    lacks."""
    if direction not in ("request", "response"):
        raise KeyError(f"{direction!r} is no direction, expected request or response")
    api = schema.load(api_key)
    return printed(
        f"{api.name} {direction.capitalize()} (Version: {version})", layout.body(api_key, version, direction)
    )


def header_grammar(direction: str, version: int) -> str:
    """Return the guide's text for a frame header: `Request Header v2 => …`."""
    return printed(f"{direction.capitalize()} Header v{version}", layout.header(direction, version))
