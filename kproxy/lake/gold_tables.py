"""Gold tables, all of them: Spark's schemas and the report are made of these declarations, and docs/answers.md is."""

from __future__ import annotations

from kproxy.base.errors import UnknownTable
from kproxy.record.events.column import Column

from .answer import GoldAnswer
from .answers_health import (
    CLIENT_LATENCY,
    CLIENT_SAYS,
    ERRORS_AND_DENIALS,
    GROUP_HEALTH,
    GROUP_LAG,
    LATENCY,
    RULES_EFFECT,
    STORMS,
    THROTTLED,
)
from .answers_history import VIOLATIONS
from .answers_use import (
    DORMANT_CLIENTS,
    EMPTY_FETCHES,
    KAFKA4_READINESS,
    PARTITION_SKEW,
    PRODUCER_HYGIENE,
    TRAFFIC,
    UNUSED_TOPICS,
    WHO_READS,
    WHO_WRITES,
    ZONES,
)

ANSWERS = (
    TRAFFIC,
    ZONES,
    WHO_WRITES,
    WHO_READS,
    KAFKA4_READINESS,
    UNUSED_TOPICS,
    DORMANT_CLIENTS,
    LATENCY,
    CLIENT_LATENCY,
    CLIENT_SAYS,
    THROTTLED,
    ERRORS_AND_DENIALS,
    GROUP_HEALTH,
    GROUP_LAG,
    PRODUCER_HYGIENE,
    PARTITION_SKEW,
    EMPTY_FETCHES,
    RULES_EFFECT,
    STORMS,
    VIOLATIONS,
)
"""Gold tables in the order of the report."""


def answer_named(name: str) -> GoldAnswer:
    """Return the gold table of this name; UnknownTable says which there are."""
    for answer in ANSWERS:
        if answer.name == name:
            return answer
    raise UnknownTable(f"there is no gold table {name!r}, there are {', '.join(answer.name for answer in ANSWERS)}")


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
