"""Explorations from beginning to end, with programs that are played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kproxy.testing.explore import explorer as explorer_module
from kproxy.testing.explore.database import Baseline, FindingStore, KeptFinding, KnownFailure
from kproxy.testing.explore.explorer import Explorer, ExploreSettings
from kproxy.testing.explore.model import ExploredRun, FaultPlan, PlannedFault, RaisedError, StepCounters
from kproxy.testing.explore.order import OrderSettings
from kproxy.testing.explore.plan import fault_table, rule_file, saved_form
from kproxy.testing.explore.report import report_lines
from kproxy.testing.explore.result import NOT_ON_MOCK, Exploration, FailureSignature, KnownFailures, judge
from tests.testing.explore.made_up import (
    COPY,
    FakeRunner,
    exchange,
    failed_run,
    made_run,
    planned,
    produce,
    retried,
    stable,
)

Program = Callable[[FaultPlan, int], ExploredRun]


def right(of: FaultPlan, number: int) -> ExploredRun:
    """Play a program that gets over every fault."""
    return made_run(of, exchanges=retried(COPY, of))


def doubles(of: FaultPlan, number: int) -> ExploredRun:
    """Play a program that sends again by hand what may have been written."""
    if any(
        "lost" in step.fault.name or "TIMED_OUT" in step.fault.name for step in of.steps if step.place.api == "Produce"
    ):
        return failed_run(of, f"doubled {number}")
    return right(of, number)


def looks_away(of: FaultPlan, number: int) -> ExploredRun:
    """Play a program that gives up after the second failure of the same write."""
    again = [step for step in of.steps if step.place.api == "Produce"]
    if len(again) == 2 and again[0].place.mark.batch == again[1].place.mark.batch:
        return failed_run(of, "lost 1")
    if len(again) == 2 and {step.place.mark.nth for step in again} == {1, 2}:
        return failed_run(of, "lost 1")
    return right(of, number)


def explorer(program: Program, store: FindingStore | None = None, jobs: int = 4, tell=lambda text: None, **settings):
    """Return an explorer of a played program, and its runner."""
    runner = FakeRunner(program, jobs)
    order = {name: settings.pop(name) for name in ("classes", "depth", "only", "on_mock", "seed") if name in settings}
    chosen = ExploreSettings(OrderSettings(**order), **settings)
    return Explorer("t.py::test", runner, chosen, store, clock=runner.clock, wall=lambda: 5.0, tell=tell), runner


@pytest.mark.parametrize(
    ("seconds", "before"), [(0.0, "two runs without faults had ended"), (0.51, "the first run with a fault")]
)
def test_explorer_time_up_before_first_run_is_a_problem(seconds: float, before: str) -> None:
    """Learning uses all of the time: nothing is explored, and the exit code is 2."""
    result = explored(right, seconds=seconds)
    assert not result.runs and f"time was up before {before}" in result.problem and result.exit_code() == 2


def test_a_test_that_skips_itself_is_skipped() -> None:
    """In both runs without faults; in one of two it is flaky."""
    always = explored(lambda of, number: made_run(of, "skipped", problem="not here"))
    assert (always.skipped, always.problem, always.exit_code()) == ("not here", "", 0)
    once = explored(lambda of, number: made_run(of, "skipped" if number == 1 else "passed", problem="not here"))
    assert once.flaky and "skipped: not here" in once.problem and once.exit_code() == 2


def explored(program: Program, **settings) -> Exploration:
    """Return what comes of exploring a played program."""
    return explorer(program, **settings)[0].explore()


def test_a_right_program_has_no_findings_and_all_faults_were_tried() -> None:
    """It ends when nothing is left, and each fault was applied."""
    result = explored(right, seconds=1e9)
    assert result.findings == []
    assert result.left == 0
    assert result.covered >= result.all_faults
    assert result.exit_code() == 0
    assert set(result.outcomes) == {"passed"}


def test_a_bug_is_found_confirmed_and_shrunk() -> None:
    """Failures at many places are one finding, whose smallest plan is the first write's answer."""
    result = explored(doubles, seconds=1e9)
    (finding,) = result.findings
    assert finding.certain
    assert finding.met > 1
    assert finding.first <= 4
    assert (finding.fails, finding.of) == (3, 3)
    assert finding.controls == (0, 2)
    assert (finding.replays, finding.replays_of) == (5, 5)
    (step,) = finding.smallest.steps
    assert step.fault.name == "Produce: REQUEST_TIMED_OUT, after the work"
    assert step.place.mark.nth == 1
    assert step.place.topic is None
    assert finding.complete
    assert finding.signature.message == "doubled N"
    assert result.exit_code() == 1


