"""Declaration of an answer: question, text and columns. Columns with the same meaning in several answers are declared
here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kproxy.record.events.column import Column
from kproxy.record.events.schema import CONNECTION

_COMMON = {column.name: column for column in CONNECTION} | {
    column.name: column
    for column in (
        Column("client_id", "string", "client id, as the client chose it"),
        Column("topic", "string", "the topic, as the client says it; absent: known by its id only"),
        Column("broker_topic", "string", "the topic's name at the broker"),
        Column("partition", "int", "the partition; absent: those beyond what is told one by one"),
        Column("api", "string", "name of the API"),
        Column("version", "int", "version of the API"),
        Column("error", "string", "error name; in lower case: none of the protocol's, see the text"),
        Column("group", "string", "the group, as the client says it"),
        Column("broker_group", "string", "the group's name at the broker"),
        Column("first_seen", "timestamp", "the first time"),
        Column("last_seen", "timestamp", "the last time"),
        Column("requests", "long", "how many", "requests"),
        Column("errors", "long", "how many of them ended in an error", "requests"),
        Column("records", "long", "records that were taken or brought", "records"),
        Column("bytes", "long", "bytes of their batches", "bytes"),
        Column("findings", "string", "what is worth a look, in words; empty: nothing", array=True),
    )
}
SortBy = Literal["rank", "ascending", "descending"]
RANKED = ("verdict", "kind", "level")
"""An answer's `worst_first` ranks the first of these columns that the answer has."""
SHOWN = 50  # rows of an answer on the report page
TOPIC_REQUESTS = Column("requests", "long", "requests, counted once for each of the topic's partitions", "requests")


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """Gold table that answers one question.

    `order`: the report sorts rows by these columns (`-`: descending).
    """

    name: str
    title: str
    question: str
    text: str
    """Notes for readers of the table."""
    reads: tuple[str, ...]
    order: tuple[str, ...]
    columns: tuple[Column, ...]
    worst_first: tuple[str, ...] = ()
    """Verdicts in the report's order."""

    def sort_keys(self) -> Iterator[tuple[str, SortBy]]:
        """Yield the sort columns and their sort order: by rank in `worst_first`, or by value. Nulls come last."""
        for name in self.order:
            column = name.removeprefix("-")
            if self.worst_first and column in RANKED:
                yield column, "rank"
            else:
                yield column, "descending" if name.startswith("-") else "ascending"


def columns(*given: str | Column) -> tuple[Column, ...]:
    """Look up names in `_COMMON`; other columns are returned unchanged."""
    return tuple(_COMMON[one] if isinstance(one, str) else one for one in given)


SOFTWARE = ("software_name", "software_version")
CLIENT = ("client_id", "principal", "client_address", *SOFTWARE)
TIMES = ("first_seen", "last_seen")
