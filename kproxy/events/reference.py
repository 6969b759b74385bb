"""Event types in words: the tables of the reference page."""

from __future__ import annotations

from .column import Column, EventType, walk_columns


def markdown_table(columns: EventType | tuple[Column, ...]) -> str:
    """Return the columns as a table in Markdown, those of structs below them under their paths."""
    lines = ["| column | type | unit | since | |", "|---|---|---|---|---|"]
    for path, column in walk_columns(columns.columns if isinstance(columns, EventType) else columns):
        kind = f"{column.type}[]" if column.array else column.type
        meaning = column.meaning.replace("|", "&#124;")
        lines.append(f"| `{path}` | {kind} | {column.unit} | {column.since} | {meaning} |")
    return "\n".join(lines) + "\n"