def test_a_bug_that_needs_two_faults_is_found() -> None:
    """The second fault is tried at the retry that the first one makes."""
    result = explored(looks_away, seconds=1e9)
    (finding,) = result.findings
    assert len(finding.smallest.steps) == 2
    assert finding.certain
    assert explored(looks_away, seconds=1e9, depth=1).findings == []


def test_a_pause_alone_ends_nothing() -> None:
    """Pairs appear only when the last run has ended, and are run all the same."""
    result = explored(right, seconds=1e9, jobs=100, only="api=Produce")
    assert any(len(one.run.plan.steps) == 2 for one in result.runs)
    assert result.left == 0


def test_budgets_end_it() -> None:
    """So many runs or seconds, and no more plans are begun; runs under way are waited for."""
    result = explored(right, seconds=1e9, runs=7)
    assert len(result.runs) == 7
    assert result.left > 0
    timed = explored(right, seconds=5.0)
    assert 4 <= len(timed.runs) <= 24
    assert timed.left > 0


def test_the_first_finding_ends_it_if_asked() -> None:
    """Runs under way are ended, the finding is confirmed and shrunk."""
    one, runner = explorer(doubles, seconds=1e9, first=True, jobs=1)
    result = one.explore()
    assert len(result.runs) == result.findings[0].first
    assert runner.closed >= 1
    assert result.findings[0].certain


def test_coverage_ends_it_if_asked() -> None:
    """When each fault was applied once, nothing more is begun."""
    result = explored(right, seconds=1e9, until_covered=True, jobs=1)
    assert result.all_faults <= result.covered
    assert result.left > 0


@pytest.mark.parametrize(("failing", "flaky", "word"), [((1,), True, "is flaky"), ((1, 2), False, "fails")])
def test_a_test_that_fails_without_faults_is_told_and_not_explored(failing, flaky: bool, word: str) -> None:
    """It is flaky if one of two runs failed; nothing else is run, and the exit code is 2."""

    def program(of: FaultPlan, number: int) -> ExploredRun:
        return failed_run(of) if number in failing else right(of, number)

    one, runner = explorer(program)
    result = one.explore()
    assert result.flaky is flaky
    assert word in result.problem
    assert "lost 1" in result.problem
    assert len(runner.ran) == 2
    assert result.exit_code() == 2


def test_a_test_that_cannot_run_is_told() -> None:
    """What broke is in the problem, made safe."""
    result = explored(lambda of, number: made_run(of, "broken", problem="no \x1b[31mport"))
    assert "no \\u001b[31mport" in result.problem
    assert result.exit_code() == 2


@pytest.mark.parametrize(
    ("exchanges", "word"), [((), "nothing has gone through"), ((produce(1, group="x"),), "no exchange in common")]
)
def test_a_test_without_places_is_told(exchanges, word: str) -> None:
    """A test that does not use kproxy, or has other names in each run, cannot be explored."""

    def program(of: FaultPlan, number: int) -> ExploredRun:
        more = [produce(1, topic=f"t{number}")] if exchanges else []
        return made_run(of, exchanges=more)

    result = explored(program)
    assert word in result.problem
    assert result.exit_code() == 2


def test_the_limit_is_learned() -> None:
    """A run may take eight times the slower one and twice what clients may wait for, and 15 s at least."""
    one, runner = explorer(lambda of, number: made_run(of, seconds=3.0 * number, patience=10.0), runs=1)
    assert one.explore().limit == 8 * 6.0 + 2 * 10.0
    assert runner.limit == 68.0
    assert explored(right, runs=1).limit == 15.0
    assert explored(right, runs=1, limit=2.5).limit == 2.5


@pytest.mark.parametrize("first", [1.0, 50.0])
def test_the_limit_follows_runs_that_take_longer_side_by_side(first: float) -> None:
    """The two runs without faults have the machine for themselves, or were held up; a limit that was given stays."""

    def program(of: FaultPlan, number: int) -> ExploredRun:
        return made_run(of, seconds=5.0 if number > 2 else first, patience=10.0)

    one, runner = explorer(program, seconds=1e9, runs=8)
    assert one.explore().limit == runner.limit == 8 * 5.0 + 2 * 10.0
    assert explored(program, seconds=1e9, runs=8, limit=2.5).limit == 2.5


