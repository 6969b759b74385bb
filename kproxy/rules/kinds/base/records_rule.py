"""The base classes of kinds that change records on their way, in requests to produce or in what is fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from random import Random
from typing import Any, Literal

from pydantic import Field

from kproxy.protocol.breath import breathe, each
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.records import Record
from kproxy.protocol.table.api_keys import FETCH, PRODUCE, SHARE_FETCH
from kproxy.rules.bodies import PartitionBody, partitions_of_answer, partitions_of_request
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange, FrameDepth
from kproxy.rules.records import RecordBudget, Whole, change_records, differ
from kproxy.rules.values.quantities import Ranges, Seed

from .live import Decisions, Effect, LiveRule
from .rule import Direction

RECORDS = "records"
WHOLE = 2**64


class RecordsRule(LiveRule):
    """Rule about the records of Produce requests, or of Fetch and ShareFetch answers. Override `change`."""

    at: Literal["produce", "fetch"] = Field(
        default="fetch", description="records that are written, or that are read (Fetch and ShareFetch)"
    )

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        if self.at == "produce":
            return FrameDepth.BODY if direction == "request" and key == PRODUCE else FrameDepth.NOTHING
        return FrameDepth.BODY if direction == "response" and key in (FETCH, SHARE_FETCH) else FrameDepth.NOTHING

    def change(self, data: Buffer, place: PartitionBody, room: RecordBudget) -> bytes | None:
        """The records field of a partition as it shall be, None to leave it."""
        raise NotImplementedError

    def start(self) -> Effect:
        return RecordChanges(self)


class RecordChanges(Effect):
    """Effect that goes through the partitions that match."""

    def __init__(self, rule: RecordsRule) -> None:
        self.rule = rule

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.go_through(partitions_of_request(exchange, entities))

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.go_through(partitions_of_answer(exchange, entities))

    def go_through(self, places: Iterator[PartitionBody]) -> Decisions:
        changed, room = False, RecordBudget()
        for place in places:
            data = place.body[RECORDS]
            after = self.rule.change(data, place, room) if data else None
            breathe()  # for each batch: one costs as much as many entities
            if after is not None:
                place.body[RECORDS] = after
                changed = True
        return (Edit(),) if changed else ()


class SomeRecordsRule(RecordsRule):
    """Rule about some of the records: by offset, by chance, or all of them. Override `change`."""

    offsets: Ranges | None = Field(
        default=None,
        description="only records with these offsets; of records that are written: their place in the batch, from 0",
    )
    fraction: float = Field(default=1.0, gt=0, le=1, description="the share of records that it is done to")
    seed: Seed = Field(default=0, description="decides which, and how; the same seed decides the same way every time")

    def chooses(self, place: PartitionBody, offset: int, content: bytes | None = b"") -> bool:
        """Return True if the rule acts on the record with this offset and content."""
        if self.offsets is not None and not any(offset in one for one in self.offsets):
            return False
        return self.fraction == 1.0 or self.draw(place, offset, content) < self.fraction

    def altered(
        self, data: Buffer, place: PartitionBody, room: RecordBudget, alter: Callable[[Record], Record]
    ) -> bytes | None:
        """Return a records field with the chosen records as `alter` returns them; None when no record differs."""

        def change(entry: Whole, before: Sequence[Record]) -> list[Record] | None:
            after = [
                alter(record) if self.chooses(place, record.offset, record.value) else record for record in each(before)
            ]
            return after if differ(before, after) else None

        return change_records(data, room, change)

    def draw(self, place: PartitionBody, offset: int, content: bytes | None) -> float:
        """Return a number from 0 up to 1 that depends on the seed and the record alone."""
        text = f"{self.seed}:{place.name}:{offset}:".encode(errors="surrogateescape")
        digest = blake2b(text + (content or b""), digest_size=8).digest()
        return int.from_bytes(digest, "big") / WHOLE

    def random(self, place: PartitionBody, *what: Any) -> Random:
        """Return chances that depend on the seed and the place alone."""
        return Random(":".join(map(str, (self.seed, place.name, *what))))
