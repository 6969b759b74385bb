"""Offsets of what a client writes to a stage: those of the recording, and where it writes in other portions, its own.

A producer that does the same again may send its records in other batches. Each answer's base offset is then where the
partition ends by what was written so far, but never below the one that the recording has for it.
"""

from __future__ import annotations

from typing import Any

from kproxy.wire import Message
from kproxy.wire.records import Batch, LegacyEntry, entries

PRODUCE = 0


class Written:
    """Of all partitions. `ends`: the next offset of each, by topic (name or id) and number."""

    def __init__(self) -> None:
        self.ends: dict[tuple[Any, int], int] = {}

    def number(self, request: Message, response: Message) -> None:
        """Put base offsets into the answer to a Produce."""
        counts = {
            (topic_of(topic), one["index"]): records_in(one["records"])
            for topic in request.body["topic_data"] or () for one in topic["partition_data"] or ()
        }  # fmt: skip
        for topic in response.body["responses"] or ():
            for one in topic["partition_responses"] or ():
                where = topic_of(topic), one["index"]
                if not one["error_code"]:
                    one["base_offset"] = max(one["base_offset"], self.ends.get(where, 0))
                    self.ends[where] = one["base_offset"] + counts.get(where, 0)


def topic_of(entry: dict[str, Any]) -> Any:
    """Its name, or its id in versions that have no names."""
    return entry.get("name") or entry.get("topic_id")


def records_in(field: Any) -> int:
    """How many offsets the records of a field take."""
    found = list(entries(field))
    return sum(one.last_offset_delta + 1 if isinstance(one, Batch) else isinstance(one, LegacyEntry) for one in found)
