"""Task of Spark's workers that rehearses connections: chunks of exchanges in, sums of findings out.

The chunks of a connection are in one partition and in order. The candidate rules are built once per partition and
capture. Findings are summed at once: a group for each rule, client, API and set of topics, and samples.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby
from typing import Any
from uuid import UUID

import pyarrow as pa

from kproxy.lake.columnar.columns import struct as arrow_struct
from kproxy.lake.lake import struct
from kproxy.protocol.table import schema
from kproxy.record.events.column import Column
from kproxy.tools.rehearse.whatif.candidate import Candidate, RuleTexts, facts_of
from kproxy.tools.rehearse.whatif.exchange import (
    CaptureSummary,
    ExchangeChunk,
    PackedExchange,
    RecordedClient,
    TopicNames,
    topics_of,
    unpack_chunk,
)
from kproxy.tools.rehearse.whatif.rehearsal import RehearsalFinding

FINDINGS = (
    Column("what", "string", "group (of findings), sample (a finding), rule (its counters), or exchanges (how many)"),
    Column("rule", "string", "the rule"),
    Column("kind", "string", "its kind; of rule"),
    Column("capture", "string", "file that the exchange was recorded in; of sample"),
    Column("connection", "long", "number of the connection in the capture; of sample"),
    Column("number", "long", "position of the exchange on its connection; of sample"),
    Column("time", "timestamp", "when its request came; of group, the first one"),
    Column("last", "timestamp", "when the last request came; of group"),
    Column("client_id", "string", "from the request's header"),
    Column("client_address", "string", "the client's IP address"),
    Column("api", "string", "name of the API"),
    Column("version", "int", "version of the API; of sample"),
    Column("topics", "string", "topics that the request is about, up to a limit", array=True),
    Column("request_changed", "boolean", "the broker would have got other bytes; of sample, as those that follow"),
    Column("response_changed", "boolean", "the client would have got other bytes"),
    Column("answered", "boolean", "kproxy would have answered in the broker's place"),
    Column("closed", "string", "why the connection would have been closed"),
    Column("lost", "boolean", "the client would have got no answer"),
    Column("delay_ms", "double", "how much later the answer would have come; of group, their sum", "ms"),
    Column("delay_ms_max", "double", "of group: the longest", "ms"),
    Column("requests", "long", "of group: how many requests", "requests"),
    Column("changes", "long", "of group: how many of them, or of their answers, would have been changed", "requests"),
    Column("answers", "long", "of group: how many kproxy would have answered", "requests"),
    Column("closes", "long", "of group: how many would have been on a connection that a rule closes", "requests"),
    Column("losses", "long", "of group: how many would have got no answer", "requests"),
    Column("matched", "long", "of rule: how often its selectors held"),
    Column("fired", "long", "of rule: how often its trigger held as well"),
    Column("applied", "long", "of rule: how often it would have changed something"),
    Column("approximate", "boolean", "of rule: it counts over all connections, and each worker had only some"),
    Column("count", "long", "of exchanges: how many"),
)
"""Columns of a task's findings; findings that differ only in time are summed."""
FINDINGS_SCHEMA = struct(FINDINGS)

BATCH = 1000
"""Rows in one Arrow batch."""

ARROW = pa.schema(arrow_struct(FINDINGS))

ArrowBatches = Iterable[pa.RecordBatch]

SAMPLES = 5
"""Maximum number of samples of each rule."""
MOST_GROUPS = 20_000
"""Groups in a task's memory, about 20 MB. With more, groups are yielded in several parts, which the answers add up."""

FindingRow = dict[str, Any]
GroupKey = tuple[str, str | None, str, int, tuple[str, ...]]
SampleOrder = tuple[float, str, int, int]


class FindingGroup:
    """Sums of findings with the same rule, client, API and topics."""

    __slots__ = ("answers", "changes", "closes", "delay", "first", "last", "longest", "losses", "requests")

    def __init__(self, when: float) -> None:
        self.requests = self.changes = self.answers = self.closes = self.losses = 0
        self.delay = self.longest = 0.0
        self.first = self.last = when

    def add(self, finding: RehearsalFinding, when: float) -> None:
        self.requests += 1
        self.changes += finding.request_changed or finding.response_changed
        self.answers += finding.answered
        self.closes += bool(finding.closed)
        self.losses += finding.lost
        if finding.delay:
            self.delay += finding.delay
            self.longest = max(self.longest, finding.delay)
        if when < self.first:
            self.first = when
        elif when > self.last:
            self.last = when

    def row(self, key: GroupKey) -> FindingRow:
        rule, client_id, address, api, topics = key
        return {
            "what": "group", "rule": rule, "client_id": client_id, "client_address": address, "api": api_name(api),
            "topics": topics, "time": micros(self.first), "last": micros(self.last), "requests": self.requests,
            "changes": self.changes, "answers": self.answers, "closes": self.closes, "losses": self.losses,
            "delay_ms": self.delay * 1000, "delay_ms_max": self.longest * 1000,
        }  # fmt: skip


