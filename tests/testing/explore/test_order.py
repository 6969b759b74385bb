"""The order of plans: dangerous faults first, then each fault once, then more places, then pairs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kproxy.testing.explore import order as order_module
from kproxy.testing.explore.model import ExchangePlace, FaultPlan, PlaceMark, PlannedFault, StepCounters
from kproxy.testing.explore.order import EDGES, INNER, OrderSettings, PlanOrder, followers
from kproxy.testing.explore.places import LearnedPlaces, common_places, places_of, ranks_of
from tests.testing.explore.made_up import (
    COPY,
    TABLE,
    exchange,
    made_run,
    plan,
    planned,
    produce,
    retried,
    stable,
)

PLACES = stable(COPY)


def new_order(exchanges=COPY, **settings) -> PlanOrder:
    """Return the order for a test that has these exchanges in each run."""
    places = places_of(exchanges)
    return PlanOrder(common_places(places, places), OrderSettings(**settings), TABLE)


def taken(order: PlanOrder, count: int = 1000) -> list[FaultPlan]:
    """Return the plans that come next."""
    plans = []
    while len(plans) < count and (found := order.next()) is not None:
        plans.append(found)
    return plans


def fault_names(plans: list[FaultPlan]) -> list[str]:
    return [step.fault.name for one in plans for step in one.steps]


def test_each_plan_comes_once() -> None:
    """All faults at all places are there, and none twice."""
    order = new_order()
    expected = 3 * 4 + 3 * 2 + 1
    assert order.left == expected
    plans = taken(order)
    assert len(plans) == len(set(plans)) == expected
    assert order.next() is None


def test_order_begins_with_dangerous_faults() -> None:
    """Lost responses of writes and commits come first. Each dangerous fault comes before any of them came twice at the
    same position of its lane, and a harmless one does not wait for the rest."""
    plans = taken(new_order(), 15)
    names = fault_names(plans)
    assert names[:2] == ["Produce: answer lost", "OffsetCommit: answer lost"]
    assert set(names[:9]) == {
        "Produce: answer lost", "OffsetCommit: answer lost", "Produce: REQUEST_TIMED_OUT, after the work",
        "Produce: never arrives", "OffsetCommit: NOT_COORDINATOR, before the work",
        "Produce: TOPIC_AUTHORIZATION_FAILED, before the work",
    }  # fmt: skip
    order = new_order()
    assert len({(one.faults, order.edge(one)) for one in plans[:9]}) == 9
    assert "Metadata: never arrives" in names


def test_order_tries_the_middle_of_a_lane_first() -> None:
    """Then the place with fewer runs."""
    plans = [one for one in taken(new_order()) if fault_names([one]) == ["Produce: answer lost"]]
    assert [one.steps[0].place.mark.nth for one in plans] == [2, 3, 1]


def test_a_place_that_was_tried_waits() -> None:
    """Two faults of one weight at two places: the second goes where nothing was tried."""
    order = new_order(COPY[1:], only="api=OffsetCommit")
    first, second = taken(order, 2)
    assert first.steps[0].place != second.steps[0].place


def test_the_same_seed_gives_the_same_order() -> None:
    """Ties are broken by the seed alone."""
    assert taken(new_order(seed=7)) == taken(new_order(seed=7))
    wide = [exchange("Metadata", topic=f"t{number}") for number in range(20)]
    assert taken(new_order(wide, seed=1)) != taken(new_order(wide, seed=2))


def test_classes_and_places_are_chosen() -> None:
    assert {one.steps[0].fault.kind_of for one in taken(new_order(classes=("fatal",)))} == {"fatal"}
    assert {one.steps[0].place.api for one in taken(new_order(only="api=Offset*, client_id=app"))} == {"OffsetCommit"}
    assert taken(new_order(only="client_id=other")) == []


def test_the_mock_gets_no_lost_answers_of_idempotent_producers() -> None:
    """They are left out, and the report can say which."""
    traits = frozenset({"idempotent"})
    order = new_order([produce(1, traits=traits)], on_mock=True)
    assert "Produce: answer lost" not in fault_names(taken(order))
    assert order.unlike_mock == {"Produce: answer lost"}


def test_what_was_not_applied_is_not_reached() -> None:
    """A fault that found nothing to act on comes before those that did."""
    order = new_order(only="api=Produce")
    first = order.next()
    order.not_exercised(made_run(first, counters=(StepCounters(1, 0, 0),)))
    assert fault_names([order.next()]) == fault_names([first])
    reached = new_order(only="api=Produce")
    assert fault_names([reached.next()]) != fault_names([reached.next()])


def test_a_counter_that_is_missing_is_not_applied() -> None:
    """A run that told no counters has reached nothing."""
    order = new_order()
    first = order.next()
    order.not_exercised(made_run(first, counters=()))
    assert not order.reached.total() and not order.kinds.total()


# ---- pairs


def test_a_retry_makes_room_for_a_second_fault() -> None:
    """After a lost answer the same batch is written again, and that is where the second fault is tried."""
    order = new_order(only="api=Produce")
    lost = plan(planned("Produce", "answer lost", PLACES[1]))
    taken(order)
    order.passed(made_run(lost, exchanges=retried(COPY, lost)))
    seconds = {one.steps[1].place.mark.nth for one in taken(order)}
    assert seconds == {2}


def test_without_a_retry_the_next_exchange_is_tried() -> None:
    """Where the first fault makes nothing new, the next write of the same client is what a second fault is for."""
    order = new_order(only="api=Produce")
    late = plan(planned("Produce", "never arrives", PLACES[1]))
    taken(order)
    order.passed(made_run(late))
    assert {one.steps[1].place.mark.nth for one in taken(order)} == {2}


def test_runs_that_clients_cannot_tell_apart_give_pairs_once() -> None:
    """The second of two runs with the same exchanges and errors adds no plans."""
    order = new_order(only="api=Produce")
    taken(order)
    one, other = (plan(planned("Produce", name, PLACES[1])) for name in ("never arrives", "answer lost"))
    order.passed(made_run(one))
    assert order.left
    before = order.left
    order.passed(made_run(other))
    assert order.left == before


def test_depth_ends_the_row() -> None:
    """No plan has more faults than were asked for."""
    for depth in (1, 2, 3):
        order = new_order(only="api=Produce", depth=depth)
        deepest = 0
        for _ in range(200):
            found = order.next()
            if found is None:
                break
            deepest = max(deepest, len(found.steps))
            order.passed(made_run(found, exchanges=retried(COPY, found), digest=repr(found)))
        assert deepest == depth


def test_pairs_wait_behind_single_faults_of_the_same_weight() -> None:
    order = new_order()
    single = plan(planned("Produce", "answer lost", PLACES[1]))
    double = plan(*single.steps, planned("Produce", "answer lost", PLACES[3]))
    assert order.priority(double) == order.priority(single) * 0.5 * 1.0


def test_polls_are_no_news() -> None:
    """Heartbeats and fetches that come more often are no places that a fault has made; those of another offset are."""
    beats = [exchange("Heartbeat", group="g")]
    fetch = exchange("Fetch", topic="in", partition=0, offset=3)
    order = new_order([*COPY, *beats, fetch])
    lost = plan(planned("Metadata", "never arrives", PLACES[0]))
    more = made_run(lost, exchanges=[*COPY, *beats * 5, fetch, fetch, replace(fetch, client_id="new")])
    found = followers(more, order.known, order.learned)
    assert [place.client_id for place in found] == ["new"]


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans for which there is no room are counted."""
    monkeypatch.setattr(order_module, "MOST_PLANS", 5)
    order = new_order()
    assert order.left == 5
    assert order.refused == 14


