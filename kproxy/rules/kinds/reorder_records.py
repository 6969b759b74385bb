"""reorder_records: records change places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import free_list, yielding
from kproxy.protocol.records.spans import OFFSET_DELTA, EntrySpans, Span
from kproxy.rules.bodies import PartitionBody
from kproxy.rules.content.edits import FieldEdits, RecordBudget
from kproxy.rules.kinds.base.records_rule import SomeRecordsRule, first_offset


class ReorderRecords(SomeRecordsRule):
    """Shuffles the records within each batch: offsets stay in order, records change places.

    On produce, the broker stores this order, also for idempotent producers, since the number of records stays. Batches
    of a single record, and uncompressed messages of older formats, cannot be shuffled. `offsets` and `fraction` select
    the records.
    """

    group = "records"
    example: ClassVar[str] = """\
- name: orders come in disorder
  kind: reorder_records
  match: {topic: orders}
  at: fetch
"""

    kind: Literal["reorder_records"] = Field(description="kind of the rule")

    def change(self, field: FieldEdits, place: PartitionBody, budget: RecordBudget) -> bool:
        def shuffled(spans: EntrySpans, before: Iterable[Span]) -> Iterator[Span]:
            chosen = self.chooser(place, spans)
            records = [(span, chosen(span)) for span in before]
            moved = shuffle([span for span, moves in records if moves], self.random(place, first_offset(spans.entry)))
            following = iter(moved)
            for span, moves in records:
                yield spans.edit(next(following), offset_delta=span[OFFSET_DELTA]) if moves else span
            free_list(records)
            free_list(moved)

        return field.change_records(shuffled, budget)


def shuffle(spans: Sequence[Span], random: Random) -> list[Span]:
    """Return the spans as `random.shuffle` would put them, with yield points."""
    shuffled = list(spans)
    for last in yielding(range(len(shuffled) - 1, 0, -1)):
        other = random.randrange(last + 1)
        shuffled[last], shuffled[other] = shuffled[other], shuffled[last]
    return shuffled
