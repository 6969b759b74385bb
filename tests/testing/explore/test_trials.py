"""Failure rates: confirmation, shrinking that preserves them, and rule files that reproduce."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.base.errors import InputError
from kproxy.testing.explore import explorer as explorer_module
from kproxy.testing.explore import reruns
from kproxy.testing.explore.database import Baseline, FindingStore
from kproxy.testing.explore.explorer import OTHERS
from kproxy.testing.explore.model import ExploredRun, FaultPlan
from kproxy.testing.explore.plan import plan_of_file, plan_text, saved_form
from kproxy.testing.explore.report import report_lines
from kproxy.testing.explore.reruns import MeasuredPlan, Shrinking, Tally, Trials
from kproxy.testing.explore.result import MOST_MINIMAL, Exploration, FaultFinding, KnownFailures, cause_of, judge
from tests.testing.explore.made_up import COPY, FakeRunner, failed_run, made_run, plan, planned, stable
from tests.testing.explore.test_explorer import doubles, explored, explorer, right

PLACES = stable(COPY)
LOST = plan(planned("Produce", "answer lost", PLACES[3]))


class Rates:
    """Program that fails by plan: `fails` gets the form of a plan and the number of its run, from 1."""

    def __init__(self, fails: Callable[[FaultPlan, int], bool]) -> None:
        self.fails, self.runs = fails, Counter[FaultPlan]()

    def __call__(self, of: FaultPlan, number: int) -> ExploredRun:
        self.runs[of] += 1
        return failed_run(of) if self.fails(of, self.runs[of]) else made_run(of)


def shrunk(fails: Callable[[FaultPlan, int], bool], rate: Tally) -> tuple[FaultFinding, Rates]:
    """Return a finding of a lost response to the second write, with this rate, after it was shrunk."""
    rates = Rates(fails)
    one = judge(failed_run(LOST))
    finding = FaultFinding(one.signature, one, 1, fails=rate.failed, of=rate.of, smallest=LOST)
    trials = Trials(FakeRunner(rates))
    trials.replay(finding, trials.shrink(finding, Shrinking(PLACES), lambda: False))
    return finding, rates


def in_rates(failed: int, of: int, number: int) -> bool:
    """Return True for `failed` of each `of` runs."""
    return (number - 1) * failed % of < failed


def test_shrink_smaller_plan_that_fails_less_often_is_refused() -> None:
    """The first write fails in two of three runs, the second in all: the second stays."""
    finding, _ = shrunk(lambda of, number: of.steps[0].place.mark.nth == 2 or in_rates(2, 3, number), Tally(3, 3))
    assert finding.smallest.steps[0].place.mark.nth == 2 and finding.complete
    assert (finding.replays, finding.replays_of) == (5, 5)


def test_shrink_plan_that_fails_no_more_gives_its_predecessor() -> None:
    """A smaller plan fails in the four runs that accept it and in none of its replays, its predecessor in all."""

    def fails(of: FaultPlan, number: int) -> bool:
        return of.steps[0].place.topic is not None or number <= 4

    finding, rates = shrunk(fails, Tally(3, 3))
    last = [form for form in rates.runs if form.steps[0].place.topic is None]
    assert any(rates.runs[form] > 4 for form in last)
    assert finding.smallest.steps[0].place.topic == "out" and not finding.complete
    assert (finding.replays, finding.replays_of) == (5, 5)


@pytest.mark.parametrize(("failing", "accepted"), [(6, True), (5, True), (4, False), (10, True)])
def test_shrink_intermittent_plan_keeps_its_rate(failing: int, accepted: bool) -> None:
    """A smaller plan of one that fails in 6 of 10 runs has to fail in 5 of 10."""

    def fails(of: FaultPlan, number: int) -> bool:
        return in_rates(6 if of.steps[0].place.mark.nth == 2 else failing, 10, number)

    finding, _ = shrunk(fails, Tally(6, 10))
    assert (finding.smallest.steps[0].place.mark.nth == 1) == accepted and finding.complete
    assert finding.replays_of in (5, 10) and finding.replays / finding.replays_of >= 0.5


def test_shrink_several_steps_do_not_add_their_tolerances() -> None:
    """Each selector fewer costs a tenth of the rate: one step is accepted, the next is not."""

    def fails(of: FaultPlan, number: int) -> bool:
        place = of.steps[0].place
        missing = [place.client_id, place.topic, place.partition].count(None)
        return in_rates(6 - missing, 10, number)

    finding, _ = shrunk(fails, Tally(6, 10))
    place = finding.smallest.steps[0].place
    assert [place.client_id, place.topic, place.partition].count(None) == 1 and finding.complete


def test_shrink_runs_plans_as_their_files_have_them(tmp_path: Path) -> None:
    """The plan of the saved file is the one that failed in the last five runs."""
    one, runner = explorer(doubles, seconds=1e9, save=tmp_path, runs=4, classes=("transient",))
    (finding,) = one.explore().findings
    saved, _ = plan_of_file(Path(finding.file))
    assert saved in runner.ran and finding.replays == 5
    forms = set(runner.ran[6:])  # after those that learn and explore
    assert all(not form.steps or form == saved_form(form) for form in forms)


def test_finding_that_fails_no_more_is_not_saved(tmp_path: Path) -> None:
    """A failure that no later run repeats has its rate, no rule file, and stays in the store."""
    store = FindingStore("t", tmp_path / "store")

    def program(of: FaultPlan, number: int) -> ExploredRun:
        return failed_run(of) if number == 5 else right(of, number)

    result = explored(program, store=store, seconds=1e9, runs=8, save=tmp_path / "rules")
    (finding,) = result.findings
    assert (finding.fails, finding.of, finding.controls, finding.replays) == (1, 10, (0, 5), 0)
    assert finding.file == "" and not (tmp_path / "rules").exists() and len(store.load()) == 1
    assert "not saved: it did not fail again from its rule file" in "\n".join(report_lines(result))
    assert result.exit_code() == 1


def test_finding_that_no_file_can_have_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a rule file cannot express a plan, there is a note with the reason."""

    def refuse(of: FaultPlan) -> FaultPlan:
        raise InputError("expected rules of an exploration, got others")

    monkeypatch.setattr(reruns, "saved_form", refuse)
    monkeypatch.setattr(explorer_module, "saved_form", refuse)
    result = explored(doubles, seconds=1e9, runs=4, save=tmp_path)
    assert {finding.file for finding in result.findings} == {""} and not list(tmp_path.iterdir())
    assert any("cannot be saved: expected rules of an exploration, got others" in note for note in result.notes)