def test_followers_of_one_run_are_bounded() -> None:
    """A run in which everything is new gives some plans, not all."""
    lost = plan(planned("Metadata", "never arrives", PLACES[0]))
    new = [exchange("InitProducerId", client=f"c{number}") for number in range(100)]
    order = new_order()
    run = made_run(lost, exchanges=[*COPY, *new])
    assert len(followers(run, order.known, order.learned)) == order_module.MOST_FOLLOWERS


def test_order_next_plan_has_the_highest_priority_of_all() -> None:
    """Each choice is the one that comparing all plans gives, whatever was reached and tried before."""
    order = PlanOrder(LearnedPlaces(tuple(PLACES), ranks=ranks_of(PLACES)), OrderSettings(seed=3))
    waiting = {FaultPlan((PlannedFault(place, fault),)) for place in PLACES for fault in order.faults_at(place)}
    assert order.left == len(waiting) > 50 and {order.edge(one) for one in waiting} == {INNER, *EDGES}
    for number in range(len(waiting)):
        best = max(map(order.priority, waiting))
        counts = order.reached.copy(), order.kinds.copy(), order.tried.copy()
        chosen = order.next()
        after = order.reached, order.kinds, order.tried
        order.reached, order.kinds, order.tried = counts
        assert chosen in waiting and order.priority(chosen) == best
        order.reached, order.kinds, order.tried = after
        waiting.discard(chosen)
        if number % 3 == 0:
            order.not_exercised(made_run(chosen, counters=()))
    assert order.next() is None and order.left == 0


