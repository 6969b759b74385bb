"""corrupt: bits of a frame are flipped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.base.errors import RecordsError
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.records import Batch, LegacyEntry, entries
from kproxy.protocol.records.entry import BATCH_CRC_FROM, LEGACY_CRC_FROM
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.rules.bodies import carries_records, partitions_among
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange, Reframe
from kproxy.rules.kinds.base.frame_rule import SIZE, FrameRule, body_at, flipped
from kproxy.rules.kinds.base.rule import Decisions, Direction
from kproxy.rules.select.selected import keys_of
from kproxy.rules.values.model import Wrong
from kproxy.rules.values.quantities import Seed

WITH_RECORDS = "Produce requests, Fetch and ShareFetch responses"
MOST = 1_000_000


class Corrupt(FrameRule):
    """Flips bits of a frame, the same ones in each run with the same seed.

    In records, the bits are within the range of a checksum, and the checksum stays, so that any check of it fails.
    """

    group = "frames"
    always_acts: ClassVar[bool] = False  # `where: records` needs records in the frame
    example: ClassVar[str] = """\
- name: a disk that forgets
  kind: corrupt
  match: {api: Fetch, topic: orders}
  when: {probability: 0.01}
  where: records
  bits: 3
  seed: 7
"""

    kind: Literal["corrupt"] = Field(description="kind of the rule")
    where: Literal["header", "body", "records"] = Field(
        default="body", description="header (correlation id, …), body, or record batches"
    )
    bits: int = Field(default=1, ge=1, le=MOST, description="number of bits; for records, in each partition")
    at: Direction | None = Field(
        default=None,
        description="changed frame (default: the response, or the frame with records)",
    )
    seed: Seed | None = Field(default=None, description="seed of random choices (default: random, logged)")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        if raw.get("where") != "records":
            return
        match = raw.get("match")
        apis = match.get("api") if isinstance(match, dict) else None
        keys = _keys(apis)
        sides = ("request", "response") if raw.get("at") is None else (raw["at"],)
        if keys is not None and not any(carries_records(key, side) for key in keys for side in sides):
            at = f" at {raw['at']}" if raw.get("at") is not None else ""
            yield ("match", "api"), f"there are no records{at} here: records are in {WITH_RECORDS}"

    def side(self, key: int) -> Direction | None:
        """Return the side that was written, of records the one that has them in this API."""
        if self.where != "records":
            return self.at or "response"
        side: Direction = "request" if key == PRODUCE else "response"
        return side if carries_records(key, side) and self.at in (None, side) else None

    @property
    def reads_entities(self) -> bool:
        """Return True for records, which are those of partitions."""
        return self.where == "records"

    @property
    def own_seed(self) -> int | None:
        return self.seed

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:
        side = self.side(exchange.api.key)
        assert side is not None
        if self.where == "records":
            return self.corrupt_records(exchange, entities, side, random)

        def spoil(frame: bytes) -> bytes:
            body = body_at(frame, exchange, side)
            start, end = (SIZE, body) if self.where == "header" else (body, len(frame))
            return flipped(frame, start, end, self.bits, random)

        return (Reframe(spoil),)

    def corrupt_records(
        self, exchange: Exchange, entities: Sequence[Entity], side: Direction, random: Random
    ) -> Decisions:
        message = exchange.request if side == "request" else exchange.response
        changed = False
        for _, partition in partitions_among(message, entities or exchange.entities):
            records = partition.records
            if records is not None and (spans := covered(records)):
                start, end = spans[int(random.random() * len(spans))]
                partition.fields["records"] = flipped(bytes(records), start, end, self.bits, random)
                changed = True
        return (Edit(),) if changed else ()


def covered(records: Buffer) -> list[tuple[int, int]]:
    """Return start and end of the bytes that a checksum is over, for each whole batch."""
    spans: list[tuple[int, int]] = []
    position = 0
    try:
        for entry in entries(records):
            if isinstance(entry, Batch | LegacyEntry):
                first = BATCH_CRC_FROM if isinstance(entry, Batch) else LEGACY_CRC_FROM
                spans.append((position + first, position + len(entry.raw)))
                position += len(entry.raw)
    except RecordsError:  # the rest is already invalid
        pass
    return spans


def _keys(written: Any) -> frozenset[int] | None:
    """Return the keys of the selected APIs. None: all APIs, or an invalid selector."""
    if written is None:
        return None
    try:
        return frozenset[int]().union(*(keys_of(one) for one in (written if isinstance(written, list) else [written])))
    except (ValueError, AttributeError):  # the type of the selector reports it
        return None
