"""empty_fetch: there is data, and consumers do not get it, or not all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.bodies import partitions_of_answer, waited
from kproxy.rules.decision import Edit
from kproxy.rules.document.quantities import ByteCount
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.live import Decisions
from kproxy.rules.kinds.base.message_rule import ResponseRule
from kproxy.rules.records import whole_entries
from kproxy.wire.breath import each
from kproxy.wire.primitives import Buffer
from kproxy.wire.table.api_keys import FETCH, SHARE_FETCH

RECORDS, ABORTED, ACQUIRED = "records", "aborted_transactions", "acquired_records"


class EmptyFetch(ResponseRule):
    """Withholds records from consumers: all of them, or all beyond `max_bytes` of each partition.

    Offsets in the answer stay true, so consumers see that they lag. An answer in which nothing is left comes as late as
    one that a broker gives when there is no data (the request's `max_wait_ms`). With `cut`, a batch that does not fit
    is cut in its middle, as brokers do (KIP-74), instead of left out; one that begins the answer makes no progress.
    """

    apis: ClassVar = {FETCH: 0, SHARE_FETCH: 0}
    group = "records"
    example: ClassVar[str] = """\
- name: nothing comes from orders for half a minute
  kind: empty_fetch
  match: {topic: orders}
  when: {for: 30s}
"""

    kind: Literal["empty_fetch"] = Field(description="what the rule does")
    max_bytes: ByteCount = Field(default=0, description="bytes of records that a partition keeps")
    cut: bool = Field(default=False, description="whether the batch that goes beyond is cut there, or left out whole")

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        changed = False
        for place in partitions_of_answer(exchange, entities):
            data = place.body[RECORDS]
            if not data or len(data) <= self.max_bytes:
                continue
            place.body[RECORDS] = self.beginning(data)
            changed = True
            for name in (ABORTED, ACQUIRED):
                if not place.body[RECORDS] and place.body.get(name):
                    place.body[name] = []
        return changed

    def decide(self, exchange: Exchange, entities: Sequence[Entity]) -> Decisions:
        """Return an edit, later if nothing is left: as late as a broker answers that has no data."""
        return (Edit(), *waited(exchange)) if self.change(exchange, entities) else ()

    def beginning(self, data: Buffer) -> bytes:
        """Return as many whole entries as fit into `max_bytes`, or with `cut` exactly so many bytes."""
        if self.cut:
            return bytes(data[: self.max_bytes])
        size = 0
        for entry in each(whole_entries(data)[0]):
            if size + len(entry.raw) > self.max_bytes:
                break
            size += len(entry.raw)
        return bytes(data[:size])
