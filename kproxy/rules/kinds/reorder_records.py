"""reorder_records: records change places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import yielding
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.records import Record
from kproxy.rules.bodies import PartitionBody
from kproxy.rules.kinds.base.records_rule import (
    RecordBudget,
    SomeRecordsRule,
    Whole,
    change_records,
    differ,
    first_offset,
)


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

    def change(self, data: Buffer, place: PartitionBody, room: RecordBudget) -> bytes | None:
        def shuffled(entry: Whole, records: Sequence[Record]) -> list[Record] | None:
            moving = [record for record in yielding(records) if self.chooses(place, record.offset, record.value)]
            moved = shuffle(moving, self.random(place, first_offset(entry)))
            there = {id(old): replace(new, offset=old.offset) for old, new in yielding(zip(moving, moved, strict=True))}
            after = [there.get(id(record), record) for record in yielding(records)]
            return after if differ(records, after) else None

        return change_records(data, room, shuffled)


def shuffle(records: Sequence[Record], random: Random) -> list[Record]:
    """Return the records as `random.shuffle` would put them, with yield points."""
    shuffled = list(records)
    for last in yielding(range(len(shuffled) - 1, 0, -1)):
        other = random.randrange(last + 1)
        shuffled[last], shuffled[other] = shuffled[other], shuffled[last]
    return shuffled
