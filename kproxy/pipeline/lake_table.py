"""Declaration of a table of the lake: a name, what one row means, and its columns, as data.

The columns are `kproxy.events.Column`, so a table repeats the names, types, units and meanings of the events that it is
made of. Spark's schema (`schema.py`) and the reference page come from these declarations; nothing is ever inferred.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kproxy.events.column import Column, EventType
from kproxy.pipeline.errors import UnknownTable

SOURCE = Column("source", "string", "who recorded the event: instance/boot/worker")
EVENT_ID = Column("event_id", "long", "number of the event in its source, from 1 on; absent: it is not a number")
ROW = Column("row", "int", "position of the row among those made of one event, from 0 on")
TIME = Column("time", "timestamp", "when it happened; of a request, when it came; of several, when the first came")


@dataclass(frozen=True, slots=True)
class LakeTable:
    """Table on disk. `dt` (UTC date of `time`) and `batch` (of the run that wrote the row) are beside its columns.

    `key` tells rows apart for good: two rows with the same key are the same event, recorded or read twice. Rows that
    differ in `split`, another column beside the others, lie in folders of their own within those of dt and batch.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ("source", "event_id")
    split: Column | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the columns' names in their order, without dt, batch and `split`."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """Return the column of that name; UnknownTable says which there are."""
        return find(self.columns, name, f"table {self.name}")


def find(columns: Iterable[Column], name: str, where: str) -> Column:
    """Return the column `name` among `columns` of `where`."""
    columns = tuple(columns)
    for column in columns:
        if column.name == name:
            return column
    there = ", ".join(column.name for column in columns)
    raise UnknownTable(f"{where} has no column {name!r}, it has {there}")


def of_event(event: EventType, *names: str) -> tuple[Column, ...]:
    """Return columns of an event type in the order of `names`; without names, all of them."""
    if not names:
        return event.columns
    return tuple(find(event.columns, name, event.name) for name in names)
