"""poison_records: records change, and nothing shows it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import yield_point, yielding
from kproxy.protocol.records.spans import EntrySpans, Span
from kproxy.rules.bodies import PartitionBody
from kproxy.rules.content.edits import FieldEdits, RecordBudget
from kproxy.rules.kinds.base.records_rule import SomeRecordsRule

ByteString = bytes  # the model has a field of that name
MOST = 1000
LAST_BYTE = 255


class PoisonRecords(SomeRecordsRule):
    """Changes bytes of values (or keys) with a correct checksum, so that only the application can notice.

    Lengths, offsets, timestamps and headers stay. Null and empty values stay. On produce, the changed record is stored.
    """

    group = "records"
    example: ClassVar[str] = """\
- name: the record at offset 5 cannot be parsed
  kind: poison_records
  match: {topic: orders, partition: 0}
  at: fetch
  offsets: 5
  bytes: 3
"""

    kind: Literal["poison_records"] = Field(description="kind of the rule")
    where: Literal["value", "key"] = Field(default="value", description="changed part of a record")
    bytes: int = Field(default=1, ge=1, le=MOST, description="number of changed bytes")

    def change(self, field: FieldEdits, place: PartitionBody, budget: RecordBudget) -> bool:
        return self.alter(field, place, budget, lambda spans, span: self.poison(spans, span, place))

    def poison(self, spans: EntrySpans, span: Span, place: PartitionBody) -> Span:
        """Return the record with other bytes in its value or key."""
        content = bytearray((spans.value(span) if self.where == "value" else spans.key(span)) or b"")
        if not content:
            return span
        yield_point()  # for each record: one costs as much as many that are only looked at
        random = self.random(place, spans.offset(span))
        for at in yielding(random.sample(range(len(content)), min(self.bytes, len(content)))):
            content[at] ^= random.randint(1, LAST_BYTE)
        changed = ByteString(content)
        return spans.edit(span, value=changed) if self.where == "value" else spans.edit(span, key=changed)
