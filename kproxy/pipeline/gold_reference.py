"""Reference of the gold tables in words, for docs/answers.md."""

from __future__ import annotations

from kproxy.events.column import Column
from kproxy.pipeline.answer import GoldAnswer
from kproxy.pipeline.gold_tables import ANSWERS


def questions() -> str:
    """Return one line per question: the table that answers it."""
    lines = ["| question | table |", "|---|---|"]
    lines += [f"| {answer.question} | [`{answer.name}`](#{answer.name}) |" for answer in ANSWERS]
    return "\n".join(lines) + "\n"


def answers() -> str:
    """Return a chapter per answer: what must be known, what it is made of, its columns."""
    return "\n".join(map(_chapter, ANSWERS))


def _chapter(answer: GoldAnswer) -> str:
    made_of = ", ".join(f"`{name}`" for name in answer.reads)
    lines = [f"### {answer.name}", "", f"{answer.question} {answer.text} Made of {made_of}.", ""]
    lines += ["| column | type | unit | |", "|---|---|---|---|", *map(_row, answer.columns)]
    return "\n".join(lines) + "\n"


def _row(column: Column) -> str:
    kind = f"array of {column.type}" if column.array else column.type
    unit = "part of 1" if column.unit == "part" else column.unit
    return f"| `{column.name}` | {kind} | {unit} | {column.meaning.replace('|', '&#124;')} |"
