"""How events are counted: the one place that says what is stored, read, refused or not known (docs/numbers.md).

`kproxy stats` counts by these functions, and the pipeline by `pipeline/columnar/counting.py`, which says the same of
Arrow's columns and is held against this module by a test. Summaries are counted so that their lines add up to the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Data = Mapping[str, Any]
"""The data of an event, or a partition in it."""

WRITES = ("Produce",)
READS = ("Fetch", "ShareFetch")
FINISHED = ("answered", "no_answer_due")
"""Outcomes of exchanges whose partitions count. Of those that got no answer nobody knows what became of them."""
CUT_OFF = ("unanswered", "closed")
"""Outcomes of exchanges that were due an answer and got none."""


def partitions(data: Data) -> Iterator[tuple[Data, Data]]:
    """Yield (topic, partition) for the partitions of a request event that count as written to or read from.

    Not: those of other APIs; of exchanges without an answer that was due; of a request that was refused as a whole; and
    partitions that a fetch session kept to itself, though the request asked for them.
    """
    api = data.get("api")
    if not (api in WRITES or api in READS) or data.get("outcome", "answered") not in FINISHED:
        return
    if data.get("error_level") == "request":
        return
    for topic in data.get("topics") or ():
        for part in topic.get("partitions") or ():
            if api in WRITES or is_told(part):
                yield topic, part


def is_told(part: Data) -> bool:
    """Return True if a read's answer says something of this partition: an error, the high watermark, or bytes."""
    return part.get("error") is not None or part.get("high_watermark") is not None or bool(part.get("bytes"))


def is_stored(acks: int | None, error: str | None) -> bool:
    """Return True if a broker has said that it has stored what was written to a partition."""
    return error is None and acks != 0


def is_unconfirmed(acks: int | None, error: str | None) -> bool:
    """Return True if what was sent for a partition may be stored, and nobody says so: acks=0."""
    return error is None and acks == 0