def test_explorer_certain_plan_replaces_intermittent_example() -> None:
    """The first of several hangs with the same cause occurred by chance; another plan hangs in each run."""
    hung: list[FaultPlan] = []

    def program(of: FaultPlan, number: int) -> ExploredRun:
        if of.steps and (not hung or saved_form(of) in hung[1:] or (saved_form(of) != hung[0] and len(hung) < 3)):
            hung.append(saved_form(of))
            return made_run(of, "hang")
        return right(of, number)

    result = explored(program, seconds=1e9, runs=10, depth=1, jobs=1, only="api=Produce", classes=("transient",))
    (finding,) = result.findings
    assert finding.certain and saved_form(finding.example.run.plan) == hung[1] and finding.first == 1
    assert result.exit_code() == 1


def test_slow_runs_are_told_and_pass() -> None:
    """Five times as long as without faults is slow."""
    result = explored(lambda of, number: made_run(of, seconds=6.0 if of.steps else 1.0), seconds=1e9, runs=5)
    assert result.outcomes == {"slow": 5}
    assert result.exit_code() == 0


def test_what_was_not_applied_never_counts_as_passed() -> None:
    """Runs in which a fault found nothing to act on are told, and cover nothing."""
    result = explored(lambda of, number: made_run(of, counters=tuple(StepCounters(1) for _ in of.steps)), seconds=1e9)
    assert set(result.outcomes) == {"not exercised"}
    assert result.covered == frozenset()
    assert result.left == 0


def test_explorer_intermittent_failure_fails_the_build() -> None:
    """An intermittent failure with clean controls is a finding with its rate; the exit code is 1."""

    def program(of: FaultPlan, number: int) -> ExploredRun:
        return doubles(of, number) if number % 3 == 0 else right(of, number)

    result = explored(program, seconds=1e9)
    (finding,) = result.findings
    assert finding.of == 10
    assert 1 <= finding.fails < 10
    assert not finding.certain
    assert finding.controls == (0, 5)
    assert "; intermittent)" in "\n".join(report_lines(result))
    assert result.exit_code() == 1


def test_a_cluster_that_ends_is_no_finding() -> None:
    """When runs fail without faults, too, the faults are not to blame, and nothing is kept or saved."""

    def program(of: FaultPlan, number: int) -> ExploredRun:
        if number <= 12:
            return right(of, number)
        return made_run(of, "raised", raised=RaisedError("KafkaException", "all brokers are down"), exchanges=())

    result = explored(program, seconds=1e9, classes=("transient",))
    assert result.findings
    assert all(finding.is_of_test for finding in result.findings)
    assert "all brokers are down" in result.problem
    assert result.new_findings == []
    assert result.exit_code() == 2


def test_findings_are_kept_and_tried_first(tmp_path: Path) -> None:
    """The smallest plan is the first one of the next exploration; when it passes it is forgotten."""
    store = FindingStore("t", tmp_path)
    first = explored(doubles, store=store, seconds=1e9)
    one, runner = explorer(doubles, store=store, runs=1, jobs=1)
    again = one.explore()
    assert runner.ran[2] == first.findings[0].smallest
    assert again.findings[0].first == 1
    explored(right, store=store, runs=1)
    assert store.load() == []


def test_an_interrupted_exploration_keeps_what_it_has_found(tmp_path: Path) -> None:
    """Ctrl-C while a finding is shrunk: the store and the rule file contain the smallest plan so far."""
    shrinking = []

    def program(of: FaultPlan, number: int) -> ExploredRun:
        if shrinking and len(shrinking) > 25:
            raise KeyboardInterrupt
        if shrinking:
            shrinking.append(number)
        run = doubles(of, number)
        if judge(run).signature:
            shrinking.append(number)
        return run

    store = FindingStore("t", tmp_path)
    one, _ = explorer(program, store=store, first=True, seconds=1e9, save=tmp_path / "rules", jobs=1)
    result = one.explore()
    assert result.interrupted
    (finding,) = result.findings
    assert finding.certain
    assert (finding.replays, finding.replays_of, finding.complete) == (3, 3, False)
    assert finding.smallest != finding.example.run.plan
    assert Path(finding.file).read_text().endswith(rule_file(finding.smallest))
    text = "\n".join(report_lines(result))
    assert "time was up" in text
    assert "fails in 3 of 3 runs" in text
    assert result.exit_code() == 1
    assert any("interrupted" in note for note in result.notes)
    assert result.left > 0
    (kept,) = store.load()
    assert kept.plan == finding.smallest


