"""One exploration from beginning to end: learn, explore, confirm, shrink, save.

Everything that happens outside comes in by the constructor: the runner of plans, the clock, and whom to tell of what is
going on. Plans are handed to the runner one by one as it becomes free, so that each choice knows of all runs that have
ended; where plans appear only after the last run, the runner is asked again.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from kproxy.terminal import in_line

from .database import FindingStore, KeptFinding, save_rules
from .judge import NONE_KNOWN, PASSED, SLOWER, FailureSignature, JudgedRun, KnownFailures, judge
from .model import ExploredRun, FaultPlan, Runner
from .order import OrderSettings, PlanOrder
from .places import common_places
from .plan import plan_text
from .result import Exploration, FaultFinding, applied_faults, finding_notes, slim_run
from .shrink import Shrinking
from .trials import Trials

LEAST_LIMIT, TIMES, WAITS = 15.0, 8.0, 2.0
"""Limit of a run: so many seconds at least, so many times the slower run without faults, so many times what clients may
wait for besides."""
LEARNING_LIMIT = 120.0
"""Seconds after which a run without faults is a hang, when no limit was given."""
FLAKY_TRIES, REPLAYS = 3, 5
"""Runs of each candidate while what does not always fail is shrunk; runs of what it was shrunk to."""
HANGS = 0.25
"""Part of the budget that shrinking hangs may use, each run of which takes as long as the limit. For all others there
is as much time again as for exploring."""
OTHERS = 5
"""Other plans of a finding that are tried when its first one does not always fail."""
DETAILED = 500
"""Runs that passed, and others, that are kept with their exchanges and output; of later ones these are left out."""


@dataclass(frozen=True, slots=True)
class ExploreSettings:
    """Settings of an exploration: `seconds` and `runs` (None: without end) are its budget, what comes first counts.

    limit: seconds of a run, None: as learned · first: stop at the first finding · until_covered: stop when each fault
    was applied · known: failures that are no news · save: folder for rule files, None: none · drip: readers get one
    batch at a time in all runs · rules: names of rule files that are in force in all runs besides.
    """

    order: OrderSettings = field(default_factory=OrderSettings)
    seconds: float = 60.0
    runs: int | None = None
    limit: float | None = None
    first: bool = False
    until_covered: bool = False
    known: KnownFailures = NONE_KNOWN
    save: Path | None = None
    drip: bool = False
    rules: tuple[str, ...] = ()


class Explorer:
    """Exploration of one test. `clock` tells monotonic seconds, `wall` those since 1970; `tell` takes lines about what
    is going on, which may hold anything that a client or a test says."""

    def __init__(
        self,
        test: str,
        runner: Runner,
        settings: ExploreSettings,
        store: FindingStore | None = None,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        tell: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.runner, self.settings, self.store = runner, settings, store
        self.clock, self.wall, self.tell = clock, wall, tell
        self.result = Exploration(test, settings.order.classes, runner.jobs, drip=settings.drip)
        self.trials = Trials(runner)
        self.slow_after = float("inf")
        self.waits = 0.0
        self.began = clock()
        self.order: PlanOrder
        self.stopped = False
        self._by_signature: dict[FailureSignature, FaultFinding] = {}
        self._earlier: dict[FaultPlan, FailureSignature] = {}
        self._started = 0
        self._passed: list[float] = []  # seconds of each run, sorted
        self._detailed: Counter[bool] = Counter()
        self._applied: set[str] = set()

    def explore(self) -> Exploration:
        """Explore the test, and return what came of it; what is there so far when a user interrupts it."""
        result = self.result
        try:
            if self.learn():
                self.try_plans()
                if not result.runs:
                    used = f"{self.clock() - self.began:.0f} s"
                    result.problem = f"time was up before the first run with a fault: {used} were used to learn"
                self.confirm_all()
        except KeyboardInterrupt:
            result.interrupted = True
            result.notes.append("interrupted: what was found until then is kept, and may not be confirmed or shrunk")
            for finding in result.findings:
                if not finding.known and not finding.is_of_test and not finding.file:
                    self.keep(finding)
        result.seconds = self.clock() - self.began
        return result

    # ---- learn

    def learn(self) -> bool:
        """Run the test twice without faults. Return True if it can be explored."""
        result, settings = self.result, self.settings
        self.runner.limit = settings.limit or LEARNING_LIMIT
        result.learning = list(self.runner.run([FaultPlan(), FaultPlan()]))
        judged = [judge(run) for run in result.learning]
        bad = [one for one in judged if one.outcome not in PASSED]
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
        self.tell(f"learned {len(result.learned.places)} places; a run may take {result.limit:.0f} s")
        return bool(self.order.left)

    def say_unfit(self, judged: Sequence[JudgedRun], bad: Sequence[JudgedRun]) -> None:
        """Put on record why a test cannot be explored that does not pass without faults."""
        result = self.result
        if bad and all(one.run.ended == "skipped" for one in judged):
            result.skipped = bad[0].run.problem
            return
        broken = [one for one in bad if one.outcome == "broken"]
        if broken or not bad:
            reason = broken[0].run.problem if broken else "there was no run"
            result.problem = f"the test cannot be run: {in_line(reason) or 'its process has told nothing'}"
            return
        failing = f"{len(bad)} of {len(judged)} runs without faults"
        result.flaky = len(bad) < len(judged)
        word = "is flaky" if result.flaky else "fails"
        result.problem = f"the test {word} ({failing}: {in_line(bad[0].what)}), and is not explored"

    # ---- explore

    def try_plans(self) -> None:
        """Run plans until the budget is used or nothing is left: findings of earlier explorations first."""
        result = self.result
        waiting = [] if self.store is None else self.store.load()
        self._earlier = {one.plan: one.signature for one in waiting}
        try:
            while not self.stopped and not self.over() and (waiting or self.order.left):
                started = self._started
                with closing(self.runner.run(self.plans(waiting))) as runs:
                    for run in runs:
                        self.ended(run)
                        if self.stopped:
                            break
                if self._started == started:
                    break
        finally:
            result.exploring = self.clock() - self.began
            result.left, result.refused = self.order.left, self.order.refused
            result.unlike_mock = tuple(sorted(self.order.unlike_mock))

    def plans(self, waiting: list[KeptFinding]) -> Iterator[FaultPlan]:
        """Yield the next plan each time that the runner can begin with one; end when there is none for now."""
        while waiting and not self.over():
            self._started += 1
            yield waiting.pop(0).plan
        while not self.over():
            plan = self.order.next()
            if plan is None:
                return
            self._started += 1
            yield plan

    def over(self) -> bool:
        """Return True if the budget is used, or all that was wanted is reached."""
        settings = self.settings
        if self.clock() - self.began >= settings.seconds:
            return True
        if settings.runs is not None and self._started >= settings.runs:
            return True
        return settings.until_covered and self.result.all_faults <= self._applied

    def ended(self, run: ExploredRun) -> None:
        """Take in a run: its outcome, what it makes room for, and the finding that it is or belongs to."""
        result = self.result
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
        elif one.outcome == "broken":
            self.tell(f"broken: {run.problem or plan_text(run.plan)}")
        if one.signature is None:
            if self.store is not None and one.outcome in PASSED and run.plan in self._earlier:
                self.store.forget(self._earlier[run.plan])
            return
        finding = self._by_signature.get(one.signature)
        if finding is not None:
            finding.met += 1
            plans = {finding.example.run.plan, *(other.run.plan for other in finding.others)}
            if len(finding.others) < OTHERS and run.plan not in plans:
                finding.others.append(result.runs[-1])
            return
        finding = FaultFinding(one.signature, one, len(result.runs), smallest=run.plan)
        finding.known = one.signature in self.settings.known
        self._by_signature[one.signature] = finding
        result.findings.append(finding)
        self.tell(f"{one.outcome} in run {finding.first}: {plan_text(run.plan)}")
        self.remember(finding)  # now, since nobody knows how this process ends
        if self.settings.first and not finding.known:
            self.stopped = True

    def learn_more(self, seconds: float) -> None:
        """Take in how long a run took that passed. Side by side, on a machine that others use, too, all may take longer
        than the first two did, and none of them must be called a hang for that; where the first two were held up, a
        hang must not use up the budget."""
        insort(self._passed, seconds)
        if self.settings.limit is None and len(self._passed) >= self.runner.jobs:
            usual = self._passed[len(self._passed) // 2]
            self.result.limit = self.runner.limit = max(LEAST_LIMIT, TIMES * usual) + self.waits

    # ---- confirm

    def confirm_all(self) -> None:
        """Confirm each finding, shrink those that are of faults, and save them."""
        findings = self.result.findings
        for finding in findings:
            self.trials.confirm(finding)
        left = {True: HANGS * self.settings.seconds, False: self.settings.seconds}
        news = [one for one in findings if not one.known and not one.is_of_test]
        for number, finding in enumerate(news):
            hangs = finding.hangs
            self.shrink(finding, left[hangs] / sum(one.hangs == hangs for one in news[number:]))
            left[hangs] = max(left[hangs] - finding.seconds, 0.0)
            self.keep(finding)
        for finding in findings:
            if finding.is_of_test:
                self.blame_test(finding)
            elif finding.known:
                self.keep(finding)

    def blame_test(self, finding: FaultFinding) -> None:
        """Put on record that a test fails without faults, too: by itself, or because its cluster has ended."""
        failed, of = finding.controls
        self.result.problem = (
            f"the test fails without faults in {failed} of {of} runs ({in_line(finding.example.what)}): it is flaky, "
            "or its cluster has ended"
        )
        if self.store is not None:
            self.store.forget(finding.signature)

    # ---- shrink

    def shrink(self, finding: FaultFinding, seconds: float) -> None:
        """Find the smallest plan that fails as a finding does, within its share of the time."""
        began = self.clock()
        ends = began + seconds
        tries = 1 if finding.certain else FLAKY_TRIES
        seen = (place for run in (*self.result.learning, finding.example.run) for place in run.places)
        shrinking = Shrinking(dict.fromkeys(seen), self.order.table, self.settings.order.on_mock)

        def first_failing(plans: Sequence[FaultPlan]) -> int | None:
            number = self.trials.first_failing(plans, finding.signature, tries)
            if number is not None:
                finding.smallest = plans[number]  # now, since somebody may interrupt the rest
            return number

        first = finding.example.run.plan
        shrunk = shrinking.shrink(first, first_failing, lambda: self.clock() >= ends)
        replays = self.trials.failing(shrunk.plan, finding.signature, REPLAYS)
        if replays:
            finding.replays, finding.replays_of = replays, REPLAYS
        else:
            finding.smallest = first
        finding.tried, finding.complete = shrunk.tried, shrunk.complete and bool(replays)
        finding.seconds = self.clock() - began

    # ---- save

    def keep(self, finding: FaultFinding) -> None:
        """Keep a finding for the next exploration, and write its rules into a file."""
        result, settings = self.result, self.settings
        self.remember(finding)
        if settings.save is None or finding.known:
            return
        notes = finding_notes(result.test, finding, settings.order.seed, settings.rules)
        try:
            path = save_rules(settings.save, result.test, finding.signature, finding.smallest, notes, settings.drip)
        except OSError as error:
            result.notes.append(f"rules cannot be saved in {settings.save}: {error.strerror or error}")
        else:
            finding.file = str(path)

    def remember(self, finding: FaultFinding) -> None:
        """Keep a finding for the next exploration."""
        if self.store is not None:
            problem = self.store.save(KeptFinding(finding.smallest, finding.signature, self.wall()))
            if problem and problem not in self.result.notes:
                self.result.notes.append(problem)
