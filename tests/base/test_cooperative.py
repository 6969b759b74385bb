"""What gives others their turn: freeing in pieces, sorting in pieces."""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from kproxy.base import cooperative
from tests.support.hooks import hooked


class Thing:
    """Can be asked whether it is still there."""


@pytest.fixture
def looks() -> Iterator[list[int]]:
    """Counts how often others could have run."""
    counted = [0]

    def hook() -> None:
        counted[0] += 1

    with hooked(hook):
        yield counted


def nested(count: int) -> dict[str, Any]:
    return {"topics": [{"name": f"t{at}", "partitions": [{"index": at}]} for at in range(count)]}


def test_what_nobody_else_has_goes_in_pieces(looks: list[int]) -> None:
    """A hundred thousand dicts in one go would take as long as making them."""
    things = [nested(20_000)]
    cooperative.free_yielding(things)
    assert things == []
    assert looks[0] >= 20_000 * 2 // (cooperative.FEW * cooperative.EVERY) - 1


def test_what_others_have_stays_as_it_is(looks: list[int]) -> None:
    mine, shared = nested(50), nested(50)
    inner = mine["topics"][7]
    cooperative.free_yielding([mine, shared])
    assert inner == {"name": "t7", "partitions": [{"index": 7}]}
    assert shared == nested(50)
    assert mine == nested(50)


def test_what_holds_others_goes_with_them(looks: list[int]) -> None:
    """A class of which objects are taken apart, and one of which they are not, are both freed."""
    thing = Thing()
    there = weakref.ref(thing)
    things: list[Any] = [{"a": [(thing, 1)]}]
    del thing
    cooperative.free_yielding(things)
    assert there() is None


def test_freeing_keeps_until_the_end_of_the_work(looks: list[int]) -> None:
    seen: list[bool] = []

    def work() -> str:
        thing = Thing()
        there = weakref.ref(thing)
        cooperative.defer_free([thing])
        del thing
        seen.append(there() is not None)
        work_there.append(there)
        return "done"

    work_there: list[Any] = []
    assert cooperative.free_after(cooperative.LONG, work) == "done"
    assert seen == [True]
    assert work_there[0]() is None


@pytest.mark.parametrize("size", [0, cooperative.LONG - 1])
def test_short_work_keeps_nothing(looks: list[int], size: int) -> None:
    def work() -> None:
        thing = Thing()
        there = weakref.ref(thing)
        cooperative.defer_free([thing])
        del thing
        assert there() is None

    cooperative.free_after(size, work)


def test_without_a_hook_nothing_is_kept() -> None:
    with hooked(None):
        assert cooperative.free_after(cooperative.LONG, cooperative.DEFERRED.get) is None


def test_work_inside_of_work_is_freed_with_it(looks: list[int]) -> None:
    def inner() -> None:
        cooperative.defer_free([1])

    def work() -> int:
        cooperative.free_after(cooperative.LONG, inner)
        return len(cooperative.DEFERRED.get() or ())

    assert cooperative.free_after(cooperative.LONG, work) == 1
    assert cooperative.DEFERRED.get() is None


def test_work_that_raises_keeps_nothing_afterwards(looks: list[int]) -> None:
    def work() -> None:
        cooperative.defer_free([1])
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cooperative.free_after(cooperative.LONG, work)
    assert cooperative.DEFERRED.get() is None


def test_free_after_beside_a_thread_keeps_no_list() -> None:
    """A thread that yields meanwhile does not put the list of the ended work back."""
    entered, ended = threading.Event(), threading.Event()

    def hook() -> None:
        if threading.current_thread() is thread:
            entered.set()
            assert ended.wait(60)

    def work() -> None:
        thread.start()
        assert entered.wait(60)

    thread = threading.Thread(target=cooperative.yield_now)
    with hooked(hook):
        cooperative.free_after(cooperative.LONG, work)
        ended.set()
        thread.join(60)
    assert cooperative.DEFERRED.get() is None


def test_others_have_lists_of_their_own() -> None:
    """Who runs at a place to stop keeps nothing for whoever stopped there."""
    found: list[Any] = []
    with hooked(lambda: found.append(cooperative.DEFERRED.get())):
        cooperative.free_after(cooperative.LONG, lambda: (cooperative.defer_free([1]), cooperative.yield_now()))
    assert found[0] is None


@pytest.mark.parametrize("count", [0, 10, cooperative.MOST_AT_ONCE, 3 * cooperative.MOST_AT_ONCE + 5])
def test_sorted_in_pieces(looks: list[int], count: int) -> None:
    """As `sorted`: those that are equal stay in their order."""
    rng = random.Random(count)
    things = [(rng.randrange(1000), at) for at in range(count)]
    assert list(cooperative.yielding_sort(things)) == sorted(things)
    assert list(cooperative.yielding_sort(things, lambda one: one[0])) == sorted(things, key=lambda one: one[0])
    assert (looks[0] > 3) is (count > cooperative.MOST_AT_ONCE)


def test_dropped_in_pieces(looks: list[int]) -> None:
    things = list(range(10 * cooperative.MOST_AT_ONCE))
    cooperative.free_list(things)
    assert not things
    assert looks[0] == 10
