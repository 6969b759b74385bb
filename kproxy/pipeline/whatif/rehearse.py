"""Rehearses connections in Spark's workers: chunks of exchanges in, sums of findings out, connection by connection.

The chunks of a connection are in one partition and in order; the candidate rules are made once a partition and capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any
from uuid import UUID

import pyarrow as pa

from .candidate import Candidate, Texts
from .found import Found, Row
from .packing import facts_of
from .recorded import Caller, Chunk, Recorded, Told, unpack_chunk
from .tables import FINDINGS

BATCH = 1000
"""Rows in one Arrow batch."""

_TYPES = {"string": pa.string(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "double": pa.float64(),
          "timestamp": pa.timestamp("us", tz="UTC")}  # fmt: skip
ARROW = pa.schema([(one.name, pa.list_(_TYPES[one.type]) if one.array else _TYPES[one.type]) for one in FINDINGS])

Batches = Iterable[pa.RecordBatch]


def rehearse(texts: Texts, told: Mapping[str, Told]) -> Callable[[Batches], Batches]:
    """For `mapInArrow`. `told`: of each capture."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        pending: list[Row] = []
        for found in rows(batches, texts, told):
            pending.append(found)
            if len(pending) >= BATCH:
                yield pa.RecordBatch.from_pylist(pending, schema=ARROW)
                pending = []
        if pending:
            yield pa.RecordBatch.from_pylist(pending, schema=ARROW)

    return run


def rows(batches: Batches, texts: Texts, told: Mapping[str, Told]) -> Iterator[Row]:
    """Rows of FINDINGS."""
    candidates: dict[str, Candidate] = {}  # of each capture: topic ids are its own
    found, count = Found(), 0
    for (capture, number, _), members in groupby(given(batches), key=lambda row: row[:3]):
        exchanges = Unpacked(packed for *_, packed in members)
        candidate = candidates.get(capture)
        if candidate is None:
            topics = {UUID(topic_id): name for topic_id, name in told[capture].topics.items()}
            candidate = candidates[capture] = Candidate(texts, told[capture].began, topics)
        caller = Caller(f"{capture}:{number}", facts_of(capture, exchanges.first))
        for rule, finding in candidate.findings(caller, exchanges):
            found.add(rule, finding, capture, number, caller, candidate.topics)
            if found.full:
                yield from found.groups()
        count += exchanges.count
    yield from found.groups()
    yield from found.samples()
    if count:
        yield {"what": "exchanges", "count": count}
    for candidate in candidates.values():
        for one in candidate.counted():
            yield {
                "what": "rule", "rule": one.rule, "kind": one.kind, "matched": one.matched, "fired": one.fired,
                "applied": one.applied, "approximate": one.approximate,
            }  # fmt: skip


def given(batches: Batches) -> Iterator[tuple[str, int, int, Any]]:
    """(capture, connection, place, packed) of each chunk; packed ones are read where Arrow has them."""
    for batch in batches:
        names = ("capture", "connection", "place")
        packed = (one.as_buffer() for one in batch.column("packed"))
        yield from zip(*(batch.column(name).to_pylist() for name in names), packed, strict=True)


class Unpacked:
    """The exchanges of one connection, counted as they are taken."""

    def __init__(self, packed: Iterator[Any]) -> None:
        self.first: Chunk = unpack_chunk(next(packed))
        self.rest, self.count = packed, 0

    def __iter__(self) -> Iterator[Recorded]:
        self.count += len(self.first.exchanges)
        yield from self.first.exchanges
        for one in self.rest:
            chunk = unpack_chunk(one)
            self.count += len(chunk.exchanges)
            yield from chunk.exchanges
