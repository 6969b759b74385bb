"""duplicate_records: each record twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.protocol.records.spans import EntrySpans, Span
from kproxy.rules.bodies import PartitionBody
from kproxy.rules.content.edits import FieldEdits, RecordBudget
from kproxy.rules.kinds.base.records_rule import SomeRecordsRule

MOST = 100
"""Copies of one record; a batch grows with it, towards the broker's `message.max.bytes`."""


class DuplicateRecords(SomeRecordsRule):
    """Doubles records: stored twice, or read twice.

    On produce, copies follow their originals in the same batch and get their own offsets; all consumers see them. The
    producer receives the offset of the first record and counts from it, so offsets of later records are too low.
    Batches of idempotent producers are not changed: their records are counted. On fetch, a copy has the offset of its
    original: librdkafka delivers both, the Java client skips the second.
    """

    group = "records"
    example: ClassVar[str] = """\
- name: a tenth of what is written to orders is stored twice
  kind: duplicate_records
  match: {topic: orders}
  at: produce
  fraction: 0.1
"""

    kind: Literal["duplicate_records"] = Field(description="kind of the rule")
    copies: int = Field(default=1, ge=1, le=MOST, description="number of copies")

    def warnings(self) -> Iterable[str]:
        if self.at == "produce":
            yield "batches of idempotent producers, Java's default, are left alone: their records are counted"
        else:
            yield "consumers that go by offsets, such as Java's, pass over copies: they have no offsets of their own"

    def change(self, field: FieldEdits, place: PartitionBody, budget: RecordBudget) -> bool:
        def doubled(spans: EntrySpans, records: Iterable[Span]) -> Iterator[Span]:
            chosen = self.chooser(place, spans)
            return (one for span in records for one in (span,) * (1 + self.copies * chosen(span)))

        return field.change_records(doubled, budget, renumber=self.at == "produce")
