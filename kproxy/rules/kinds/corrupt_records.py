"""corrupt_records: bits of records flip, and the checksum shows it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from kproxy.protocol.records import Batch
from kproxy.protocol.records.entry import BATCH, CRC_AT, LEGACY
from kproxy.rules.bodies import PartitionBody
from kproxy.rules.content.edits import FieldEdits, RecordBudget, Whole
from kproxy.rules.kinds.base.records_rule import SomeRecordsRule, first_offset, last_offset

MOST = 64
CRC_SIZE = 4


class CorruptRecords(SomeRecordsRule):
    """Flips bits in batches of records and leaves their checksum as it was, which is then wrong.

    On produce the broker answers CORRUPT_MESSAGE, and producers send again. On fetch, `poll` of the Java client raises
    an exception. librdkafka verifies checksums only with `check.crcs`; otherwise it delivers what it can decode.
    `where: crc` leaves the records whole and the checksum alone is wrong. `offsets` choose batches that hold one of
    them; to change records without it showing, see `poison_records`.
    """

    group = "records"
    example: ClassVar[str] = """\
- name: the wire to the consumers is bad
  kind: corrupt_records
  match: {topic: orders}
  when: {nth: 3}
  at: fetch
  bits: 3
"""

    kind: Literal["corrupt_records"] = Field(description="kind of the rule")
    where: Literal["records", "crc"] = Field(default="records", description="changed part: records or checksum")
    bits: int = Field(default=1, ge=1, le=MOST, description="number of flipped bits per batch")

    def change(self, field: FieldEdits, place: PartitionBody, budget: RecordBudget) -> bool:
        def flipped(entry: Whole) -> bytes | None:
            if not (self.holds_one(place, entry) and self.has_selected(place, entry, budget)):
                return None
            raw = bytearray(entry.raw)
            start, end = self.span(entry)
            count = min(self.bits, (end - start) * 8)
            for bit in self.random(place, first_offset(entry)).sample(range(start * 8, end * 8), count):
                raw[bit // 8] ^= 1 << bit % 8
            return bytes(raw)

        return field.change_entries(flipped)

    @staticmethod
    def has_selected(place: PartitionBody, entry: Whole, budget: RecordBudget) -> bool:
        """Return True if a record of the batch matches the record conditions of the rule. Raises RecordsError."""
        if place.record_test is None:
            return True
        with budget.opened(entry) as spans:
            return any(map(place.record_test(spans), spans))

    def span(self, entry: Whole) -> tuple[int, int]:
        """Return start and end of the bytes that may change. An empty batch has its checksum only."""
        crc = CRC_AT[entry.magic]
        start = BATCH.size if isinstance(entry, Batch) else LEGACY.size
        if self.where == "crc" or start >= len(entry.raw):
            return crc, crc + CRC_SIZE
        return start, len(entry.raw)

    def holds_one(self, place: PartitionBody, entry: Whole) -> bool:
        """Return True if a selected offset lies in the batch and chance chooses it."""
        first, last = first_offset(entry), last_offset(entry)
        if self.offsets is not None and not any(one[0] <= last and first <= one[1] for one in self.offsets):
            return False
        return self.fraction == 1.0 or self.draw(place, first, b"") < self.fraction
