"""malformed_batch: batches of records that no broker would send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import yielding
from kproxy.base.errors import RecordsError
from kproxy.protocol.records import Batch, Record, decode_control
from kproxy.protocol.records.entry import ATTRIBUTES_AT, CODEC, CRC_AT, LENGTH_AT, MAGIC_AT, batch_at, crc_of
from kproxy.rules.bodies import PartitionBody, partitions_of_answer
from kproxy.rules.content.edits import FieldEdits, RecordBudget, Whole, is_control
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange
from kproxy.rules.kinds.base.records_rule import RecordChanges, RecordsRule
from kproxy.rules.kinds.base.rule import Decisions, Effect

MAGIC = 9
COUNT_AT = batch_at("count")
NEGATIVE = b"\xff\xff\xff\xff"
ABORT = "abort"
FEW_RECORDS = 100
"""In a control batch; brokers write one."""


class MalformedBatch(RecordsRule):
    """Makes the first batch of each partition one that nobody would write; the checksum is right.

    Control batches are passed over. `negative_length`: the length is -1. `negative_count`: the number of records is -1
    (batches only, not the older messages). `bad_magic`: format 9. `unknown_codec`: compression 7. `double_abort`: every
    abort marker of a transaction, and every entry of the list of aborted transactions, is there twice (fetch only).
    """

    group = "records"
    example: ClassVar[str] = """\
- name: a batch with fewer than no records
  kind: malformed_batch
  match: {topic: orders}
  when: {nth: 2}
  defect: negative_count
"""

    kind: Literal["malformed_batch"] = Field(description="kind of the rule")
    defect: Literal["negative_length", "negative_count", "bad_magic", "unknown_codec", "double_abort"] = Field(
        description="defect of the batch"
    )

    def change(self, field: FieldEdits, place: PartitionBody, budget: RecordBudget) -> bool:
        field.flush()
        batches, rest = field.entries, field.rest
        if self.defect == "double_abort":
            pieces = [entry.raw for entry in yielding(batches) for _ in range(1 + is_abort(entry))]
            return len(pieces) > len(batches) and field.replace(b"".join((*pieces, rest)))
        for entry in yielding(batches):
            spoiled = None if is_control(entry) else self.malformed(entry)
            if spoiled is not None:
                pieces = [memoryview(spoiled) if one is entry else one.raw for one in yielding(batches)]
                return field.replace(b"".join((*pieces, rest)))
        return False

    def malformed(self, entry: Whole) -> bytes | None:
        """The entry's bytes, wrong in one place."""
        spoiled, magic = bytearray(entry.raw), entry.magic
        if self.defect == "negative_length":
            spoiled[LENGTH_AT : LENGTH_AT + 4] = NEGATIVE
            return bytes(spoiled)
        if self.defect == "negative_count":
            if not isinstance(entry, Batch):
                return None
            spoiled[COUNT_AT : COUNT_AT + 4] = NEGATIVE
        elif self.defect == "bad_magic":
            spoiled[MAGIC_AT] = MAGIC
        else:
            spoiled[ATTRIBUTES_AT[magic]] |= CODEC
        spoiled[CRC_AT[magic] : CRC_AT[magic] + 4] = crc_of(spoiled, magic).to_bytes(4, "big")
        return bytes(spoiled)

    def start(self) -> Effect:
        return MalformedBatches(self)


class MalformedBatches(RecordChanges):
    """Effect that also doubles the list of aborted transactions."""

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        decided = super().on_response(exchange, entities, now)
        if not isinstance(self.rule, MalformedBatch) or self.rule.defect != "double_abort":
            return decided
        for place in partitions_of_answer(exchange, entities):
            if aborted := place.body.get("aborted_transactions"):
                place.body["aborted_transactions"] = [one for one in yielding(aborted) for _ in range(2)]
                decided = (Edit(),)
        return decided


def is_abort(entry: Whole) -> bool:
    """Return True for the marker of a transaction that was aborted."""
    if not isinstance(entry, Batch) or not entry.is_control or entry.count > FEW_RECORDS:
        return False
    try:
        with RecordBudget().opened(entry) as spans:
            records = (Record(0, 0, spans.key(span), spans.value(span)) for span in spans)
            return any(decode_control(record).name == ABORT for record in records)
    except RecordsError:
        return False
