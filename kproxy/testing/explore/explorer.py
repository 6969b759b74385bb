"""One exploration: learn, explore, confirm, shrink, save.

The runner takes plans one by one, so each choice uses the results of all ended runs. All phases end after
`ExploreSettings.seconds`: exploration leaves a share of the time to confirm and shrink.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path

from kproxy.base.errors import KproxyError, plural
from kproxy.base.terminal import in_line

from .database import FindingStore, KeptFinding, save_rules
from .model import ExploredRun, FaultPlan, Runner
from .order import OrderSettings, PlanOrder
from .places import common_places
from .plan import plan_text, saved_form
from .reruns import REPLAYS, Shrinking, Trials, with_faults_of
from .result import (
    NONE_KNOWN,
    NOT_ON_MOCK,
    PASSED,
    SLOWER,
    Exploration,
    FailureSignature,
    FaultFinding,
    JudgedRun,
    KnownFailures,
    applied_faults,
    cause_of,
    finding_notes,
    judge,
    slim_run,
)

# a run may take the most of LEAST_LIMIT and TIMES the slower run without faults, and WAITS client time-outs more
LEAST_LIMIT, TIMES, WAITS = 15.0, 8.0, 2.0
LEARNING_LIMIT = 120.0  # maximum seconds of a run without faults, if no limit was given
ALONE, BESIDE_FINDINGS = 0.9, 0.5  # share of the time for exploring, without and with findings
REPLAY_TIME = 1.5  # time kept for the final replays of a finding, in expected durations
OTHERS, OTHERS_ALIKE = 8, 2  # other plans kept of a finding, in all and with the same faults
MOST_FINDINGS = 100  # of one exploration; failures of further kinds are counted
DETAILED = 500  # passed and other runs that keep their exchanges and output


@dataclass(frozen=True, slots=True)
class ExploreSettings:
    order: OrderSettings = field(default_factory=OrderSettings)
    seconds: float = 60.0  # wall-clock time of all phases
    runs: int | None = None  # runs with faults, without those that confirm and shrink
    limit: float | None = None  # maximum seconds of a run
    first: bool = False  # stop at the first certain finding
    until_covered: bool = False  # stop when each fault was applied
    known: KnownFailures = NONE_KNOWN
    save: Path | None = None  # folder for rule files
    one_batch_per_fetch: bool = False  # readers get one batch at a time in all runs
    rules: tuple[str, ...] = ()  # names of the rule files that are active in all runs


class Explorer:
    """Exploration of one test. `clock`: monotonic seconds, as the runner's `until`. `wall`: seconds since 1970. `tell`
    receives progress lines with text of clients and tests. `began`: start of the time limit (default: now)."""

    def __init__(
        self, test: str, runner: Runner, settings: ExploreSettings, store: FindingStore | None = None, *,
        clock: Callable[[], float], wall: Callable[[], float], tell: Callable[[str], object] = lambda text: None,
        began: float | None = None,
    ) -> None:  # fmt: skip
        self.runner, self.settings, self.store = runner, settings, store
        self.clock, self.wall, self.tell = clock, wall, tell
        self.result = Exploration(
            test, settings.order.classes, runner.jobs, one_batch_per_fetch=settings.one_batch_per_fetch
        )
        self.trials = Trials(runner)
        self.slow_after = float("inf")
        self.waits = 0.0
        self.began = clock() if began is None else began
        self.deadline = self.began + settings.seconds
        self.order: PlanOrder
        self.stopped = False
        self._earlier: dict[FaultPlan, KeptFinding] = {}
        self._waiting: deque[FaultPlan] = deque()  # before those of the order
        self._under_way: dict[FaultPlan, None] = {}
        self._started = 0
        self._settled: list[FaultFinding] = []  # shrunk findings
        self._beyond = 0  # failures after MOST_FINDINGS
        self._passed: list[float] = []  # seconds of each run, sorted
        self._detailed: Counter[bool] = Counter()
        self._applied: set[str] = set()

    def explore(self) -> Exploration:
        result = self.result
        try:
            if self.learn():
                self.try_plans()
                if not result.runs:
                    self.time_was_up("the first run with a fault")
                self.confirm(result.findings)
                self.shrink_all()
        except KeyboardInterrupt:
            result.interrupted = True
            result.notes.append("interrupted: findings so far are kept, but may not be confirmed or shrunk")
            for finding in result.findings:
                if not finding.known and not finding.is_of_test and not finding.file:
                    self.keep(finding)
        result.seconds = self.clock() - self.began
        return result

    def time_was_up(self, before: str) -> None:
        if not self.result.problem:
            self.result.problem = f"time was up before {before}, after {self.clock() - self.began:.0f} s"

    def learn(self) -> bool:
        """Run the test twice without faults. Return True if it can be explored."""
        result, settings = self.result, self.settings
        self.runner.limit, self.runner.until = settings.limit or LEARNING_LIMIT, self.deadline
        result.learning = list(self.runner.run([FaultPlan(), FaultPlan()]))
        judged = [judge(run) for run in result.learning]
        bad = [one for one in judged if one.outcome not in PASSED]
        if not bad and len(judged) < 2 and self.clock() >= self.deadline:
            self.time_was_up("two runs without faults had ended")
            return False
        if bad or len(judged) < 2:
            self.say_unfit(judged, bad)
            return False
        slower = max(run.seconds for run in result.learning)
        patience = max(run.patience for run in result.learning)
        self.waits = WAITS * patience
        learned_limit = max(LEAST_LIMIT, TIMES * slower) + self.waits
        result.limit = self.runner.limit = settings.limit or learned_limit
        self.slow_after = SLOWER * slower
        first, second = (run.places for run in result.learning[:2])
        result.learned = common_places(first, second)
        if not result.learned.places:
            said = first or second
            result.problem = (
                "the two runs have no exchange in common: do topics and groups have other names in each run?"
                if said
                else "nothing has gone through kproxy: do the clients connect to kproxy's address?"
            )
            return False
        self.order = PlanOrder(result.learned, settings.order)
        for run in result.learning:
            self.order.known.add(run.places)
        result.all_faults = frozenset(self.order.all_faults)
        if not self.order.left:
            result.problem = "no fault of the chosen classes can be at the places that were learned"
        self.tell(f"learned {plural(len(result.learned.places), 'place')}; a run may take {result.limit:.0f} s")
        return bool(self.order.left)

    def say_unfit(self, judged: Sequence[JudgedRun], bad: Sequence[JudgedRun]) -> None:
        """Record why a test that fails without faults cannot be explored."""
        result = self.result
        if any(one.run.problem == NOT_ON_MOCK for one in bad):
            result.problem = NOT_ON_MOCK
            return
        if bad and all(one.run.ended == "skipped" for one in judged):
            result.skipped = bad[0].run.problem
            return
        broken = [one for one in bad if one.outcome == "broken"]
        if broken or not bad:
            reason = broken[0].run.problem if broken else "there was no run"
            result.problem = f"the test cannot be run: {in_line(reason) or 'its process has told nothing'}"
            return
        failing = f"{len(bad)} of {plural(len(judged), 'run')} without faults"
        result.flaky = len(bad) < len(judged)
        word = "is flaky" if result.flaky else "fails"
        result.problem = f"the test {word} ({failing}: {in_line(bad[0].what)}), and is not explored"

    def try_plans(self) -> None:
        """Run plans until the time is used or no plan is left, kept findings first. Plans of runs that were ended early
        wait again."""
        result = self.result
        for one in () if self.store is None else self.store.load():
            # a plan for a real cluster gives false findings on the mock, and a fault of another version is broken
            if (plan := self.order.allowed(one.plan)) is not None and plan not in self._earlier:
                self._earlier[plan] = one
                self.order.count(plan)
        self._waiting.extend(self._earlier)
        try:
            while not self.stopped and not self.over() and (self._waiting or self.order.left):
                ended = len(result.runs)
                self.runner.until = (self.exploring_ends + self.deadline) / 2
                with closing(self.runner.run(self.plans())) as runs:
                    for run in runs:
                        self.ended(run)
                        if self.settings.first and self.unconfirmed:
                            break
                self._waiting.extendleft(reversed(self._under_way))
                self._started -= len(self._under_way)
                self._under_way.clear()
                if self.settings.first and self.unconfirmed:
                    self.confirm(self.unconfirmed)
                    self.stopped = any(one.certain and not one.known for one in result.findings)
                if len(result.runs) == ended:
                    break
        finally:
            result.exploring = self.clock() - self.began
            result.left, result.refused = self.order.left + len(self._waiting), self.order.refused
            result.unlike_mock = tuple(sorted(self.order.unlike_mock))
            if self._beyond:
                result.notes.append(
                    f"{plural(self._beyond, 'failure')} of other kinds came after {MOST_FINDINGS} findings"
                )

    def plans(self) -> Iterator[FaultPlan]:
        while not self.over():
            plan = self._waiting.popleft() if self._waiting else self.order.next()
            if plan is None:
                return
            self._started += 1
            self._under_way[plan] = None
            yield plan

    @property
    def exploring_ends(self) -> float:
        """Return when exploration begins its last run."""
        share = BESIDE_FINDINGS if any(not one.known for one in self.result.findings) else ALONE
        return self.deadline - (1 - share) * self.settings.seconds

    @property
    def unconfirmed(self) -> list[FaultFinding]:
        return [one for one in self.result.findings if not one.confirmed and not one.known]

    def over(self) -> bool:
        settings = self.settings
        if self.clock() >= self.exploring_ends:
            return True
        if settings.runs is not None and self._started >= settings.runs:
            return True
        return settings.until_covered and self.result.all_faults <= self._applied

    def ended(self, run: ExploredRun) -> None:
        result = self.result
        self._under_way.pop(run.plan, None)
        one = judge(run, self.slow_after)
        kind = one.outcome in PASSED
        self._detailed[kind] += 1
        result.runs.append(slim_run(one, self._detailed[kind] <= DETAILED))
        self._applied.update(applied_faults(run))
        if one.outcome == "not exercised":
            self.order.not_exercised(run)
        elif one.outcome in PASSED:
            self.order.passed(run)
            self.learn_more(run.seconds)
            if self.store is not None and run.plan in self._earlier:
                self.store.passed(self._earlier[run.plan])
        elif one.outcome == "broken":
            self.tell(f"broken: {run.problem or plan_text(run.plan)}")
        if one.signature is not None:
            self.failed(one, one.signature)

    def failed(self, one: JudgedRun, signature: FailureSignature) -> None:
        """Add a failed run to the finding with the same failure and cause, or make a new finding of it."""
        result = self.result
        finding = next((known for known in result.findings if known.signature.covers(signature)), None)
        if finding is not None:
            finding.met += 1
            faults = [other.run.plan.faults for other in (finding.example, *finding.others)]
            plans = {other.run.plan for other in (finding.example, *finding.others)}
            room = len(finding.others) < OTHERS and faults.count(one.run.plan.faults) < OTHERS_ALIKE
            if room and one.run.plan not in plans:
                finding.others.append(result.runs[-1])
            return
        if len(result.findings) >= MOST_FINDINGS:
            self._beyond += 1
            return
        finding = FaultFinding(signature, one, len(result.runs), smallest=one.run.plan)
        finding.known = signature in self.settings.known
        result.findings.append(finding)
        self.runner.until = (self.exploring_ends + self.deadline) / 2
        self.tell(f"{one.outcome} in run {finding.first}: {plan_text(one.run.plan)}")
        self.remember(finding)  # now, since this process may be killed

    def learn_more(self, seconds: float) -> None:
        """Adapt the time limit to the median of passed runs: runs side by side, or on a busy machine, take longer than
        the first two."""
        insort(self._passed, seconds)
        if self.settings.limit is None and len(self._passed) >= self.runner.jobs:
            usual = self._passed[len(self._passed) // 2]
            self.result.limit = self.runner.limit = max(LEAST_LIMIT, TIMES * usual) + self.waits

    def confirm(self, findings: Sequence[FaultFinding]) -> None:
        chosen = [one for one in findings if not one.confirmed]
        self.runner.until = self.deadline
        self.trials.confirm(sorted(chosen, key=lambda one: (one.known, one.hangs)))
        for finding in chosen:
            if finding.is_of_test:
                self.blame_test(finding)

    def blame_test(self, finding: FaultFinding) -> None:
        """Record that a test fails without faults as well."""
        failed, of = finding.controls
        self.result.problem = (
            f"the test fails without faults in {failed} of {plural(of, 'run')} ({in_line(finding.example.what)}): "
            "it is flaky, or its cluster has ended"
        )
        if self.store is not None:
            self.store.forget(finding.signature)

    def shrink_all(self) -> None:
        """Shrink the new findings, each in an equal share of the time that is left, and save them."""
        findings = self.result.findings
        news = sorted(self.result.new_findings, key=lambda one: one.hangs)  # whose runs take as long as the limit
        for number, finding in enumerate(news):
            self.shrink(finding, (self.deadline - self.clock()) / (len(news) - number))
            if not self.is_merged(finding):
                self._settled.append(finding)
                self.keep(finding)
        self.runner.until = self.deadline
        for finding in filter(lambda one: one.reproduced, self._settled):
            plans = (with_faults_of(finding.smallest, other.run.plan) for other in finding.others)
            self.trials.add_minimal(finding, [plan for plan in plans if plan is not None])
        for finding in findings:
            if finding.known:
                self.keep(finding)
        if count := len(self.unconfirmed):
            self.time_was_up(f"{plural(count, 'finding')} could be confirmed")

    def shrink(self, finding: FaultFinding, seconds: float) -> None:
        began = self.clock()
        replays = finding.example.run.seconds * ceil(REPLAYS / self.runner.jobs) * REPLAY_TIME
        ends = began + seconds
        self.runner.until = until = ends - min(replays, seconds / 2)
        seen = (place for run in (*self.result.learning, finding.example.run) for place in run.places)
        shrinking = Shrinking(dict.fromkeys(seen), self.order.table, self.settings.order.on_mock)
        forms = self.trials.shrink(finding, shrinking, lambda: self.clock() >= until)
        self.runner.until = ends
        self.trials.replay(finding, forms)
        finding.seconds = self.clock() - began

    def is_merged(self, finding: FaultFinding) -> bool:
        """Set the cause of a finding by its smallest plan. Return True if another finding has the same failure and
        cause, and now contains this one."""
        before = finding.signature
        finding.signature = replace(before, cause=cause_of(finding.smallest))
        if finding.signature != before and self.store is not None:
            self.store.forget(before)
        finding.known = finding.signature in self.settings.known
        known = (one for one in self.result.findings if one.known and one is not finding)
        other = next((one for one in (*self._settled, *known) if one.signature == finding.signature), None)
        if other is None:
            return False
        other.met += finding.met
        other.first = min(other.first, finding.first)
        other.add_minimal(finding.smallest, *finding.rate)
        self.result.findings.remove(finding)
        return True

    def keep(self, finding: FaultFinding) -> None:
        """Keep a finding for the next exploration, and write its rule file if it was reproduced."""
        result, settings = self.result, self.settings
        self.remember(finding)
        if settings.save is None or finding.known or not finding.reproduced:
            return
        notes = finding_notes(result.test, finding, settings.order.seed, settings.rules)
        try:
            saved_form(finding.smallest)
            path = save_rules(
                settings.save, result.test, finding.signature, finding.smallest, notes, settings.one_batch_per_fetch
            )
        except OSError as error:
            result.notes.append(f"rules cannot be saved in {settings.save}: {error.strerror or error}")
        except KproxyError as error:
            result.notes.append(f"rules of {plan_text(finding.smallest)} cannot be saved: {error}")
        else:
            finding.file = str(path)

    def remember(self, finding: FaultFinding) -> None:
        if self.store is not None:
            problem = self.store.save(KeptFinding(finding.smallest, finding.signature, self.wall(), finding.rate))
            if problem and problem not in self.result.notes:
                self.result.notes.append(problem)
