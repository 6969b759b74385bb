"""Candidate rules of a what-if run: their plans, the packing of captures into chunks, and runs on kept exchanges.

A worker parses the rules once, with a plan for each kind of connection. All rules run together once, which gives the
results of live rules. Rules that bind when a connection opens (names, addresses, versions) leave no trace in a frame,
so each of them also runs alone.

Spark's cost is per row, so a row contains some hundred packed exchanges of one connection. Exchanges arrive in the
order of their ends, and leave in the order of their requests. Exchanges that no rule can affect are only counted.

A run on the exchanges of a running proxy goes connection by connection, from the most recent one, until all are done or
the time limit is reached. Rules in force are ignored there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kproxy.protocol.table.api_keys import METADATA
from kproxy.record.captures.captured_connection import CapturedConnection
from kproxy.record.exchange import Form, Frame, ObservedExchange, Who
from kproxy.rules.document.read import Document
from kproxy.rules.document.store import RuleStore
from kproxy.rules.exchange import Facts
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.rule_set import ActiveRule, RuleSet
from kproxy.rules.values.source import Source
from kproxy.session.counters import Tallies
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import judged
from kproxy.tools.rehearse.whatif.exchange import (
    CaptureSummary,
    ExchangeChunk,
    Opaque,
    PackedExchange,
    RecordedClient,
    pack,
)
from kproxy.tools.rehearse.whatif.rehearsal import Rehearsal, RehearsalFinding

RuleTexts = Sequence[tuple[str, str]]
"""(name, content) of rule files, in their order."""


@dataclass(frozen=True, slots=True)
class CandidateCounts:
    """Counts of one rule in a worker. `approximate`: one proxy for all connections would have counted otherwise."""

    rule: str
    kind: str
    matched: int
    fired: int
    applied: int
    approximate: bool


class Variant:
    """Rule set that is rehearsed. `rule`: the only rule in it; empty: it has all of them. `records`: whether filters of
    its rules may ask about records."""

    def __init__(self, rules: RuleSet, rule: str = "", *, records: bool = True) -> None:
        self.rules, self.rule, self.records = rules, rule, records
        self.plans: dict[tuple[str, tuple[ActiveRule, ...]], tuple[Plan, Opaque]] = {}
        self.shared: dict[str, ClusterState] = {}
        self.tallies = Tallies()

    def plan(self, facts: Facts) -> tuple[Plan, Opaque]:
        """Return the plan of a connection, and which of its exchanges that cannot be about."""
        bound = self.rules.bind(facts)
        planned = self.plans.get((bound.key, bound.live))
        if planned is None:
            plan = Plan(
                ConnectionSettings.of(bound, advertise=bound.advertise is not None, hide=False),
                bound.live,
                self.tallies,
            )
            planned = self.plans[bound.key, bound.live] = plan, Opaque([plan])
        return planned

    def rehearsal(self, caller: RecordedClient, number: int, topics: Mapping[UUID, str]) -> Rehearsal:
        plan, opaque = self.plan(caller.facts)
        shared = self.shared.setdefault(caller.facts.cluster, judged(records=self.records))
        return Rehearsal(plan, shared, caller, number, topics, opaque)


class Candidate:
    """Candidate rules of one capture, as texts or made from them already.

    `began`: time of the first exchange; triggers such as `after` count from it. `records`: whether filters may ask
    about records. Raises DocumentError.
    """

    def __init__(
        self, given: RuleTexts | RuleSet, began: float, topics: Mapping[UUID, str] | None = None, seed: int = 0, *,
        records: bool = True,
    ) -> None:  # fmt: skip
        rules = given if isinstance(given, RuleSet) else rules_of(given, began, seed)
        self.topics = topics or {}
        self.all = Variant(rules, records=records)
        alone = [rule for rule in rules.rules if not isinstance(rule, LiveRule)]
        self.variants = [Variant(RuleSet([rule]), rule.name) for rule in alone]
        if rules.live:
            self.variants.insert(0, self.all)
        self.opaques: dict[tuple[int, ...], Opaque] = {}
        self.now = began
        for running in rules.live:
            running.effect.clock = self.time
        self.number = 0

    def time(self) -> float:
        """Return the recording's time, as the rules' clock."""
        return self.now

    def opaque(self, facts: Facts) -> Opaque:
        """Return which exchanges of a connection no rule can be about."""
        plans = [variant.plan(facts)[0] for variant in self.variants]
        return self.opaques.setdefault(tuple(map(id, plans)), Opaque(plans))

    def findings(
        self, caller: RecordedClient, exchanges: Iterable[PackedExchange]
    ) -> Iterator[tuple[str, RehearsalFinding]]:
        """Yield (rule, finding) of one connection; an empty rule: of all rules together, where live ones fired."""
        self.number += 1
        rehearsals = [(one.rule, one.rehearsal(caller, self.number, self.topics)) for one in self.variants]
        for recorded in exchanges:
            self.now = recorded.request_time
            for rule, rehearsal in rehearsals:
                rehearsal.exchange(recorded)
                if rehearsal.findings:
                    yield from taken_findings(rule, rehearsal)
        for rule, rehearsal in rehearsals:
            rehearsal.end()
            yield from taken_findings(rule, rehearsal)

    def counted(self) -> list[CandidateCounts]:
        return [
            CandidateCounts(
                running.name,
                running.rule.kind,
                running.matched,
                running.fired,
                running.applied,
                counts_together(running),
            )
            for running in self.all.rules.live
        ]


def rules_of(texts: RuleTexts, began: float, seed: int) -> RuleSet:
    """Return the rules of these texts, in force since `began`. Raises DocumentError."""
    store = RuleStore(seed)
    store.replace_files([Source(name, text) for name, text in texts], began)
    return store.rule_set


def taken_findings(rule: str, rehearsal: Rehearsal) -> Iterator[tuple[str, RehearsalFinding]]:
    findings, rehearsal.findings = rehearsal.findings, []
    for finding in findings:
        if rule or finding.rules:
            yield rule, finding


def counts_together(running: ActiveRule) -> bool:
    """Return True if a rule counts over all connections.

    Workers that have some of the connections each cannot do so exactly.
    """
    when = running.rule.when
    counts = when is not None and any(
        getattr(when, name, None) is not None for name in ("nth", "first", "every", "times", "once", "probability")
    )
    together = counts and when is not None and when.count_scope != "connection"
    return together or running.rule.kind in ("quota", "bandwidth")


CHUNK_BYTES = 256 << 10
"""Bytes of frames in one chunk: large enough to make the cost of a row negligible, small enough for many rows in a
batch."""
CHUNK_EXCHANGES = 2000
"""Maximum number of exchanges in one chunk: for small frames, the Python objects are many times larger than the
bytes."""
HELD_BYTES = 16 << 20
"""Bytes of frames that wait in chunks that are not full; with more of them all chunks are closed."""
EACH = 200
"""Bytes that an exchange takes besides its frames."""


class ChunkRow(NamedTuple):
    """Row of the source; see `CHUNKS` in job.py."""

    what: str
    capture: str
    connection: int | None
    place: int | None
    part: int | None
    packed: bytes


class PackingConnection:
    """Connection with exchanges that wait to be packed. `next`: number of the exchange that is to come."""

    __slots__ = ("early", "next", "opaque", "part", "place", "ready", "size", "who")

    def __init__(self, who: CapturedConnection, place: int, opaque: Opaque) -> None:
        self.who, self.place, self.opaque = who, place, opaque
        self.part = self.size = 0
        self.next = 1
        self.ready: list[PackedExchange] = []
        self.early: dict[int, PackedExchange | None] = {}

    def add(self, number: int, recorded: PackedExchange | None) -> None:
        """Add an exchange, in any order; None: one that is not rehearsed."""
        self.early[number] = recorded
        while self.next in self.early:
            following = self.early.pop(self.next)
            self.next += 1
            if following is not None:
                self.ready.append(following)

    def end(self) -> None:
        """Put the early exchanges in order, since no more come."""
        self.ready += [found for _, found in sorted(self.early.items()) if found is not None]
        self.early.clear()


class CapturePacking:
    """Packing of one capture.

    `add` takes exchanges; ends of connections are put in `ended`; `take` gives rows.
    """

    def __init__(self, path: str, candidate: Candidate) -> None:
        self.path, self.candidate = path, candidate
        self.open: dict[CapturedConnection, PackingConnection] = {}
        self.ended: list[CapturedConnection] = []
        self.rows: list[ChunkRow] = []
        self.summary = CaptureSummary(topics={}, unfit={})
        self.places = self.held = 0

    def add(self, seen: ObservedExchange) -> None:
        who = seen.who
        assert isinstance(who, CapturedConnection), "the reader made it"
        connection = self.open.get(who)
        if connection is None:
            connection = self._begin(who)
        recorded = self._recorded(seen, connection.opaque)
        connection.add(seen.number, recorded)
        if recorded is not None:
            size = len(recorded.request) + len(recorded.response or b"") + EACH
            connection.size += size
            self.held += size
            if connection.size >= CHUNK_BYTES or len(connection.ready) >= CHUNK_EXCHANGES:
                self._close(connection)
            elif self.held >= HELD_BYTES:
                for other in self.open.values():
                    self._close(other)
        if self.ended and self.ended[0] is not who:  # it has given out its last exchange
            self._end(self.ended.pop(0))

    def finish(self, topics: dict[str, str]) -> None:
        """Pack the rest and the summary at the end of the capture."""
        for who in list(self.open):
            self._end(who)
        self.summary.topics = topics
        self.rows.append(ChunkRow("capture", self.path, None, None, None, pack(self.summary)))

    def take(self) -> Iterator[ChunkRow]:
        rows, self.rows = self.rows, []
        return iter(rows)

    def _begin(self, who: CapturedConnection) -> PackingConnection:
        opaque = self.candidate.opaque(facts_of(who, self.path))
        connection = self.open[who] = PackingConnection(who, self.places, opaque)
        self.places += 1
        return connection

    def _recorded(self, seen: ObservedExchange, opaque: Opaque) -> PackedExchange | None:
        request, why = seen.request, unfit(seen)
        if why is not None or request is None:
            self.summary.unfit[why or NO_REQUEST] = self.summary.unfit.get(why or NO_REQUEST, 0) + 1
            return None
        if not self.summary.began or request.first < self.summary.began:
            self.summary.began = request.first
        if opaque[seen.key << 16 | seen.version & 0xFFFF]:
            self.summary.opaque += 1
            return None
        return packed(seen, request)

    def _close(self, connection: PackingConnection) -> None:
        """Pack the connection's exchanges into a row, since its chunk is full."""
        if not connection.ready:
            return
        who = connection.who
        chunk = ExchangeChunk(who.listener, who.cluster, who.client_address, who.node, connection.ready)
        self.rows.append(ChunkRow("chunk", self.path, who.number, connection.place, connection.part, pack(chunk)))
        self.held -= connection.size
        connection.size = 0
        connection.part += 1
        connection.ready = []

    def _end(self, who: CapturedConnection) -> None:
        connection = self.open.pop(who, None)
        if connection is not None:
            connection.end()
            self._close(connection)


