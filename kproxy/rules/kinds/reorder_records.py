"""reorder_records: records change places."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.bodies.records import Buffer, Whole, change_entries, first_offset, stored
from kproxy.rules.bodies.topics import Place
from kproxy.rules.kinds.records_rule import SomeRecordsRule
from kproxy.wire.records import Record, rewrite


class ReorderRecords(SomeRecordsRule):
    """Shuffles the records within each batch: the offsets stay, what stands at them changes places.

    On produce this is how they are stored, also for idempotent producers, since their number stays. Batches of a single
    record, and uncompressed messages of the formats before batches, cannot be shuffled. `offsets` and `fraction` say
    which records take part.
    """

    example: ClassVar[str] = """\
- name: orders come in disorder
  kind: reorder_records
  match: {topic: orders}
  at: fetch
"""

    kind: Literal["reorder_records"] = Field(description="what the rule does")

    def change(self, data: Buffer, place: Place) -> bytes | None:
        def shuffled(entry: Whole) -> bytes | None:
            records = stored(entry)
            moving = [record for record in records if self.chooses(place, record.offset, record.value)]
            moved = list(moving)
            self.random(place, first_offset(entry)).shuffle(moved)
            there = {id(old): replace(new, offset=old.offset) for old, new in zip(moving, moved, strict=True)}
            after: list[Record] = [there.get(id(record), record) for record in records]
            return rewrite(entry, after) if after != records else None

        return change_entries(data, shuffled)