def test_interrupted_before_anything_is_sure(tmp_path: Path) -> None:
    """A finding that was met once is reported as not confirmed and has no rule file. The exit code is 2, and the
    baseline does not change."""

    def program(of: FaultPlan, number: int) -> ExploredRun:
        if number > 20:
            raise KeyboardInterrupt
        return doubles(of, number)

    one, _ = explorer(program, seconds=1e9, save=tmp_path, jobs=1)
    result = one.explore()
    assert {finding.file for finding in result.findings} == {""} and not list(tmp_path.iterdir())
    assert "not confirmed" in "\n".join(report_lines(result))
    assert result.exit_code() == 2
    known = KnownFailure(result.test, judge(failed_run(FaultPlan())).signature, "p")
    assert Baseline([known]).updated([result]).known(result.test) == {known.signature}


def test_rules_are_saved(tmp_path: Path) -> None:
    """A finding has a file with its rules and what is known of it."""
    result = explored(doubles, seconds=1e9, save=tmp_path / "rules", rules=("own.yaml",), one_batch_per_fetch=True)
    (finding,) = result.findings
    text = Path(finding.file).read_text()
    assert "# fails in 5 of 5 runs; seed 0\n" in text
    assert "# in force besides: own.yaml\n" in text
    assert "error: REQUEST_TIMED_OUT" in text
    assert "kind: empty_fetch" in text


def test_a_full_disk_costs_no_result(tmp_path: Path) -> None:
    """What cannot be written is a note, once."""
    (tmp_path / "rules").write_text("in the way")
    (tmp_path / "kept").write_text("in the way")
    result = explored(doubles, store=FindingStore("t", tmp_path / "kept"), seconds=1e9, save=tmp_path / "rules")
    assert result.findings[0].certain
    assert result.findings[0].file == ""
    assert len([note for note in result.notes if "cannot be kept" in note]) == 1
    assert len([note for note in result.notes if "cannot be saved" in note]) == 1


def test_known_failures_are_no_news(tmp_path: Path) -> None:
    """What the baseline has is confirmed and told; it is neither shrunk nor saved, and fails nothing."""
    signature = explored(doubles, seconds=1e9).findings[0].signature
    result = explored(doubles, seconds=1e9, known=KnownFailures(frozenset({signature})), save=tmp_path, first=True)
    (finding,) = result.findings
    assert finding.known
    assert finding.replays is None
    assert list(tmp_path.iterdir()) == []
    assert result.exit_code() == 0


def test_explorer_hangs_end_within_the_time() -> None:
    """Runs of a hang take as long as the limit; shrinking ends in time all the same."""

    def program(of: FaultPlan, number: int) -> ExploredRun:
        return made_run(of, "hang", seconds=20.0) if of.steps else right(of, number)

    result = explored(program, seconds=300.0, jobs=1, only="api=Produce", classes=("transient",))
    (finding,) = result.findings
    assert finding.certain and not finding.complete and finding.replays
    assert result.seconds <= 300.0


def test_explorer_each_finding_gets_a_share_of_the_time() -> None:
    """The first finding does not use the time of the second, and the phases together end in time."""

    def program(of: FaultPlan, number: int) -> ExploredRun:
        for api in ("OffsetCommit", "Produce"):
            if any(step.place.api == api for step in of.steps):
                return failed_run(of, f"lost a {api}", seconds=2.0)
        return right(of, number)

    result = explored(program, seconds=120.0, jobs=1, classes=("transient",))
    first, second = result.findings
    assert first.seconds <= 30.0
    assert second.tried > 0
    assert result.exploring < result.seconds <= 120.0


def test_a_broken_run_is_an_error() -> None:
    """A fault that could not be made is told, and the exit code says so."""

    def program(of: FaultPlan, number: int) -> ExploredRun:
        run = right(of, number)
        return made_run(of, counters=(StepCounters(1, 1, 1, ("raised",)),)) if number == 5 else run

    result = explored(program, seconds=1e9)
    assert len(result.broken) == 1
    assert result.exit_code() == 2