# ---- causes


def hangs(of: FaultPlan, number: int) -> ExploredRun:
    """Play a program that hangs when a write or a commit fails with a transient error."""
    bad = {"Produce transient", "OffsetCommit transient"}
    return made_run(of, "hang", seconds=15.0) if bad & set(cause_of(of)) else made_run(of)


def test_explorer_hangs_of_two_apis_are_two_findings() -> None:
    """Each is shrunk, has its own signature, and lists other faults that hang at the same place."""
    result = explored(hangs, seconds=1e9)
    causes = {finding.signature.cause: finding for finding in result.findings}
    assert set(causes) == {("Produce transient",), ("OffsetCommit transient",)}
    assert len({finding.signature.short for finding in result.findings}) == 2
    for finding in result.findings:
        assert finding.complete and finding.replays == 5 and len(finding.smallest.steps) == 1
        assert 1 <= len(finding.minimal) <= MOST_MINIMAL
        assert {one.steps[0].place for one, _, _ in finding.minimal} == {finding.smallest.steps[0].place}
        faults = {one.faults for one, _, _ in finding.minimal}
        assert len(faults) == len(finding.minimal) and finding.smallest.faults not in faults
        assert all((failed, of) == (3, 3) for _, failed, of in finding.minimal)
        assert len(finding.others) <= OTHERS
        first, _, _ = finding.minimal[0]
        assert f"the same with {plan_text(first)}: fails in 3 of 3 runs" in "\n".join(report_lines(result))


def test_explorer_findings_with_one_minimal_cause_are_merged() -> None:
    """Fatal and transient errors of writes fail alike: both are shrunk to a transient error, and are one finding."""

    def program(of: FaultPlan, number: int) -> ExploredRun:
        return failed_run(of) if any(step.place.api == "Produce" for step in of.steps) else made_run(of)

    result = explored(program, seconds=1e9, depth=1, only="api=Produce")
    (finding,) = result.findings
    assert finding.signature.cause == ("Produce transient",) and finding.met == len(result.runs)


def test_explorer_known_hang_does_not_hide_another() -> None:
    """The baseline contains the hang of commits; the hang of writes is new. Neither is lost by an update."""
    first = explored(hangs, seconds=1e9)
    known = next(one for one in first.findings if one.signature.cause == ("OffsetCommit transient",))
    again = explored(hangs, seconds=1e9, known=KnownFailures(frozenset({known.signature})))
    (new,) = again.new_findings
    assert new.signature.cause == ("Produce transient",)
    assert Baseline().updated([first]).known(first.test) == {one.signature for one in first.findings}


