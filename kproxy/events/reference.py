"""Event types in words: the tables of the reference page."""

from __future__ import annotations

from collections.abc import Iterator

from .column import Column, EventType


def markdown_table(columns: EventType | tuple[Column, ...]) -> str:
    """The columns as a table for a page, those of structs below them under their path."""
    lines = ["| column | type | unit | since | |", "|---|---|---|---|---|"]
    for path, column in walk(columns.columns if isinstance(columns, EventType) else columns):
        kind = f"{column.type}[]" if column.array else column.type
        meaning = column.meaning.replace("|", "&#124;")
        lines.append(f"| `{path}` | {kind} | {column.unit} | {column.since} | {meaning} |")
    return "\n".join(lines) + "\n"


def walk(columns: tuple[Column, ...], parent: str = "") -> Iterator[tuple[str, Column]]:
    """(path, column) of all columns: `topics`, `topics[].partitions`, `topics[].partitions[].error`."""
    for column in columns:
        path = f"{parent}{column.name}"
        yield path, column
        yield from walk(column.columns, f"{path}[]." if column.array else f"{path}.")
