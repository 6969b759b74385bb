"""Sandbox of one run: its proxy with the rules of its plan, its own names on a shared cluster, and its evidence."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, NamedTuple

from kproxy.config.document import Config
from kproxy.explore.faults import fault_table
from kproxy.explore.model import ExploredRun, FaultPlan, ProvedViolation, RaisedError, RunEnd, StepCounters
from kproxy.explore.plan import DRIP, plan_rules, step_text
from kproxy.explore.result import NOT_ON_MOCK
from kproxy.explore.runs.child import ChildAnswer, RunJob
from kproxy.explore.tape import describe_run, reads_lost_offsets
from kproxy.rules.document.json_tree import json_source
from kproxy.rules.document.read import read_document
from kproxy.rules.document.source import Source
from kproxy.rules.store import RuleStore
from kproxy.testing.embedded import Embedded
from kproxy.testing.exchanges import SeenExchange, Topics
from kproxy.testing.faults import InjectedFaults, NamedFault
from kproxy.testing.inject import NAMES_RULE, Kproxy, delete_topics
from kproxy.testing.recorder import Tape
from kproxy.testing.verification import TapeReader, judged

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
    """Sandbox of one run. `shared`: other runs use its cluster. `killed`: steps of the plan at which a client was
    killed, which count as applied."""

    def __init__(self, kproxy: Kproxy, job: RunJob, shared: bool) -> None:
        self.kproxy, self.job = kproxy, job
        self.shared = kproxy.upstream if shared else ""
        self.names = [str(rule["name"]) for rule in plan_rules(job.plan)]
        self.killed: set[int] = set()
        self._lock = Lock()
        self._last: RunEvidence | None = None

    def begin(self, base: Sequence[Source] = (), drip: bool = False) -> None:
        """Apply the rules of all runs, then those of the plan, before a client connects. Raises DocumentError."""
        engine = self.kproxy.engine
        engine.tape.most_bytes = MOST_TAPED
        rules = plan_rules(self.job.plan, drip)
        if self.shared:
            rules.insert(0, {"name": NAMES_RULE, "kind": "prefix", "prefix": self.job.prefix})
        document = json_source("<plan>", json.dumps({"rules": rules}, indent=1).encode())
        engine.keep([read_document(one) for one in (*base, document)], self.job.prefix if self.shared else "")
        self.show(self.kproxy)

    def show(self, kproxy: Kproxy) -> None:
        kproxy.prefix = self.kproxy.engine.prefix
        kproxy.alone = True  # on a cluster of its own, or with names of its own
        kproxy.faults = InjectedFaults(NamedFault(step_text(step), step.fault.kind_of) for step in self.job.plan.steps)

    def look(self) -> RunEvidence:
        """Return the evidence at the end of the run, or the current evidence before it."""
        with self._lock:
            return self._last or self._evidence()

    def end(self) -> None:
        """Keep the current evidence; the proxy can end then."""
        last = self.look()
        with self._lock:
            self._last = self._last or last

    def answer(
        self, ended: RunEnd, seconds: float, raised: RaisedError | None = None, problem: str = "", output: str = ""
    ) -> ChildAnswer:
        counters, exchanges, violations, unknown = self.look()
        if unknown:
            ended, problem = "broken", unknown
        elif not self.shared and (violations or ended != "passed") and reads_lost_offsets(exchanges):
            ended, problem, raised, violations = "skipped", NOT_ON_MOCK, None, ()
        run = describe_run(
            self.job.plan, ended, seconds, exchanges, imported_clients(), counters=counters, raised=raised,
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
    rules: list[dict[str, Any]] = [DRIP, {"name": "prefix", "kind": "prefix", "prefix": "x."}]
    for number, fault in enumerate(fault_table().all):
        rules.append(
            {"name": str(number), **fault.rule, "match": {"api": fault.api}, "when": {"nth": 1, "counts": "all"}}
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
    return broken(job.plan, "; ".join(left[:3]) + (f"; and {len(left) - 3} others" if len(left) > 3 else ""))


def raised_error(error: BaseException, where: str = "", line: str = "") -> RaisedError:
    """Return an exception with its full type name and its message."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return RaisedError(name, str(error)[:MOST_SAID], where, line)
