"""Tables of columns."""

from __future__ import annotations

from kproxy.record.events.column import Column, EventType
from kproxy.record.events.schema import markdown_table

NAME = Column("name", "string", "its name, a|b")
PARTS = Column("parts", "struct", "what it has", array=True, columns=(NAME, Column("weight", "int", "weight", "g")))


def test_columns_of_structs_follow_under_their_path() -> None:
    """One row a column, in the order of declaration; bars in words do not end a cell."""
    expected = (
        "| column | type | unit | since | description |\n"
        "|---|---|---|---|---|\n"
        "| `parts` | struct[] |  | 0.1 | what it has |\n"
        "| `parts[].name` | string |  | 0.1 | its name, a&#124;b |\n"
        "| `parts[].weight` | int | g | 0.1 | weight |\n"
    )
    assert markdown_table((PARTS,)) == expected
    assert markdown_table(EventType("kproxy.thing.v1", "A thing", (PARTS,))) == expected
