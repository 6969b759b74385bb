"""The lag of groups: ends less commits, the latest of both, in bounded memory."""

from __future__ import annotations

from random import Random

import pytest

from kproxy.record.metrics.table import LabelSeries
from kproxy.record.metrics.totals import GroupLags
from tests.support.stretches import BY_COST, Cost


def test_lag_is_the_sum_over_the_partitions_that_a_group_commits() -> None:
    lags = GroupLags(10)
    for number, end in ((0, 100), (1, 50), (2, 7)):
        lags.end(("main", "orders", number), end, 1.0)
    lags.commit("g", ("main", "orders", 0), 90, 1.0)
    lags.commit("g", ("main", "orders", 1), 60, 1.0)  # its topic was made anew: not below zero
    lags.commit("g", ("main", "payments", 0), 5, 1.0)  # nothing is known of its end

    assert lags.lags() == {("g", "orders"): 10}


def test_the_latest_counts() -> None:
    """What was committed or heard earlier changes nothing, whoever tells it when."""
    lags = GroupLags(10)
    place = "main", "orders", 0
    lags.end(place, 100, 2.0)
    lags.end(place, 80, 1.0)
    lags.commit("g", place, 40, 2.0)
    lags.commit("g", place, 30, 1.0)
    assert lags.lags() == {("g", "orders"): 60}

    lags.commit("g", place, 20, 3.0)  # an operator has set it back
    lags.end(place, 90, 3.0)
    assert lags.lags() == {("g", "orders"): 70}


def test_memory_is_bounded_and_what_is_forgotten_is_counted() -> None:
    """Those of which nothing was heard for the longest time go first."""
    lags = GroupLags(10, most=100)
    for number in range(1000):
        lags.commit("g", ("main", "t", number), 1, float(number))
        lags.end(("main", "t", number), 3, float(number))
        lags.commit("g", ("main", "t", 0), 1, float(number))
        lags.end(("main", "t", 0), 3, float(number))

    assert len(lags.commits) == len(lags.ends) == 100
    assert lags.forgotten >= 900
    assert lags.lags() == {("g", "t"): 200}


def test_pairs_beyond_the_limit_are_added_up_as_other() -> None:
    lags = GroupLags(1)
    for topic in range(9):
        lags.commit("g", ("main", f"t-{topic}", 0), 0, 1.0)
        lags.end(("main", f"t-{topic}", 0), 10, 1.0)

    found = lags.lags()
    assert len(found) == 6
    assert found["g", "other"] == 40
    assert sum(found.values()) == 90


def test_a_group_without_series_is_forgotten() -> None:
    lags = GroupLags(10)
    lags.end(("main", "t", 0), 10, 1.0)
    for group in ("a", "b"):
        lags.commit(group, ("main", "t", 0), 1, 1.0)
    lags.forget(LabelSeries("a", 0.0))

    assert lags.lags() == {("b", "t"): 9}


def test_what_is_known_of_groups_is_what_was_committed() -> None:
    """Whatever was driven out, forgotten and committed again."""
    lags, random = GroupLags(10, most=20), Random(1)
    for at in range(2000):
        lags.commit(f"g{random.randrange(5)}", ("main", "t", random.randrange(10)), 1, float(at))
        if not random.randrange(20):
            lags.forget(LabelSeries(f"g{random.randrange(5)}", 0.0))
        known = {(group, place) for group, places in lags.of_group.items() for place in places}
        assert known == lags.commits.keys()
        assert all(lags.of_group.values())


@BY_COST
def test_lag_of_many_groups_is_forgotten_in_linear_work(cost: Cost) -> None:
    """All groups that can have series go at once, such as after an hour's silence."""

    def forget() -> None:
        for number in range(500):
            lags.forget(LabelSeries(f"g{number}", 0.0))

    lags = GroupLags(500)
    for _ in range(2):
        for number in range(20_000):
            lags.commit(f"g{number % 500}", ("main", "t", number), 1, 1.0)
        cost.check(forget, lines=80_000, seconds=0.05)
        assert not lags.commits
        assert not lags.of_group


def test_what_workers_remember_comes_together() -> None:
    """One has the commits, another the ends; groups that have no series here are left out, and room is not exceeded."""
    one, other, both = GroupLags(10), GroupLags(10), GroupLags(10, most=2)
    for number in range(3):
        one.commit("g", ("main", "t", number), 5, 1.0)
        other.end(("main", "t", number), 8, 1.0)
    one.commit("gone", ("main", "t", 0), 5, 1.0)
    for each in (one, other, one):
        both.take_rows(each.commit_rows(), each.end_rows(), {"g"})

    assert both.lags() == {("g", "t"): 6}
    assert both.forgotten == 0


@pytest.mark.parametrize("ends", [(8, 9), (9, 8)])
def test_of_what_came_by_one_read_the_larger_end_holds(ends: tuple[int, int]) -> None:
    """Whatever the order in which it is told: requests of one read have one time."""
    lags = GroupLags(5)
    lags.commit("a", ("main", "orders", 0), 5, 1.0)
    for offset in ends:
        lags.end(("main", "orders", 0), offset, 1.0)
    assert lags.lags() == {("a", "orders"): 4}
