"""Columns and event types of a schema, and the rules for counting events (docs/audit-reports.md).

`kproxy stats` counts with these functions. The pipeline uses `lake/columnar/columns.py`, the same rules for Arrow's
columns; a test compares both. Lines of a summary add up to the counts of its events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

ColumnType = Literal["string", "boolean", "int", "long", "double", "timestamp", "struct"]
"""int has 32 bits, long 64; a timestamp is RFC 3339 in UTC with microseconds; a struct has columns of its own."""

EventData = Mapping[str, Any]
"""Columns of an event, or of a struct in it, by name; unknown values are omitted. Times are RFC 3339 text or aware
datetimes."""


@dataclass(frozen=True, slots=True)
class Column:
    """Declaration of one value of an event. Every value may be absent: null is not written.

    `array`: many of `type`. `columns`: of a struct. `unit`: "bytes", "ms", "records", …, or "".
    """

    name: str
    type: ColumnType
    meaning: str
    unit: str = ""
    array: bool = False
    columns: tuple[Column, ...] = ()
    since: str = "0.1"


@dataclass(frozen=True, slots=True)
class EventType:
    """Declaration of one type of event. `name` with its version is the CloudEvents type: kproxy.request.v1."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    since: str = "0.1"

    @property
    def short(self) -> str:
        """Return the type's own word: `request` for `kproxy.request.v1`."""
        return self.name.split(".")[1]


def walk_columns(columns: tuple[Column, ...], parent: str = "") -> Iterator[tuple[str, Column]]:
    """Yield (path, column) of all columns: `topics`, `topics[].partitions`, `topics[].partitions[].error`."""
    for column in columns:
        path = f"{parent}{column.name}"
        yield path, column
        yield from walk_columns(column.columns, f"{path}[]." if column.array else f"{path}.")


WRITES = ("Produce",)
READS = ("Fetch", "ShareFetch")
FINISHED = ("answered", "no_answer_due")
"""Outcomes of exchanges with counted partitions. Without a response the result of the request is unknown."""
CUT_OFF = ("unanswered", "closed")
"""Outcomes of exchanges that were due an answer and got none."""


def partitions(data: EventData) -> Iterator[tuple[EventData, EventData]]:
    """Yield (topic, partition) for the partitions of a request event that count as written to or read from.

    Omitted are partitions of other APIs, of exchanges with a missing response, of a request that was refused as a
    whole, and those that a fetch session did not report although the request contained them.
    """
    api = data.get("api")
    if not (api in WRITES or api in READS) or data.get("outcome", "answered") not in FINISHED:
        return
    if data.get("error_level") == "request":
        return
    for topic in data.get("topics") or ():
        for partition in topic.get("partitions") or ():
            if api in WRITES or is_mentioned(partition):
                yield topic, partition


def is_mentioned(part: EventData) -> bool:
    """Return True if the response of a read reports this partition: an error, the high watermark, or bytes."""
    return part.get("error") is not None or part.get("high_watermark") is not None or bool(part.get("bytes"))


def is_stored(acks: int | None, error: str | None) -> bool:
    """Return True if a broker confirmed that it has stored the data written to a partition."""
    return error is None and acks != 0


def is_unconfirmed(acks: int | None, error: str | None) -> bool:
    """Return True if what was sent for a partition may be stored without a broker's confirmation: acks=0."""
    return error is None and acks == 0
