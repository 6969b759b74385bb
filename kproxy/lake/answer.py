"""Declaration of an answer: a question, a text, columns. Columns that mean the same everywhere are declared here."""

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
"""Columns that have one of an answer's `worst_first`, where it has some."""
SHOWN = 50  # rows of an answer on the report page
TOPIC_REQUESTS = Column("requests", "long", "requests, counted once for each of the topic's partitions", "requests")


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """Gold table that answers one question.

    `order`: columns (`-`: the largest first) by which the report sorts its rows.
    """

    name: str
    title: str
    question: str
    text: str
    """Text that must be known to read the table."""
    reads: tuple[str, ...]
    order: tuple[str, ...]
    columns: tuple[Column, ...]
    worst_first: tuple[str, ...] = ()
    """Verdicts, in the order in which the report shows them."""

    def sort_keys(self) -> Iterator[tuple[str, SortBy]]:
        """Yield the columns by which rows are sorted, and how: by their rank among `worst_first`, or by their value;
        what is known comes before what is not."""
        for name in self.order:
            column = name.removeprefix("-")
            if self.worst_first and column in RANKED:
                yield column, "rank"
            else:
                yield column, "descending" if name.startswith("-") else "ascending"


def columns(*given: str | Column) -> tuple[Column, ...]:
    """Return columns of `_COMMON` by name, and others as they are."""
    return tuple(_COMMON[one] if isinstance(one, str) else one for one in given)


SOFTWARE = ("software_name", "software_version")
CLIENT = ("client_id", "principal", "client_address", *SOFTWARE)
TIMES = ("first_seen", "last_seen")
