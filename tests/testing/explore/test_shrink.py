"""Shrinking: the smallest plan that still fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from kproxy.testing.explore.model import FAULT_CLASSES, ExchangePlace, FaultPlan, PlaceMark, PlannedFault, dumps
from kproxy.testing.explore.plan import breaks_connection
from kproxy.testing.explore.reruns import DROPPED, Shrinking
from tests.testing.explore.made_up import COPY, TABLE, commit, fault, matches, plan, planned, produce, stable

LONG = stable([produce(number) for number in range(1, 9)])
FAULTS = [one for one in TABLE.all if one.api != "Metadata"]


class Candidates:
    """Runs of candidates that fail if a predicate says so."""

    def __init__(self, fails: Callable[[FaultPlan], bool]) -> None:
        self.fails = fails
        self.ran: list[Sequence[FaultPlan]] = []

    def first_failing(self, plans: Sequence[FaultPlan]) -> int | None:
        self.ran.append(list(plans))
        return next((number for number, one in enumerate(plans) if self.fails(one)), None)


def shrunk(start: FaultPlan, fails: Callable[[FaultPlan], bool], **settings) -> FaultPlan:
    """Return the smallest plan that can be reached and fails."""
    found, complete = Shrinking([*LONG, *stable(COPY)], TABLE, **settings).shrink(
        start, Candidates(fails).first_failing, lambda: False
    )
    assert complete
    return found


def candidates(shrinking: Shrinking, of: FaultPlan) -> list[FaultPlan]:
    """Return all plans that are one step away."""
    return [candidate for found in shrinking.rounds(of) for candidate in found]


def measure(of: FaultPlan) -> tuple[int, ...]:
    """Return numbers that fall with each step: one gets smaller, and those before it stay."""
    steps = of.steps
    return (
        len(steps),
        sum(step.place.mark.offset or 0 for step in steps),
        sum(step.place.mark.nth for step in steps),
        sum(FAULT_CLASSES.index(step.fault.kind_of) for step in steps),
        sum(breaks_connection(step.fault) for step in steps),
        sum(getattr(step.place, name) is not None for step in steps for name in DROPPED),
    )


def has(of: FaultPlan, name: str) -> bool:
    return any(step.fault.name.endswith(name) for step in of.steps)


def test_what_is_not_needed_goes() -> None:
    """Of a pair whose second fault does nothing, the first stays: at the first write, for whatever client and topic."""
    start = plan(planned("Produce", "answer lost", LONG[4]), planned("Produce", "never arrives", LONG[6]))
    smallest = shrunk(start, lambda one: has(one, "answer lost"))
    assert smallest == plan(planned("Produce", "answer lost", ExchangePlace("Produce")))


def test_selectors_stay_that_are_needed() -> None:
    """A failure that depends on the partition keeps it."""
    start = plan(planned("Produce", "answer lost", LONG[4]))
    smallest = shrunk(start, lambda one: has(one, "answer lost") and one.steps[0].place.topic == "out")
    assert smallest.steps[0].place == ExchangePlace("Produce", topic="out")


def test_an_ordinal_that_matters_is_found() -> None:
    """A failure from the third write on is shrunk to the third."""
    start = plan(planned("Produce", "answer lost", LONG[7]))
    smallest = shrunk(start, lambda one: has(one, "answer lost") and one.steps[0].place.mark.nth >= 3)
    assert smallest.steps[0].place.mark.nth == 3


def test_an_earlier_offset_is_found() -> None:
    """A failure at a commit is shrunk to the first commit, by its offset."""
    places = stable([commit(4), commit(9), commit(9), commit(12)])
    start = plan(planned("OffsetCommit", "answer lost", places[2]))
    found, _ = Shrinking(places, TABLE).shrink(start, Candidates(lambda one: True).first_failing, lambda: False)
    assert found.steps[0].place.mark == PlaceMark("offset", 1, 4)


def test_a_transient_fault_is_better_than_a_fatal_one_and_an_error_than_a_broken_connection() -> None:
    """A program that fails whatever happens is shown with an error that any client has to expect."""
    start = plan(planned("Produce", "TOPIC_AUTHORIZATION_FAILED, before the work", LONG[0]))
    smallest = shrunk(start, lambda one: True)
    assert smallest.steps[0].fault == fault("Produce: REQUEST_TIMED_OUT, after the work")


def test_the_mock_gets_no_fault_that_it_does_otherwise() -> None:
    (place,) = stable([produce(1, traits=frozenset({"idempotent"}))])
    start = plan(planned("Produce", "TOPIC_AUTHORIZATION_FAILED, before the work", place))
    smallest = shrunk(start, lambda one: not has(one, "REQUEST_TIMED_OUT, after the work"), on_mock=True)
    assert smallest.steps[0].fault == fault("Produce: never arrives")


def test_no_candidate_is_run_twice() -> None:
    """What did not fail is not asked for again from the same plan."""
    candidates = Candidates(lambda one: len(one.steps) == 2)
    start = plan(planned("Produce", "answer lost", LONG[4]), planned("Produce", "never arrives", LONG[6]))
    Shrinking(LONG, TABLE).shrink(start, candidates.first_failing, lambda: False)
    refused = [one for plans in candidates.ran for one in plans if not candidates.fails(one)]
    assert len(refused) == len(set(refused))


def test_time_ends_it() -> None:
    """When time is up the smallest plan so far is returned, and it is said that there may be smaller ones."""
    times = iter([False, True, True])
    start = plan(planned("Produce", "answer lost", LONG[4]), planned("Produce", "never arrives", LONG[6]))
    found, complete = Shrinking(LONG, TABLE).shrink(
        start, Candidates(lambda one: True).first_failing, lambda: next(times)
    )
    assert not complete
    assert len(found.steps) == 1


marks = st.builds(
    PlaceMark, st.just("ordinal"), st.integers(1, 12), st.one_of(st.none(), st.integers(0, 9))
) | st.sampled_from([place.mark for place in LONG])
names = st.one_of(st.none(), st.sampled_from(["a", "b"]))
steps = st.sampled_from(FAULTS).flatmap(
    lambda one: st.builds(
        PlannedFault,
        st.builds(
            ExchangePlace, st.just(one.api), names, names, names, st.none() | st.integers(0, 3), names, names, marks
        ),
        st.just(one),
    )
)
plans = st.lists(steps, min_size=1, max_size=3, unique=True).map(lambda found: FaultPlan(tuple(found)))


@given(plans, st.integers(0, 255), st.binary(max_size=4))
def test_shrinking_stays_with_the_signature_ends_and_leaves_no_step(start: FaultPlan, part: int, salt: bytes) -> None:
    """Whatever plans fail: what is returned fails, each step made the measure smaller, and no candidate is left."""

    def fails(one: FaultPlan) -> bool:
        return one == start or sha256(salt + dumps(one)).digest()[0] < part

    taken = [start]

    def first_failing(candidates: Sequence[FaultPlan]) -> int | None:
        number = next((number for number, one in enumerate(candidates) if fails(one)), None)
        if number is not None:
            taken.append(candidates[number])
        return number

    shrinking = Shrinking(LONG, TABLE)
    found, complete = shrinking.shrink(start, first_failing, lambda: False)
    assert complete
    assert fails(found)
    assert found == taken[-1]
    assert not any(fails(one) for one in candidates(shrinking, found))
    measures = [measure(one) for one in taken]
    assert measures == sorted(measures, reverse=True)
    assert len(set(measures)) == len(measures)


@given(plans)
def test_all_candidates_are_smaller(start: FaultPlan) -> None:
    """No step leads to a plan that is larger, or to the same."""
    for one in candidates(Shrinking(LONG, TABLE), start):
        assert measure(one) < measure(start)
        assert one.steps


@given(st.lists(st.sampled_from(range(8)), min_size=1, max_size=3, unique=True), st.data())
def test_a_bug_at_one_exchange_is_found(numbers: list[int], data: st.DataObject) -> None:
    """A program that breaks when one of its writes gets an error is shrunk to one fault at that write."""
    bug = data.draw(st.sampled_from(numbers))
    start = FaultPlan(tuple(planned("Produce", "never arrives", LONG[number]) for number in numbers))
    smallest = shrunk(start, lambda one: any(matches(step.place, LONG[bug]) for step in one.steps))
    (step,) = smallest.steps
    assert step.place.mark.nth == bug + 1
    assert step.fault.kind_of == FAULT_CLASSES[0]
    assert step.place.topic is None


def test_shrink_huge_offset_costs_no_more_than_a_small_one() -> None:
    """A client chooses the offset; candidates come from the offsets of the run alone."""
    lane = [replace(stable(COPY)[2], mark=PlaceMark("offset", 1, offset)) for offset in (1, 5, 2**62)]
    step = planned("OffsetCommit", "answer lost", lane[-1])
    earlier = Shrinking(lane).earlier(step)
    assert [one.place.mark.offset for one in earlier] == [1, 5]
