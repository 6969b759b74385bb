"""empty_fetch: there is data, and consumers do not get it, or not all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import yielding
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.table.api_keys import FETCH, SHARE_FETCH
from kproxy.rules.bodies import partitions_of_answer, waited
from kproxy.rules.content.edits import whole_entries
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange
from kproxy.rules.kinds.base.message_rule import ResponseRule
from kproxy.rules.kinds.base.records_rule import last_offset
from kproxy.rules.kinds.base.rule import Decisions
from kproxy.rules.values.quantities import ByteCount

RECORDS, ABORTED, ACQUIRED = "records", "aborted_transactions", "acquired_records"


class EmptyFetch(ResponseRule):
    """Withholds records from consumers: all, or all beyond `max_bytes`, or beyond the first `batches`, of each
    partition.

    Offsets in the response stay true, so consumers see their lag. A response without records is delayed by the
    request's `max_wait_ms`, as from a broker without data. With `cut`, a batch that does not fit is cut, as brokers do
    (KIP-74), instead of removed; a cut first batch makes no progress. `batches: 1` alone delivers one batch per
    partition and response.
    """

    apis: ClassVar = {FETCH: 0, SHARE_FETCH: 0}
    group = "records"
    example: ClassVar[str] = """\
- name: nothing comes from orders for half a minute
  kind: empty_fetch
  match: {topic: orders}
  when: {for: 30s}
"""

    kind: Literal["empty_fetch"] = Field(description="kind of the rule")
    max_bytes: ByteCount = Field(default=0, description="bytes of records that a partition keeps")
    batches: Annotated[int, Field(ge=0)] = Field(
        default=0, description="batches that a partition keeps regardless of their size, as brokers return at least one"
    )
    cut: bool = Field(default=False, description="cut the batch at the limit, or omit it")

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        changed = False
        for place in partitions_of_answer(exchange, entities):
            data = place.body[RECORDS]
            if not data or len(data) <= self.max_bytes:
                continue
            kept = self.beginning(data)
            if len(kept) == len(data):
                continue
            place.body[RECORDS] = kept
            changed = True
            if not kept and place.body.get(ABORTED):
                place.body[ABORTED] = []
            if place.body.get(ACQUIRED):
                place.body[ACQUIRED] = acquired(place.body[ACQUIRED], kept)
        return changed

    def decide(self, exchange: Exchange, entities: Sequence[Entity]) -> Decisions:
        return (Edit(), *waited(exchange)) if self.change(exchange, entities) else ()

    def beginning(self, data: Buffer) -> bytes:
        """Return the whole entries that fit into `max_bytes`, or with `cut` exactly `max_bytes`. At least the first
        `batches`."""
        if self.cut and not self.batches:
            return bytes(data[: self.max_bytes])
        size, whole = 0, whole_entries(data)[0]
        if len(whole) <= self.batches:  # a cut one behind them is what a broker sends
            return bytes(data)
        for number, entry in enumerate(yielding(whole)):
            if number >= self.batches and (self.cut or size + len(entry.raw) > self.max_bytes):
                break
            size += len(entry.raw)
        return bytes(data[: max(size, self.max_bytes) if self.cut else size])


def acquired(spans: list[dict[str, Any]], kept: Buffer) -> list[dict[str, Any]]:
    """Return the spans of offsets that a share consumer has, as far as it gets the records of these offsets."""
    whole = whole_entries(kept)[0]
    last = last_offset(whole[-1]) if whole else -1
    return [
        span | {"last_offset": min(span["last_offset"], last)}
        for span in yielding(spans)
        if span["first_offset"] <= last
    ]
