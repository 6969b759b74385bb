"""Columns of the record batches of one partition: sums, the first batch, and each batch where there are several.

Strategy: of one batch of users' records, which most requests and answers have, the columns of the partition tell all
that its header does. Of several each is told, up to a limit for the partition and one for the event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kproxy.protocol.records.entry import RecordsDigest
from kproxy.record.events.schema import MOST_BATCHES

OF_WRITTEN = ("producer_id", "producer_epoch", "base_sequence", "attributes", "crc")
OF_READ = ("base_offset", "last_offset", *OF_WRITTEN)
"""Columns of a digest; None and numbers below zero are absence."""
OF_BATCH = ("base_offset", "crc", "attributes", "last_delta", "producer_id", "producer_epoch", "sequence", "count")
"""Columns of one batch, in the order of `HEADER_FIELDS`."""
MOST_DETAILED = 10 * MOST_BATCHES


class BatchDetail:
    """Room for batches that one event tells one by one, all its partitions together."""

    __slots__ = ("room",)

    def __init__(self) -> None:
        self.room = MOST_DETAILED

    def columns(self, digest: RecordsDigest) -> list[dict[str, Any]]:
        """Return the columns of each of the digest's first batches, as far as there is room."""
        told = list(batch_columns(digest, min(self.room, MOST_BATCHES)))
        self.room -= len(told)
        return told


def put_batches(row: dict[str, Any], digest: RecordsDigest | None, read: bool, detail: BatchDetail) -> None:
    """Set the columns about a partition's batches. `read`: offsets are the log's; producers count from zero."""
    if digest is None:
        return
    if digest.records is not None:
        row["records"] = digest.records
    row["bytes"], row["batches"] = digest.size, digest.batches
    if digest.codec:
        row["codec"] = digest.codec
    for column in OF_READ if read else OF_WRITTEN:
        value = getattr(digest, column)
        if value is not None and value >= 0:
            row[column] = value
    if digest.batches > 1 or digest.control:
        told = detail.columns(digest)
        if told:
            row["batches_detail"] = told


def batch_columns(digest: RecordsDigest, most: int) -> Iterator[dict[str, Any]]:
    """Yield the columns of each of the first batches whose headers are there."""
    markers = digest.markers or {}
    for number, header in enumerate((digest.headers or ())[:most]):
        columns: dict[str, Any] = {column: value for column, value in zip(OF_BATCH, header, strict=True) if value >= 0}
        if number in markers:
            columns["marker"] = markers[number]
        yield columns


def aborted_columns(transactions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the columns of the first aborted transactions that a partition's answer lists."""
    names = ("producer_id", "first_offset")
    return [{name: one[name] for name in names} for one in transactions[:MOST_BATCHES]]