class FindingSums:
    """Sums of one task's findings.

    `add` takes findings; `groups` yields rows of `FINDINGS` during the task, and `samples` yields the last ones at the
    end.
    """

    def __init__(self) -> None:
        self.by_key: dict[GroupKey, FindingGroup] = {}
        self.first: dict[str, list[tuple[SampleOrder, RehearsalFinding, RecordedClient, tuple[str, ...]]]] = {}

    def add(
        self,
        rule: str,
        finding: RehearsalFinding,
        capture: str,
        connection: int,
        caller: RecordedClient,
        topics: TopicNames,
    ) -> None:
        """Add a finding of this rule; for all rules (""), of each live rule that fired."""
        recorded = finding.recorded
        when, address = recorded.request_time, caller.facts.client_address
        names = topics_of(recorded, topics)
        order = when, capture, connection, recorded.number
        for name in (rule,) if rule else finding.rules:
            key = name, recorded.client_id, address, recorded.api_key, names
            group = self.by_key.get(key)
            if group is None:
                group = self.by_key[key] = FindingGroup(when)
            group.add(finding, when)
            kept = self.first.setdefault(name, [])
            if len(kept) < SAMPLES or order < kept[-1][0]:
                insort(kept, (order, finding, caller, names), key=lambda one: one[0])
                del kept[SAMPLES:]

    @property
    def full(self) -> bool:
        return len(self.by_key) >= MOST_GROUPS

    def groups(self) -> Iterator[FindingRow]:
        """Yield the rows of the current groups, and clear them."""
        groups, self.by_key = self.by_key, {}
        for key, group in groups.items():
            yield group.row(key)

    def samples(self) -> Iterator[FindingRow]:
        """Yield the rows of the first findings of each rule."""
        for rule, kept in self.first.items():
            for (_, capture, connection, _), finding, caller, names in kept:
                yield sample(rule, finding, capture, connection, caller, names)


def sample(
    rule: str, finding: RehearsalFinding, capture: str, connection: int, caller: RecordedClient, names: tuple[str, ...]
) -> FindingRow:
    recorded: PackedExchange = finding.recorded
    return {
        "what": "sample", "rule": rule, "capture": capture, "connection": connection, "number": recorded.number,
        "time": micros(recorded.request_time), "client_id": recorded.client_id,
        "client_address": caller.facts.client_address, "api": api_name(recorded.api_key), "version": recorded.version,
        "topics": names, "request_changed": finding.request_changed, "response_changed": finding.response_changed,
        "answered": finding.answered, "closed": finding.closed or None, "lost": finding.lost,
        "delay_ms": finding.delay * 1000,
    }  # fmt: skip


def micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


@cache
def api_name(key: int) -> str:
    return schema.load(key).name if key in schema.paths() else f"unknown({key})"


def rehearse(texts: RuleTexts, summaries: Mapping[str, CaptureSummary]) -> Callable[[ArrowBatches], ArrowBatches]:
    """Return the task for `mapInArrow`. `summaries`: the summary of each capture."""

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
    candidates: dict[str, Candidate] = {}  # per capture: each has its own topic ids
    sums, count = FindingSums(), 0
    for (capture, number, _), members in groupby(given(batches), key=lambda row: row[:3]):
        exchanges = UnpackedExchanges(packed for *_, packed in members)
        candidate = candidates.get(capture)
        if candidate is None:
            topics = {UUID(topic_id): name for topic_id, name in summaries[capture].topics.items()}
            candidate = candidates[capture] = Candidate(texts, summaries[capture].began, topics)
        caller = RecordedClient(f"{capture}:{number}", facts_of(exchanges.first, capture))
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
    """Yield (capture, connection, place, packed) of each chunk; `packed` is a view of Arrow's memory."""
    for batch in batches:
        names = ("capture", "connection", "place")
        packed = (one.as_buffer() for one in batch.column("packed"))
        yield from zip(*(batch.column(name).to_pylist() for name in names), packed, strict=True)


class UnpackedExchanges:
    """Exchanges of one connection; iteration unpacks and counts them."""

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