COMMITS_FIRST = (
    *(exchange("ApiVersions", client=client) for client in ("app-c", "app-p", *["app-c"] * 7)),
    exchange("Metadata", client="app-c", topic="in", traits=frozenset({"topic"})),
    *(exchange("FindCoordinator", client="app-c", group="app", traits=frozenset({"group"})) for _ in range(2)),
    *(exchange("OffsetFetch", client="app-c", topic="in", partition=0, group="app") for _ in range(2)),
    exchange("ListOffsets", client="app-c", topic="in", partition=0),
    exchange("Metadata", client="app-p", topic="out", traits=frozenset({"topic"})),
    *(
        one
        for offset in range(4)
        for one in (
            exchange("Fetch", client="app-c", topic="in", partition=0, offset=offset, traits=frozenset({"records"})),
            exchange("OffsetCommit", client="app-c", topic="in", partition=0, group="app", offset=offset + 1),
            produce(offset, client="app-p"),
        )
    ),
    exchange("Fetch", client="app-c", topic="in", partition=0, offset=4),
)
"""Exchanges of tests/testing/explore/planted/commits_first.py."""


@pytest.mark.parametrize("seed", range(4))
def test_order_errors_come_soon_at_first_and_last(seed: int) -> None:
    """In the planted program, each error at an end of a lane is among the first 95 of 167 plans, and half are among
    the first 45. Each fault comes once in the first 95."""
    order, plans = orders_of_planted(seed)
    ends = [number for number, one in enumerate(plans, 1) if order.edge(one)]
    assert (len(plans), len(ends)) == (167, 37)
    assert ends[-1] <= 95 and ends[18] <= 45
    assert set(fault_names(plans[:95])) == order.all_faults


@pytest.mark.parametrize("seed", range(4))
def test_order_commits_that_nothing_repairs_come_soon(seed: int) -> None:
    """The only plan that shows the planted `commits_beyond` is a fatal error of the last commit."""
    _, plans = orders_of_planted(seed)
    last = next(place for place in stable(COMMITS_FIRST)[::-1] if place.api == "OffsetCommit")
    fatal = "OffsetCommit: GROUP_AUTHORIZATION_FAILED, before the work"
    wanted = [one.steps[0].place.mark == last.mark and one.faults == (fatal,) for one in plans]
    assert wanted.index(True) < 25


@pytest.mark.parametrize("seed", range(4))
def test_order_each_api_and_class_comes_in_a_third(seed: int) -> None:
    """No API waits until the many faults of another one were tried."""
    order, plans = orders_of_planted(seed)
    kinds = {(one.steps[0].place.api, one.steps[0].fault.kind_of) for one in plans}
    assert {(one.steps[0].place.api, one.steps[0].fault.kind_of) for one in plans[:56]} == kinds
    assert len(kinds) == 15 and order.left == 0


def orders_of_planted(seed: int) -> tuple[PlanOrder, list[FaultPlan]]:
    """Return the order for COMMITS_FIRST, and all its plans."""
    places = places_of(COMMITS_FIRST)
    order = PlanOrder(common_places(places, places), OrderSettings(depth=1, seed=seed))
    return order, taken(order)


def test_order_errors_at_ends_do_not_change_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other plans come in the same order, whatever the weights of the ends are."""
    order, plans = orders_of_planted(0)
    others = [one for one in plans if not order.edge(one)]
    monkeypatch.setattr(order_module, "EDGES", dict.fromkeys(EDGES, 0.0))
    order, plans = orders_of_planted(0)
    assert len(plans) > len(others) and [one for one in plans if not order.edge(one)] == others


def test_many_thousand_plans_cost_no_more_than_their_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice compares one plan of each fault, also after runs in which a fault found nothing to act on."""
    lanes = [ExchangePlace("Produce", "app", topic=f"t{number}") for number in range(100)]
    places = tuple(replace(lane, mark=PlaceMark("ordinal", nth)) for lane in lanes for nth in range(1, 41))
    order = PlanOrder(LearnedPlaces(places), OrderSettings())
    compared, priority = [0], order.priority

    def counted(plan: FaultPlan) -> float:
        compared[0] += 1
        return priority(plan)

    monkeypatch.setattr(order, "priority", counted)
    for _ in range(20):
        chosen = order.next()
        assert chosen is not None
        order.not_exercised(made_run(chosen, counters=()))
    assert order.left > 30_000 and compared[0] <= 20 * len(order.all_faults)