def test_explorer_findings_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures of ever other kinds are counted beyond the limit."""

    def program(of: FaultPlan, number: int) -> ExploredRun:
        word = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        return failed_run(of, f"lost {word}") if of.steps else made_run(of)

    monkeypatch.setattr(explorer_module, "MOST_FINDINGS", 3)
    result = explored(program, seconds=1e9, depth=1, runs=10)
    assert len(result.findings) == 3
    assert "7 failures of other kinds came after 3 findings" in result.notes


# ---- first


def test_explorer_first_goes_on_after_intermittent_failures() -> None:
    """An intermittent failure is confirmed at once and does not end it; the next certain one does."""
    seen = Counter[str]()

    def program(of: FaultPlan, number: int) -> ExploredRun:
        text = plan_text(of)
        if "OffsetCommit" in text:
            seen["commit"] += 1
            return failed_run(of, "now and then") if seen["commit"] in (1, 3) else made_run(of)
        return failed_run(of, "always") if "AUTHORIZATION" in text and "Produce" in text else made_run(of)

    one, runner = explorer(program, seconds=1e9, first=True, depth=1)
    result = one.explore()
    flaky, certain = result.findings
    assert not flaky.certain and certain.certain and certain.first > flaky.first
    assert result.left > 0 and runner.closed >= 1
    assert total(result) == total(explored(right, seconds=1e9, runs=1, depth=1))


def total(result: Exploration) -> int:
    """Return how many plans with one fault there are: those that ran, and those that are left."""
    plans = {one.run.plan for one in result.runs}
    return len(plans) + result.left


# ---- time


class StrictRunner(FakeRunner):
    """Runner that records how far its time went."""

    def run(self, plans: Iterable[FaultPlan]):
        assert self.until < float("inf")
        return super().run(plans)


@settings(max_examples=30)
@given(st.floats(1.0, 400.0), st.integers(1, 8), st.floats(0.1, 30.0), st.booleans(), st.integers(0, 5))
def test_explorer_never_exceeds_its_time(seconds: float, jobs: int, each: float, first: bool, salt: int) -> None:
    """Whatever fails, hangs, or comes and goes: all phases together end in time, and cut runs are plans left."""

    def program(of: FaultPlan, number: int) -> ExploredRun:
        if not of.steps:
            return made_run(of, seconds=each / 10)
        kind = (number * 7 + salt) % 5
        if kind == 0:
            return made_run(of, "hang", seconds=each)
        return failed_run(of, seconds=each / 5) if kind == 1 else made_run(of, seconds=each / 10)

    runner = StrictRunner(program, jobs)
    one, _ = explorer(program, first=first, seconds=seconds, runs=60)
    one.runner = one.trials.runner = runner
    one.clock = runner.clock
    result = one.explore()
    assert runner.now <= seconds
    assert result.seconds <= seconds
    assert result.problem or all(finding.confirmed for finding in result.findings)


def test_explorer_finding_at_the_end_is_confirmed_in_the_reserve() -> None:
    """Exploration leaves time to confirm, shrink and replay the finding of the last run."""
    result = explored(doubles, seconds=10.0, classes=("transient",))
    (finding,) = result.findings
    assert finding.certain and finding.replays == 5 and result.exploring <= 7.5 and result.seconds <= 10.0


def test_explorer_finding_shortens_the_exploration() -> None:
    """Runs under way end in the middle of the reserve for confirming, which starts at half of the time."""

    def program(of: FaultPlan, number: int) -> ExploredRun:
        if number == 3:
            return failed_run(of)
        is_repeated = not of.steps or saved_form(of) == of
        return made_run(of, seconds=1.0 if is_repeated else 70.0)

    result = explored(program, seconds=100.0, jobs=4, only="api=Produce")
    assert result.exploring == 75.0 and result.left > 0
    (finding,) = result.findings
    assert finding.confirmed and result.seconds <= 100.0


def test_explorer_unconfirmed_finding_is_a_problem() -> None:
    """If one run uses the time, its finding stays unconfirmed, and the exit code is 2."""

    def program(of: FaultPlan, number: int) -> ExploredRun:
        return failed_run(of, seconds=80.0) if of.steps else made_run(of)

    result = explored(program, seconds=100.0, jobs=1)
    assert "time was up before 1 finding could be confirmed" in result.problem and result.exit_code() == 2
    assert "not confirmed" in "\n".join(report_lines(result))


def test_replay_that_time_cuts_short_counts_earlier_runs() -> None:
    """Two of five replays end in time; the plan had failed in three of three runs."""
    one = judge(failed_run(LOST))
    finding = FaultFinding(one.signature, one, 1, fails=3, of=3, smallest=LOST)
    runner = FakeRunner(lambda of, number: failed_run(of), jobs=1)
    runner.until = 2.5
    Trials(runner).replay(finding, [MeasuredPlan(LOST, Tally(3, 3))])
    assert (finding.replays, finding.replays_of) == (5, 5)
