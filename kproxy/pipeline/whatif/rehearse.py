"""Rehearses connections in Spark's workers: rows of exchanges in, rows of findings out, one connection after the other.

The rows of a connection are in one partition and in the order of its requests; the candidate rules are made once a
partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby
from typing import Any
from uuid import UUID

import pyarrow as pa

from kproxy.errors import DecodeError
from kproxy.rules.entity_reader import entity_reader
from kproxy.rules.facts import Facts
from kproxy.wire import schema
from kproxy.wire.head import body_start
from kproxy.wire.layout import ZERO_UUID

from .candidate import Candidate, Texts
from .recorded import Caller, Recorded
from .rehearsal import Finding
from .tables import FINDINGS

MOST_TOPICS = 20
"""Topics of one request that a finding names."""
BATCH = 1000
"""Findings in one Arrow batch."""

Topics = Mapping[UUID, str]
Row = dict[str, Any]

_TYPES = {"string": pa.string(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "double": pa.float64(),
          "timestamp": pa.timestamp("us", tz="UTC")}  # fmt: skip
ARROW = pa.schema([(one.name, pa.list_(_TYPES[one.type]) if one.array else _TYPES[one.type]) for one in FINDINGS])


def rehearse(
    texts: Texts, topics: Mapping[str, Topics]
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """For `mapInArrow`. `topics`: names by topic id, by capture."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pending: list[Row] = []
        for found in rows(batches, texts, topics):
            pending.append(found)
            if len(pending) >= BATCH:
                yield pa.RecordBatch.from_pylist(pending, schema=ARROW)
                pending = []
        if pending:
            yield pa.RecordBatch.from_pylist(pending, schema=ARROW)

    return run


def rows(batches: Iterable[pa.RecordBatch], texts: Texts, topics: Mapping[str, Topics]) -> Iterator[Row]:
    """Rows of FINDINGS."""
    candidates: dict[str, Candidate] = {}  # of each capture: topic ids are its own
    count = 0
    given = (row for batch in batches for row in batch.to_pylist())
    for (capture, number), members in groupby(given, key=lambda row: (row["capture"], row["connection"])):
        exchanges = Counting(members)
        first = exchanges.first
        candidate = candidates.get(capture)
        if candidate is None:
            candidate = candidates[capture] = Candidate(texts, first["request_time"], topics.get(capture))
        caller = caller_of(first)
        for rule, finding in candidate.findings(caller, exchanges):
            yield finding_row(rule, finding, capture, number, caller, candidate.topics)
        count += exchanges.count
    if count:
        yield {"what": "exchanges", "count": count}
    for candidate in candidates.values():
        for one in candidate.counted():
            yield {
                "what": "rule", "rule": one.rule, "kind": one.kind, "matched": one.matched, "fired": one.fired,
                "applied": one.applied, "approximate": one.approximate,
            }  # fmt: skip


class Counting:
    """The exchanges of one connection, counted as they are taken."""

    def __init__(self, members: Iterator[Row]) -> None:
        self.first, self.rest, self.count = next(members), members, 0

    def __iter__(self) -> Iterator[Recorded]:
        yield self.made(self.first)
        for row in self.rest:
            yield self.made(row)

    def made(self, row: Row) -> Recorded:
        self.count += 1
        return Recorded(
            row["number"], row["api_key"], row["version"], row["correlation_id"], row["client_id"], row["request"],
            row["request_time"], row["response"], row["response_time"],
        )  # fmt: skip


def caller_of(row: Row) -> Caller:
    """The connection that a row is of."""
    facts = Facts(row["listener"] or "", row["cluster"] or row["capture"], row["client_address"], node=row["node"])
    return Caller(f"{row['capture']}:{row['connection']}", facts)


def finding_row(rule: str, finding: Finding, capture: str, connection: int, caller: Caller, topics: Topics) -> Row:
    recorded = finding.recorded
    return {
        "what": "finding",
        "rule": rule or None,
        "capture": capture,
        "connection": connection,
        "number": recorded.number,
        "time": round(recorded.request_time * 1_000_000),
        "client_id": recorded.client_id,
        "client_address": caller.facts.client_address,
        "api": api_name(recorded.api_key),
        "version": recorded.version,
        "topics": topics_of(recorded, topics),
        "rules": finding.rules,
        "request_changed": finding.request_changed,
        "response_changed": finding.response_changed,
        "answered": finding.answered,
        "closed": finding.closed or None,
        "lost": finding.lost,
        "delay_ms": finding.delay * 1000,
    }


@cache
def api_name(key: int) -> str:
    return schema.load(key).name if key in schema.paths() else f"unknown({key})"


def topics_of(recorded: Recorded, topics: Topics) -> list[str]:
    """Topics that a request is about, each once; ids whose names are not known as they are."""
    key, version, frame = recorded.api_key, recorded.version, recorded.request
    if key not in schema.paths() or version not in schema.load(key).versions:
        return []
    api = schema.load(key)
    try:
        body = body_start(frame, 0, len(frame), api.header_version("request", version), "request")
        found = entity_reader(key, version).read(frame, body or len(frame), len(frame))
    except DecodeError:
        return []
    names: dict[str, None] = {}
    for one in found:
        if one.topic is None and one.topic_id is not None and one.topic_id != ZERO_UUID:
            names[topics.get(one.topic_id, str(one.topic_id))] = None
        elif one.topic:
            names[one.topic] = None
    return list(names)[:MOST_TOPICS]
