"""Writes and reads of partitions, as the columns of request events tell them.

Strategy: of one batch of users' records the columns of the partition tell all of its header but the times; of several,
and of markers, `batches_detail` has the first ones. A batch of which something is missing is none, and makes its read a
partial one, so that no check takes its absence for a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kproxy.events.schema import MOST_BATCHES
from kproxy.wire.records.entry import CONTROL, TRANSACTIONAL

from .facts import LAST_OFFSET, BatchFact, BatchIdentity

EventRow = Mapping[str, Any]
"""Columns of a request event, or of a topic, partition or batch in it."""
UNKNOWN = -1


def number(row: EventRow, column: str) -> int:
    """Return the number in a column; UNKNOWN if it is absent, or none that the protocol has."""
    value = row.get(column)
    return value if isinstance(value, int) and 0 <= value <= LAST_OFFSET else UNKNOWN


def batches_told(row: EventRow) -> list[BatchFact]:
    """Return the batches that the columns of a partition tell, at the offsets that these name or, in a request, from 0
    on."""
    if row.get("batches_detail"):
        found = [batch_of(one, "sequence", number(one, "last_delta"), number(one, "count"))
                 for one in row["batches_detail"] if one is not None]  # fmt: skip
    elif number(row, "batches") == 1:
        records, first, last = (number(row, column) for column in ("records", "base_offset", "last_offset"))
        delta = last - first if first >= 0 and last >= 0 else records - 1
        found = [batch_of(row, "base_sequence", delta, records)]
    else:
        found = []
    return [one for one in found if one is not None]


def batch_of(row: EventRow, sequence: str, delta: int, count: int) -> BatchFact | None:
    """Return the batch that these columns tell; None if something of it is missing. `sequence`: the column of its
    first sequence."""
    crc, attributes, base = number(row, "crc"), number(row, "attributes"), max(number(row, "base_offset"), 0)
    if crc < 0 or attributes < 0 or delta < 0 or count < 0 or base + delta > LAST_OFFSET:
        return None
    identity = BatchIdentity(
        crc, count, number(row, "producer_id"), number(row, "producer_epoch"), number(row, sequence)
    )
    marker = row.get("marker")
    return BatchFact(
        base, delta, identity, attributes, UNKNOWN, UNKNOWN,
        "" if not attributes & CONTROL else marker if marker in ("commit", "abort") else "other",
        bool(attributes & TRANSACTIONAL),
    )  # fmt: skip


def aborted_told(row: EventRow) -> list[tuple[int, int]] | None:
    """Return producers and first offsets of the aborted transactions that an answer lists; None if the event may not
    have all of them."""
    listed = row.get("aborted") or ()
    if len(listed) >= MOST_BATCHES:
        return None
    return [(number(one, "producer_id"), number(one, "first_offset")) for one in listed if one is not None]