NO_REQUEST = "its request was not recorded"


def facts_of(who: Who | ExchangeChunk, cluster: str = "") -> Facts:
    """Return the recorded facts of a connection. `cluster`: its cluster if none was recorded."""
    return Facts(who.listener or "", who.cluster or cluster, who.client_address, node=who.node)


def packed(seen: ObservedExchange, request: Frame) -> PackedExchange:
    data, when = (None, None) if seen.response is None else (seen.response.data, seen.response.first)
    return PackedExchange(
        seen.number, seen.key, seen.version, seen.correlation_id, seen.client_id, request.data, request.first, data,
        when,
    )  # fmt: skip


def unfit(seen: ObservedExchange) -> str | None:
    """Return why an exchange cannot be rehearsed, None if it can."""
    request, response = seen.request, seen.response
    if request is None:
        return NO_REQUEST
    if request.form is not Form.WHOLE:
        return f"request: {why_not_whole(request)}"
    if response is not None and response.form is not Form.WHOLE:
        return f"response: {why_not_whole(response)}"
    return None


def why_not_whole(frame: Frame) -> str:
    return frame.withheld or f"{len(frame.data)} of {frame.size} bytes were recorded"


MOST_EXCHANGES = 5000
"""Exchanges that are looked at, the latest ones."""
MOST_RULES = 50
"""Maximum number of rules in one rehearsal; each rule that binds at connect gets a separate rehearsal."""
MOST_ANSWERS = 20
"""Metadata answers that topic ids are looked up in, the latest ones."""


