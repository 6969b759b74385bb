"""Sandbox of one run: its proxy with the rules of its plan, its own names on a shared cluster, and its evidence."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple

from kproxy.app.config.document import Config
from kproxy.base.errors import DecodeError, RecordsError, WireError, plural
from kproxy.protocol.records import Batch, Entry, entries
from kproxy.protocol.records.entry import RecordsDigest
from kproxy.protocol.table import errors as error_codes
from kproxy.protocol.table.api_keys import FETCH, INIT_PRODUCER_ID, JOIN_GROUP, OFFSET_FETCH, PRODUCE, TXN_OFFSET_COMMIT
from kproxy.rules.document.read import read_document
from kproxy.rules.document.store import RuleStore
from kproxy.rules.entity import Entity
from kproxy.rules.values.source import Source, json_source
from kproxy.testing.embedded import Embedded
from kproxy.testing.exchanges import SeenExchange, Topics
from kproxy.testing.explore.model import ExploredRun, FaultPlan, ProvedViolation, RaisedError, RunEnd, StepCounters
from kproxy.testing.explore.places import EntityFacts, ExchangeFacts, digest_of, errors_of, places_of
from kproxy.testing.explore.plan import ONE_BATCH_PER_FETCH, fault_table, plan_rules, step_text
from kproxy.testing.explore.result import NOT_ON_MOCK
from kproxy.testing.inject import NAMES_RULE, Kproxy, delete_topics
from kproxy.testing.recorder import Tape
from kproxy.testing.rule_arguments import InjectedFaults, NamedFault
from kproxy.testing.verification import TapeReader, judged

from .child import ChildAnswer, RunJob

MOST_LINES = 200  # of the first and the last exchanges
LONGEST_LINE = 300
LONGEST_WAIT = 60.0  # seconds; clients request half an hour as `max.poll.interval.ms`
RECORDS, SEVERAL = frozenset({"records"}), frozenset({"records", "batches"})
NAMED = ("topic", "group", "transactional_id", "member")


def describe_run(
    plan: FaultPlan, ended: RunEnd, seconds: float, exchanges: Sequence[SeenExchange], **others: Any
) -> ExploredRun:
    """Return a run with the facts of its exchanges. `others`: further fields of ExploredRun."""
    facts = list(read_facts(exchanges))
    software = sorted({one.client_software for one in facts if one.client_software} | set(imported_clients()))
    return ExploredRun(
        plan, ended, seconds, places=places_of(facts), digest=digest_of(facts), errors=errors_of(facts),
        patience=patience_of(exchanges), story=tuple(story_of(exchanges)), software=tuple(software), **others,
    )  # fmt: skip


def reads_lost_offsets(exchanges: Iterable[SeenExchange]) -> bool:
    """Return True if a client fetched the offsets of a group after it committed such offsets in a transaction."""
    groups: set[str | None] = set()
    for one in exchanges:
        if one.key in (TXN_OFFSET_COMMIT, OFFSET_FETCH):
            named = {entity.group for entity in one.entities}
            if one.key == OFFSET_FETCH and named & groups:
                return True
            groups |= named if one.key == TXN_OFFSET_COMMIT else set()
    return False


def read_facts(exchanges: Iterable[SeenExchange]) -> Iterator[ExchangeFacts]:
    for one in exchanges:
        with suppress(WireError, KeyError):
            yield facts_of(one)


def facts_of(one: SeenExchange) -> ExchangeFacts:
    """Return the facts about one exchange. Raises DecodeError."""
    codes = codes_of(one)
    traits = records_of_answer(one) if one.key == FETCH else {}
    told = []
    for entity in one.entities:
        batch, own = batch_of(one, entity) if one.key == PRODUCE else (None, traits.get(key_of(entity), frozenset()))
        named = frozenset(name for name in NAMED if getattr(entity, name))
        code = codes.get(entity, 0)
        told.append(EntityFacts(
            entity.topic, entity.partition, entity.group, entity.transactional_id, entity.offset, batch, named | own,
            error_codes.error_name(code) if code else "",
        ))  # fmt: skip
    software = one.taken.who.connection.session.identity.software
    return ExchangeFacts(one.api, one.client_id, software, tuple(told), one.answered is not None)


def codes_of(one: SeenExchange) -> Mapping[Entity, int]:
    """Return the error codes of the response by entity; empty if it cannot be decoded."""
    try:
        return one.codes()
    except (DecodeError, KeyError):
        return {}


def batch_of(one: SeenExchange, entity: Entity) -> tuple[Hashable, frozenset[str]]:
    """Return an identity of the first batch of a partition, the same when it is sent again, and its traits."""
    topic, partition = entity.where
    records = one.request.body["topic_data"][topic]["partition_data"][partition]["records"]
    if isinstance(records, RecordsDigest):
        producer, epoch, sequence = records.producer_id, records.producer_epoch, records.base_sequence
        transactional, other = records.transactional, (records.size, records.records)
        producer = -1 if producer is None else producer
    else:
        batch = first_entry(records)
        if not isinstance(batch, Batch):
            return bytes(records or b"")[:64], frozenset({"records"}) if records else frozenset()
        producer, epoch, sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence
        transactional, other = batch.is_transactional, (batch.crc, batch.count)
    traits = {"records"} | ({"transactional"} if transactional else set())
    if producer < 0:
        return other, frozenset(traits)
    return (producer, epoch, sequence), frozenset(traits | {"idempotent"})


FetchedPartition = tuple[object, int | None]


def key_of(entity: Entity) -> FetchedPartition:
    return (entity.topic_id or entity.topic, entity.partition)


def records_of_answer(one: SeenExchange) -> dict[FetchedPartition, frozenset[str]]:
    """Return the trait `records` by partition of a Fetch response, and `batches` for several."""
    try:
        answer = one.response
    except DecodeError:
        return {}
    found = {}
    for topic in answer.body["responses"] if answer is not None else ():
        name = topic.get("topic_id") or topic.get("topic")
        for partition in topic["partitions"]:
            batches = batches_in(partition["records"])
            if batches:
                found[name, partition["partition_index"]] = SEVERAL if batches > 1 else RECORDS
    return found


def batches_in(records: Any) -> int:
    """Return the number of batches; 2 means two or more."""
    if isinstance(records, RecordsDigest):
        return records.batches
    try:
        return sum(1 for _ in islice(entries(records), 2)) if records else 0
    except RecordsError:  # a rule has made them so, or a broker
        return 1


def first_entry(records: Any) -> Entry | None:
    try:
        return next(iter(entries(records)), None) if records else None
    except RecordsError:
        return None


def patience_of(exchanges: Iterable[SeenExchange]) -> float:
    """Return the longest session, rebalance or transaction time-out in seconds, up to LONGEST_WAIT."""
    longest = 0
    for one in exchanges:
        if one.key not in (JOIN_GROUP, INIT_PRODUCER_ID):
            continue
        with suppress(DecodeError):
            body = one.request.body
            names = ("session_timeout_ms", "rebalance_timeout_ms")
            if one.key == INIT_PRODUCER_ID:
                names = ("transaction_timeout_ms",) if body["transactional_id"] is not None else ()  # type: ignore[assignment]
            longest = max(longest, *(body.get(name) or 0 for name in names), 0)
    return min(max(longest, 0) / 1000, LONGEST_WAIT)


def story_of(exchanges: Sequence[SeenExchange]) -> Iterator[str]:
    """Yield a line for each exchange, or for the first and the last of many."""
    if not exchanges:
        return
    began = exchanges[0].came
    half = MOST_LINES // 2
    cut = len(exchanges) > MOST_LINES
    for one in exchanges[:half] if cut else exchanges:
        yield line_of(one, began)
    if cut:
        yield f"… {plural(len(exchanges) - 2 * half, 'other')} …"
        for one in exchanges[-half:]:
            yield line_of(one, began)


def line_of(one: SeenExchange, began: float) -> str:
    return f"{one.came - began:9.3f} s  {one.client_id or '-'}  {one}"[:LONGEST_LINE]


MOST_SAID = 2000  # characters of an exception's message
MOST_TAPED = 16 << 20  # bytes of frames on the tape; many runs go side by side
MOST_VIOLATIONS = 20
SILENT_CLIENTS = ("aiokafka",)  # modules whose version is not in ApiVersions


class RunEvidence(NamedTuple):
    """Evidence at the end of a run."""

    counters: tuple[StepCounters, ...]
    exchanges: list[SeenExchange]
    violations: tuple[ProvedViolation, ...]
    problem: str  # why the violations are unknown


class RunWorld:
    """Sandbox of one run. `shared`: other runs use its cluster. `killed`: steps at which a client was killed."""

    def __init__(self, kproxy: Kproxy, job: RunJob, shared: bool) -> None:
        self.kproxy, self.job = kproxy, job
        self.shared = kproxy.upstream if shared else ""
        self.names = [str(rule["name"]) for rule in plan_rules(job.plan)]
        self.killed: set[int] = set()
        self._lock = Lock()
        self._last: RunEvidence | None = None

    def begin(self, base: Sequence[Source] = (), one_batch_per_fetch: bool = False) -> None:
        """Apply the rules of all runs, then those of the plan, before a client connects. Raises DocumentError."""
        engine = self.kproxy.engine
        engine.tape.front.most_bytes = MOST_TAPED
        rules = plan_rules(self.job.plan, one_batch_per_fetch)
        if self.shared:
            rules.insert(0, {"name": NAMES_RULE, "kind": "prefix", "prefix": self.job.prefix})
        document = json_source("<plan>", json.dumps({"rules": rules}, indent=1).encode())
        engine.keep([read_document(one) for one in (*base, document)], self.job.prefix if self.shared else "")
        self.show(self.kproxy)

    def show(self, kproxy: Kproxy) -> None:
        kproxy.prefix = self.kproxy.engine.prefix
        kproxy.alone = True  # on a cluster of its own, or with names of its own
        kproxy.faults = InjectedFaults(NamedFault(step_text(step), step.fault.kind_of) for step in self.job.plan.steps)

    def evidence(self) -> RunEvidence:
        """Return the evidence at the end of the run, or the current evidence before it."""
        with self._lock:
            return self._last or self._evidence()

    def end(self) -> None:
        """Keep the current evidence; the proxy can end then."""
        last = self.evidence()
        with self._lock:
            self._last = self._last or last

    def answer(
        self, ended: RunEnd, seconds: float, raised: RaisedError | None = None, problem: str = "", output: str = ""
    ) -> ChildAnswer:
        counters, exchanges, violations, unknown = self.evidence()
        if unknown:
            ended, problem = "broken", unknown
        elif not self.shared and (violations or ended != "passed") and reads_lost_offsets(exchanges):
            ended, problem, raised, violations = "skipped", NOT_ON_MOCK, None, ()
        run = describe_run(
            self.job.plan, ended, seconds, exchanges, counters=counters, raised=raised,
            problem=problem, output=output, violations=violations,
        )  # fmt: skip
        return ChildAnswer(run, self.shared)

    def _evidence(self) -> RunEvidence:
        counters, exchanges = tuple(map(self._counters, range(len(self.names)))), self._exchanges()
        try:
            return RunEvidence(counters, exchanges, violations_of(self.kproxy), "")
        except Exception as error:  # noqa: BLE001  # kproxy's own: neither test nor fault is to blame
            return RunEvidence(counters, exchanges, (), f"it cannot be verified: {type(error).__name__}: {error}")

    def _counters(self, number: int) -> StepCounters:
        rule = self.kproxy.rule(self.names[number])
        matched, fired, applied = rule.counters
        applied = max(applied, int(number in self.killed))
        return StepCounters(matched, fired, applied, tuple(rule.problems))

    def _exchanges(self) -> list[SeenExchange]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that some are not kept any more
            return self.kproxy.exchanges()


def imported_clients() -> list[str]:
    """Return names and versions of the imported client libraries that send none in ApiVersions."""
    found = ((name, sys.modules.get(name)) for name in SILENT_CLIENTS)
    return [f"{name}-{getattr(module, '__version__', '')}" for name, module in found if module is not None]


def warm_up() -> None:
    """Import rule kinds and build validators once, before children are forked."""
    rules: list[dict[str, Any]] = [ONE_BATCH_PER_FETCH, {"name": "prefix", "kind": "prefix", "prefix": "x."}]
    for number, fault in enumerate(fault_table().all):
        rules.append(
            {"name": str(number), **fault.rule, "match": {"api": fault.api}, "when": {"nth": 1, "count": "all"}}
        )
    RuleStore().replace_files([json_source("<all faults>", json.dumps({"rules": rules}).encode())], 0.0)
    Config.model_validate(Embedded("127.0.0.1:1").document())
    judged(TapeReader(Tape(), Topics()), {}, alone=True)
    with suppress(ImportError):
        import confluent_kafka  # noqa: F401


def violations_of(kproxy: Kproxy) -> tuple[ProvedViolation, ...]:
    """Return the violations that the exchanges prove at the broker side; faults change responses after it."""
    found = kproxy.findings(view="brokers", level="proved")
    return tuple(
        ProvedViolation(one.check, f"{one.about}: {one.says}".replace(kproxy.prefix, "")[:MOST_SAID])
        for one in found[:MOST_VIOLATIONS]
        if one.view == "brokers"  # else they are not known
    )


def broken(plan: FaultPlan, problem: str, unreachable: bool = False) -> ChildAnswer:
    """Return the answer of a run that could not be made."""
    return ChildAnswer(ExploredRun(plan, "broken", problem=problem), unreachable=unreachable)


def delete_topics_of_runs(job: RunJob) -> ChildAnswer:
    """Delete the topics of ended runs through a listener without prefixes. The answer's problem names topics that
    stay."""

    def is_over(topic: str) -> bool:
        number = topic.removeprefix(job.prefix).partition(".")[0]
        return topic.startswith(job.prefix) and number.isdigit() and int(number) < job.below

    engine = Embedded(job.shared)
    try:
        engine.start()
        left = delete_topics(engine.own_bootstrap_servers, is_over)
    except Exception as error:  # noqa: BLE001  # of the client library, too; the runs are over, and that is all
        left = [f"{type(error).__name__}: {error}"]
    return broken(job.plan, "; ".join(left[:3]) + (f"; and {plural(len(left) - 3, 'other')}" if len(left) > 3 else ""))


def raised_error(error: BaseException, where: str = "", line: str = "") -> RaisedError:
    """Return an exception with its full type name and its message."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return RaisedError(name, str(error)[:MOST_SAID], where, line)
