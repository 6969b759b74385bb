"""Records of an exchange for those who look: each partition with its batches, and of these the records.

Keys and values are base64, since they are bytes; null stays null. Long ones are cut, and there are so many records in
an answer at most: what was left out is said.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import Batch, Cut, Entry, LegacyEntry, Record, check_crc, entries
from kproxy.protocol.records.record import SHORTEST_HEADER
from kproxy.record.exchange import ObservedExchange
from kproxy.record.observer.records import NotKept, RecordsField, Unpacked, record_fields

from .frame_steps import NO_RECORDS, batch_shown

MOST_RECORDS = 1000
"""Records in one answer."""
LONGEST_VALUE = 65536
"""Bytes of a key, a value or a header in an answer."""
MOST_HEADERS = 20_000
"""Headers of all records in an answer."""
MOST_SHOWN = 4 << 20
"""Bytes of keys, values and headers in one answer."""


class ShownRecords:
    """Records of one exchange for an answer, with what room is left there."""

    def __init__(self) -> None:
        self.left, self.room = MOST_RECORDS, MOST_SHOWN
        self.unpacked = Unpacked(headers=MOST_HEADERS)

    def partition(self, field: RecordsField) -> dict[str, Any]:
        """Return the batches of one partition, as far as they can be read; `why` says what cannot."""
        shown: dict[str, Any] = {
            "topic": field.topic, "partition": field.partition, "bytes": len(field.data), "batches": [], "why": ""
        }  # fmt: skip
        try:
            for entry in entries(field.data):
                shown["batches"].append(self.batch(entry))
        except RecordsError as error:
            shown["why"] = str(error)
        return shown

    def batch(self, entry: Entry) -> dict[str, Any]:
        """Return a batch with its records. `omitted`: those that there was no room for, as its header counts them;
        None: nobody knows how many."""
        shown = {**batch_shown(entry), "bytes": len(entry.raw), "records": [], "omitted": 0, "why": ""}
        if isinstance(entry, Cut):
            return shown
        shown["crc"] = crc_of(entry)
        if isinstance(entry, Batch) and entry.is_control:
            return shown
        try:
            for record in self.unpacked.records(entry) if self.has_room else ():
                shown["records"].append(self.record(record))
                if not self.has_room:
                    break
        except NotKept as error:
            shown["why"], self.left = str(error), 0
        except RecordsError as error:
            shown["why"] = str(error)
        if not self.has_room:
            shown["omitted"] = entry.count - len(shown["records"]) if isinstance(entry, Batch) else None
        return shown

    @property
    def has_room(self) -> bool:
        return self.left > 0 and self.room > 0

    def record(self, record: Record) -> dict[str, Any]:
        self.left -= 1
        return {
            "offset": record.offset,
            "time": record.timestamp if record.timestamp >= 0 else None,
            "key": self.text(record.key),
            "key_bytes": None if record.key is None else len(record.key),
            "value": self.text(record.value),
            "value_bytes": None if record.value is None else len(record.value),
            "headers": [[self.name(name), self.text(value)] for name, value in record.headers],
        }

    def name(self, name: str) -> str:
        """Return the name of a header, cut if it is long."""
        cut = name[: min(LONGEST_VALUE, max(self.room, 0))]
        self.room -= len(cut) + SHORTEST_HEADER
        return cut.encode("utf-8", "replace").decode()

    def text(self, data: bytes | None) -> str | None:
        """Return bytes in base64, cut if they are long."""
        if data is None:
            return None
        cut = bytes(data[: min(LONGEST_VALUE, max(self.room, 0))])
        self.room -= len(cut)
        return b64encode(cut).decode()


def crc_of(entry: Batch | LegacyEntry) -> str:
    """Return `right`, or what is wrong with the checksum of a batch."""
    try:
        check_crc(entry)
    except RecordsError as error:
        return str(error).partition(": ")[2]
    return "right"


def show_records(seen: ObservedExchange, *, records: bool) -> list[dict[str, Any]]:
    """Return the records of an exchange by partition; one entry with `why` where they cannot be shown."""
    try:
        fields = record_fields(seen)
    except NotKept as error:
        return [{"topic": None, "partition": None, "bytes": None, "batches": [], "why": str(error)}]
    if not records:
        return [
            {"topic": one.topic, "partition": one.partition, "bytes": len(one.data), "batches": [], "why": NO_RECORDS}
            for one in fields
        ]
    shown = ShownRecords()
    return [shown.partition(field) for field in fields]
