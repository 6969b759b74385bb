"""Task of Spark's workers that rehearses connections: chunks of exchanges in, sums of findings out.

The chunks of a connection are in one partition and in order; the candidate rules are made once a partition and capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any
from uuid import UUID

import pyarrow as pa

from .candidate import Candidate, RuleTexts
from .finding_sums import FindingRow, FindingSums
from .packed_exchange import CaptureSummary, ExchangeChunk, PackedExchange, RecordedClient, unpack_chunk
from .packing import facts_of
from .tables import FINDINGS

BATCH = 1000
"""Rows in one Arrow batch."""

_TYPES = {"string": pa.string(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "double": pa.float64(),
          "timestamp": pa.timestamp("us", tz="UTC")}  # fmt: skip
ARROW = pa.schema([(one.name, pa.list_(_TYPES[one.type]) if one.array else _TYPES[one.type]) for one in FINDINGS])

ArrowBatches = Iterable[pa.RecordBatch]


def rehearse(texts: RuleTexts, summaries: Mapping[str, CaptureSummary]) -> Callable[[ArrowBatches], ArrowBatches]:
    """Return the task for `mapInArrow`. `summaries`: of each capture."""

    def run(batches: ArrowBatches) -> Iterator[pa.RecordBatch]:
        pending: list[FindingRow] = []
        for row in rows(batches, texts, summaries):
            pending.append(row)
            if len(pending) >= BATCH:
                yield pa.RecordBatch.from_pylist(pending, schema=ARROW)
                pending = []
        if pending:
            yield pa.RecordBatch.from_pylist(pending, schema=ARROW)

    return run


def rows(batches: ArrowBatches, texts: RuleTexts, summaries: Mapping[str, CaptureSummary]) -> Iterator[FindingRow]:
    """Yield the rows of FINDINGS of one partition."""
    candidates: dict[str, Candidate] = {}  # of each capture: topic ids are its own
    sums, count = FindingSums(), 0
    for (capture, number, _), members in groupby(given(batches), key=lambda row: row[:3]):
        exchanges = UnpackedExchanges(packed for *_, packed in members)
        candidate = candidates.get(capture)
        if candidate is None:
            topics = {UUID(topic_id): name for topic_id, name in summaries[capture].topics.items()}
            candidate = candidates[capture] = Candidate(texts, summaries[capture].began, topics)
        caller = RecordedClient(f"{capture}:{number}", facts_of(capture, exchanges.first))
        for rule, finding in candidate.findings(caller, exchanges):
            sums.add(rule, finding, capture, number, caller, candidate.topics)
            if sums.full:
                yield from sums.groups()
        count += exchanges.count
    yield from sums.groups()
    yield from sums.samples()
    if count:
        yield {"what": "exchanges", "count": count}
    for candidate in candidates.values():
        for counts in candidate.counted():
            yield {
                "what": "rule", "rule": counts.rule, "kind": counts.kind, "matched": counts.matched,
                "fired": counts.fired, "applied": counts.applied, "approximate": counts.approximate,
            }  # fmt: skip


def given(batches: ArrowBatches) -> Iterator[tuple[str, int, int, Any]]:
    """Yield (capture, connection, place, packed) of each chunk; packed ones are read where Arrow has them."""
    for batch in batches:
        names = ("capture", "connection", "place")
        packed = (one.as_buffer() for one in batch.column("packed"))
        yield from zip(*(batch.column(name).to_pylist() for name in names), packed, strict=True)


class UnpackedExchanges:
    """Exchanges of one connection, unpacked and counted as they are taken."""

    def __init__(self, packed: Iterator[Any]) -> None:
        self.first: ExchangeChunk = unpack_chunk(next(packed))
        self.rest, self.count = packed, 0

    def __iter__(self) -> Iterator[PackedExchange]:
        self.count += len(self.first.exchanges)
        yield from self.first.exchanges
        for data in self.rest:
            chunk = unpack_chunk(data)
            self.count += len(chunk.exchanges)
            yield from chunk.exchanges
