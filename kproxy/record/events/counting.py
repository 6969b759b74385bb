"""How events are counted: the one place that says what is stored, read, refused or not known (docs/numbers.md).

`kproxy stats` counts by these functions, and the pipeline by `lake/columnar/columns.py`, which says the same of
Arrow's columns and is held against this module by a test. Summaries are counted so that their lines add up to the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from .column import EventData

WRITES = ("Produce",)
READS = ("Fetch", "ShareFetch")
FINISHED = ("answered", "no_answer_due")
"""Outcomes of exchanges whose partitions count. Without an answer it is unknown what became of the request."""
CUT_OFF = ("unanswered", "closed")
"""Outcomes of exchanges that were due an answer and got none."""


def partitions(data: EventData) -> Iterator[tuple[EventData, EventData]]:
    """Yield (topic, partition) for the partitions of a request event that count as written to or read from.

    Left out are those of other APIs; of exchanges without an answer that was due; of a request that was refused as a
    whole; and partitions that a fetch session kept to itself, though the request asked for them.
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
    """Return True if a read's answer tells of this partition: an error, the high watermark, or bytes."""
    return part.get("error") is not None or part.get("high_watermark") is not None or bool(part.get("bytes"))


def is_stored(acks: int | None, error: str | None) -> bool:
    """Return True if a broker has said that it has stored what was written to a partition."""
    return error is None and acks != 0


def is_unconfirmed(acks: int | None, error: str | None) -> bool:
    """Return True if what was sent for a partition may be stored without a broker's confirmation: acks=0."""
    return error is None and acks == 0