@dataclass(slots=True)
class KeptMatches:
    """Matches of rules among `kept` exchanges: `of` were rehearsed, and `unfit` skipped, since bytes are missing.

    The counters of a rule that binds connections are the exchanges with another frame.
    """

    kept: int
    of: int = 0
    unfit: int = 0
    rules: list[CandidateCounts] = field(default_factory=list)


def rehearse_kept(
    document: Document, kept: Sequence[ObservedExchange], in_time: Callable[[], bool], *, records: bool = True,
    show: Callable[[ObservedExchange], ObservedExchange] = lambda seen: seen,
) -> KeptMatches:  # fmt: skip
    """Rehearse the rules of a document on these exchanges, latest first, while `in_time()` is true. `records`: whether
    their filters may ask about records. `show`: returns an exchange as the user may see it.

    Raises DocumentError for an invalid document.
    """
    kept = kept[:MOST_EXCHANGES]
    found = KeptMatches(len(kept))
    by_connection: dict[int, list[ObservedExchange]] = {}
    for seen in kept:
        by_connection.setdefault(id(seen.who), []).append(seen)
    began = min((seen.request.first for seen in kept if seen.request is not None), default=0.0)
    store = RuleStore()
    store.put(document, "api", began)
    candidate = Candidate(store.rule_set, began, topics_in(kept), records=records)
    changed: Counter[str] = Counter()
    for number, seen_here in enumerate(by_connection.values()):
        if not in_time():
            break
        seen_here.sort(key=lambda seen: seen.number)
        caller = RecordedClient(str(number), facts_of(seen_here[0].who))
        changed.update(rule for rule, _ in candidate.findings(caller, fit(map(show, seen_here), found, in_time)))
    live = {counts.rule: counts for counts in candidate.counted()}
    for rule in store.rule_set.rules:
        times = changed[rule.name]
        found.rules.append(live.get(rule.name) or CandidateCounts(rule.name, rule.kind, times, times, 0, False))
    return found


def fit(
    seen_here: Iterable[ObservedExchange], found: KeptMatches, in_time: Callable[[], bool]
) -> Iterator[PackedExchange]:
    """Yield the exchanges of one connection that can be rehearsed, and count them."""
    for seen in seen_here:
        if not in_time():
            return
        if seen.request is None or unfit(seen) is not None:
            found.unfit += 1
        else:
            found.of += 1
            yield packed(seen, seen.request)


def topics_in(kept: Sequence[ObservedExchange]) -> dict[UUID, str]:
    """Return the names of topics by their ids, from the latest Metadata responses."""
    names: dict[UUID, str] = {}
    answers = [seen for seen in kept if seen.key == METADATA and seen.response is not None]
    for seen in reversed(answers[:MOST_ANSWERS]):
        for topic in (seen.response_body or {}).get("topics") or ():
            topic_id, name = topic.get("topic_id"), topic.get("name")
            if isinstance(topic_id, UUID) and isinstance(name, str) and name:
                names[topic_id] = name
    return names