def test_exchanges_of_passed_runs_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some thousands of runs only those that failed keep what is known of them."""
    monkeypatch.setattr(explorer_module, "DETAILED", 3)
    result = explored(lambda of, number: made_run(of, story=("line",)), seconds=1e9, runs=8)
    assert [bool(one.run.story) for one in result.runs] == [True] * 3 + [False] * 5
    assert all(one.run.places == () for one in result.runs)


def test_floods_of_output_are_cut() -> None:
    """Of what a run has printed the end is kept, of its stacks the beginning."""
    text = "a" + "x" * 999_999 + "z"
    result = explored(lambda of, number: made_run(of, output=text, stacks=text), seconds=1e9, runs=1)
    run = result.runs[0].run
    assert len(run.output) == len(run.stacks) < 100_000
    assert (run.output[-1], run.stacks[0]) == ("z", "a")


def test_whoever_wants_to_know_is_told() -> None:
    """A line about what was learned, and one about each finding."""
    lines: list[str] = []
    one, _ = explorer(doubles, tell=lines.append, seconds=1e9)
    one.explore()
    assert lines[0].startswith("learned 7 places")
    assert lines[1].startswith("failed in run")


def test_explorer_transactional_writes_are_explored_on_mock() -> None:
    writes = (*COPY, exchange("EndTxn", transactional_id="t"))
    made, _ = explorer(lambda of, number: made_run(of, exchanges=writes), on_mock=True, runs=3)
    assert made.explore().runs and not made.result.problem


def test_places_of_the_real_table_are_learned() -> None:
    """The copy's places are all there."""
    assert explored(right, runs=1).learned.places == stable(COPY)


def test_explorer_plans_of_earlier_explorations_obey_the_options(tmp_path: Path) -> None:
    """Other classes, places and clusters, more faults, and faults that the table lacks: such plans are not run."""
    places = stable(COPY)
    lost, fatal = (
        planned("Produce", name, places[1]) for name in ("answer lost", "TOPIC_AUTHORIZATION_FAILED, before the work")
    )
    idempotent = replace(lost, place=replace(places[3], traits=places[3].traits | {"idempotent"}))
    shrunk = replace(lost, place=replace(places[1], client_id=None))
    unknown = replace(lost, fault=replace(lost.fault, name="Produce: renamed"))
    renewed = replace(lost, fault=replace(lost.fault, rule={"kind": "no_such_kind"}))
    store = FindingStore("t", tmp_path)
    for number, steps in enumerate([(lost,), (fatal,), (idempotent,), (shrunk,), (unknown,), (renewed, idempotent)]):
        store.save(KeptFinding(FaultPlan(steps), FailureSignature("failed", message=str(number)), float(-number)))

    def tried(**settings) -> list[tuple[object, ...]]:
        one, _ = explorer(right, store=store, runs=0, **settings)
        one.explore()
        assert all(step.fault in fault_table().all for tried in one._earlier for step in tried.steps)
        return [tuple((step.fault.name, step.place) for step in tried.steps) for tried in one._earlier]

    def named(*steps: PlannedFault) -> tuple[object, ...]:
        return tuple((step.fault.name, step.place) for step in steps)

    assert tried(classes=("fatal",)) == [named(fatal)]
    assert tried(only="api=Metadata") == []
    assert tried(only="api=Produce,client_id=app", classes=("transient",), depth=1) == [
        named(lost), named(idempotent), named(shrunk),
    ]  # fmt: skip
    assert named(idempotent) not in tried(on_mock=True) and named(lost) in tried(on_mock=True)
    assert named(lost, idempotent) in tried() and len(tried()) == 5


def test_explorer_time_of_the_start_is_reported() -> None:
    runner = FakeRunner(right)
    runner.now = 10.0
    one = Explorer("t", runner, ExploreSettings(seconds=9.0), clock=runner.clock, wall=lambda: 5.0, began=0.0)
    assert "after 10 s" in one.explore().problem and one.result.seconds == 10


def test_explorer_result_that_the_mock_cannot_give_is_a_problem() -> None:
    """The test fails without faults, since the mock has lost its offsets."""
    made, _ = explorer(lambda of, number: made_run(of, "skipped", problem=NOT_ON_MOCK), on_mock=True)
    result = made.explore()
    assert result.problem == NOT_ON_MOCK and not result.skipped and result.exit_code() == 2


def test_explorer_run_that_the_mock_cannot_judge_is_no_finding() -> None:
    made, _ = explorer(
        lambda of, number: made_run(of, "skipped" if of.steps else "passed", problem=NOT_ON_MOCK), runs=4
    )
    result = made.explore()
    assert result.outcomes == {"not exercised": 4} and not result.findings and not result.problem
