"""drop_records: records vanish on their way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.protocol.elements import retain
from kproxy.protocol.records.spans import EntrySpans, Span
from kproxy.rules.bodies import PartitionBody, partitions_of_request
from kproxy.rules.content.edits import RECORDS, FieldEdits, RecordBudget
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Decision, Drop, Edit, Exchange, Fail
from kproxy.rules.kinds.base.records_rule import RecordChanges, SomeRecordsRule
from kproxy.rules.kinds.base.rule import Decisions, Effect, Permanent

SUCCESS = 0


class DropRecords(SomeRecordsRule):
    """Removes records: from a Produce request, which the producer does not notice, or from a Fetch response.

    On fetch, other records keep their offsets, as after compaction, and consumers continue after the gap. On produce,
    the producer receives success. A partition without remaining records gets a response from kproxy, without an offset.
    Batches of idempotent producers are not changed on produce, since the broker would reject the next batch. Messages
    of older formats cannot show missing records: a Fetch without remaining messages makes no progress.
    """

    group = "records"
    example: ClassVar[str] = """\
- name: one record in a hundred never arrives
  kind: drop_records
  match: {topic: orders}
  at: fetch
  fraction: 0.01
  seed: 7
"""

    kind: Literal["drop_records"] = Field(description="kind of the rule")
    permanent: Permanent = False

    def warnings(self) -> Iterable[str]:
        if self.at == "produce":
            yield "batches of idempotent producers, Java's default, are left alone: their records are counted"

    def change(self, field: FieldEdits, place: PartitionBody, budget: RecordBudget) -> bool:
        def kept(spans: EntrySpans, records: Iterable[Span]) -> Iterator[Span]:
            chosen = self.chooser(place, spans)
            return (span for span in records if not chosen(span))

        return field.change_records(kept, budget, renumber=self.at == "produce")

    def start(self) -> Effect:
        return LostRecords(self)


class LostRecords(RecordChanges):
    """Effect that responds for partitions without remaining records."""

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        changed = super().on_request(exchange, entities, now)
        gone = [one for one in partitions_of_request(exchange, entities) if changed and one.body[RECORDS] == b""]
        if not gone:
            return changed
        if exchange.acks != 0:
            decided: list[Decision] = [*changed, Fail(SUCCESS, entities=tuple(one.asked for one in gone if one.asked))]
            return decided
        return (Edit(),) if left_after(exchange, gone) else (Drop("continue"),)


def left_after(exchange: Exchange, gone: Sequence[PartitionBody]) -> bool:
    """Remove these partitions from a request with acks=0. Return True if any partition is left."""
    out = {id(place.body) for place in gone}
    return retain(exchange.request, lambda partition: id(partition.fields) not in out)
