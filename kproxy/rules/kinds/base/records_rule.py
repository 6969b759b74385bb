"""Base classes of kinds that change the records of Produce requests, or of Fetch and ShareFetch responses.

All rules of a message change its records through `MessageEdits` (`rules/content/edits.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import yield_point
from kproxy.protocol.records import Batch
from kproxy.protocol.records.spans import EntrySpans, Span
from kproxy.protocol.table.api_keys import FETCH, PRODUCE, SHARE_FETCH
from kproxy.rules.bodies import PartitionBody, selected_partitions
from kproxy.rules.content.edits import RECORDS, FieldEdits, MessageEdits, RecordBudget, Whole
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange, FrameDepth
from kproxy.rules.values.quantities import Ranges, Seed

from .record_selector import budget_of
from .rule import Decisions, Direction, Effect, LiveRule


def first_offset(entry: Whole) -> int:
    """Return the first offset of an entry. For a message wrapper it is the last offset, the only one in its header."""
    return entry.base_offset if isinstance(entry, Batch) else entry.offset


def last_offset(entry: Whole) -> int:
    return entry.last_offset if isinstance(entry, Batch) else entry.offset


WHOLE = 2**64


def edits_of(exchange: Exchange, direction: Direction) -> MessageEdits:
    """Return the edits of the records of a message. Raises DecodeError."""
    edits = exchange.pending_edits(direction)
    if edits is None:
        edits = exchange.edits = MessageEdits(exchange.request if direction == "request" else exchange.response)
    return edits


class RecordsRule(LiveRule):
    """Rule about the records of Produce requests, or of Fetch and ShareFetch answers. Override `change`."""

    at: Literal["produce", "fetch"] = Field(
        default="fetch", description="records of Produce requests, or of Fetch and ShareFetch responses"
    )

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        if self.at == "produce":
            return FrameDepth.BODY if direction == "request" and key == PRODUCE else FrameDepth.NOTHING
        return FrameDepth.BODY if direction == "response" and key in (FETCH, SHARE_FETCH) else FrameDepth.NOTHING

    def change(self, field: FieldEdits, place: PartitionBody, budget: RecordBudget) -> bool:
        """Change the records of a partition. Return True if any record changed."""
        raise NotImplementedError

    def start(self) -> Effect:
        return RecordChanges(self)


class RecordChanges(Effect):
    """Effect that goes through the partitions that match."""

    def __init__(self, rule: RecordsRule) -> None:
        self.rule = rule

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.go_through(exchange, entities, "request", now)

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.go_through(exchange, entities, "response", now)

    def go_through(self, exchange: Exchange, entities: Sequence[Entity], direction: Direction, now: float) -> Decisions:
        edits, budget, changed = edits_of(exchange, direction), budget_of(exchange), False
        selects = self.rule.selects_single_records and self.rule.selects_records
        for place in selected_partitions(edits.message, exchange, entities):
            if place.body[RECORDS]:
                if selects:
                    test = self.rule.record_test(exchange, place.asked or place.entity, now, self.records)
                    place = replace(place, record_test=test)
                field = edits.field(place.body)
                field.counts = self.records
                changed |= self.change(exchange, field, place, budget, now)
            yield_point()  # for each batch: one costs as much as many entities
        return (Edit(),) if changed else ()

    def change(
        self, exchange: Exchange, field: FieldEdits, place: PartitionBody, budget: RecordBudget, now: float
    ) -> bool:
        """Change the records of a partition. Return True if any record changed. Override it for a rule that needs the
        exchange or the time."""
        return self.rule.change(field, place, budget)


class SomeRecordsRule(RecordsRule):
    """Rule about some of the records: by content, by offset, by chance, or all of them. Override `change`."""

    selects_single_records: ClassVar[bool] = True

    offsets: Ranges | None = Field(
        default=None,
        description="only records with these offsets; in Produce requests: positions in the batch, from 0",
    )
    fraction: float = Field(default=1.0, gt=0, le=1, description="fraction of records to change")
    seed: Seed = Field(default=0, description="seed of the selection and the changes")

    def chooser(self, place: PartitionBody, spans: EntrySpans) -> Callable[[Span], bool]:
        """Return a function that returns True if the rule acts on a record."""
        test = None if place.record_test is None else place.record_test(spans)
        if self.offsets is None and self.fraction == 1.0:
            return test or (lambda span: True)

        def chooses(span: Span) -> bool:
            offset = spans.offset(span)
            if self.offsets is not None and not any(offset in one for one in self.offsets):
                return False
            if test is not None and not test(span):
                return False
            return self.fraction == 1.0 or self.draw(place, offset, spans.value(span)) < self.fraction

        return chooses

    def alter(
        self, field: FieldEdits, place: PartitionBody, budget: RecordBudget, alter: Callable[[EntrySpans, Span], Span]
    ) -> bool:
        """Replace the chosen records by those that `alter` returns. Return True if any record differs."""

        def change(spans: EntrySpans, records: Iterable[Span]) -> Iterator[Span]:
            chosen = self.chooser(place, spans)
            return (alter(spans, span) if chosen(span) else span for span in records)

        return field.change_records(change, budget)

    def draw(self, place: PartitionBody, offset: int, content: bytes | None) -> float:
        """Return a number from 0 up to 1 that depends on the seed and the record alone."""
        text = f"{self.seed}:{place.name}:{offset}:".encode(errors="surrogateescape")
        digest = blake2b(text + (content or b""), digest_size=8).digest()
        return int.from_bytes(digest, "big") / WHOLE

    def random(self, place: PartitionBody, *what: Any) -> Random:
        """Return chances that depend on the seed and the place alone."""
        return Random(":".join(map(str, (self.seed, place.name, *what))))
