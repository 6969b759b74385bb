"""Declared events for readers: JSON Schema (2020-12) of the lines of one type, and tables for the reference page.

A line is the CloudEvents envelope, and in it the data of one event type. Additional properties are allowed everywhere,
since columns are added; a reader that checks lines against the schema of an older kproxy goes on working. No column of
the data is required: what is absent is null.
"""

from __future__ import annotations

from typing import Any

from .column import Column, EventType, walk_columns
from .schema import ENVELOPE

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TIMESTAMP = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"
FORMS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "int": {"type": "integer", "minimum": -(1 << 31), "maximum": (1 << 31) - 1},
    "long": {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 63) - 1},
    "double": {"type": "number"},
    "timestamp": {"type": "string", "format": "date-time", "pattern": TIMESTAMP},
}
CONSTANTS = {"specversion": "1.0", "datacontenttype": "application/json"}


def json_schema(event_type: EventType) -> dict[str, Any]:
    envelope = {column.name: column_schema(column) for column in ENVELOPE}
    envelope["datacontenttype"] = {"type": "string", "description": "CloudEvents: what `data` is"}
    for name, value in CONSTANTS.items():
        envelope[name]["const"] = value
    envelope["type"]["const"] = event_type.name
    envelope["data"] = {"description": event_type.meaning, **struct_schema(event_type.columns)}
    return {
        "$schema": DIALECT,
        "$id": f"urn:{event_type.name.replace('.', ':')}",
        "title": event_type.name,
        "description": event_type.meaning,
        "type": "object",
        "properties": envelope,
        "required": [*(column.name for column in ENVELOPE), "data"],
    }


def struct_schema(columns: tuple[Column, ...]) -> dict[str, Any]:
    return {"type": "object", "properties": {column.name: column_schema(column) for column in columns}}


def column_schema(column: Column) -> dict[str, Any]:
    """Return the schema of a value, with its meaning, its unit, and the version of kproxy since which it is there."""
    element = struct_schema(column.columns) if column.type == "struct" else dict(FORMS[column.type])
    annotations = {"description": column.meaning, "x-unit": column.unit, "x-since": column.since}
    form = {"type": "array", "items": element} if column.array else element
    return form | {name: text for name, text in annotations.items() if text}


def markdown_table(columns: EventType | tuple[Column, ...]) -> str:
    """Return the columns as a table in Markdown, those of structs below them under their paths."""
    lines = ["| column | type | unit | since | |", "|---|---|---|---|---|"]
    for path, column in walk_columns(columns.columns if isinstance(columns, EventType) else columns):
        kind = f"{column.type}[]" if column.array else column.type
        meaning = column.meaning.replace("|", "&#124;")
        lines.append(f"| `{path}` | {kind} | {column.unit} | {column.since} | {meaning} |")
    return "\n".join(lines) + "\n"
