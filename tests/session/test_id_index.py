"""Entries of a queue are found by their ids as if one went through it, and at the cost of each entry once."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from operator import itemgetter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kproxy.protocol.pairing import MOST_TAKEN, IdIndex, Pairing
from kproxy.session.frame import ANSWER, OWN, InFlight
from kproxy.session.plan import Step

WHAT = ("append", "append", "pop", "head", "take", "ask")
STEPS = st.lists(st.tuples(st.sampled_from(WHAT), st.integers(0, 3), st.integers(0, 2)))


@given(STEPS)
def test_places_are_those_that_going_through_it_finds(steps: list[Any]) -> None:
    """Whatever comes and goes between two questions, ids twice among it; the entry at the head may be replaced."""
    queue: deque[Any] = deque()
    index = IdIndex(lambda entry: entry[0] or None)  # 0 is not to be found
    for number, (what, wanted, older) in enumerate(steps):
        if what == "append":
            queue.append((wanted, number))
        elif what == "pop" and queue:
            queue.popleft()
        elif what == "head" and queue:
            queue[0] = (queue[0][0], number)
        elif what == "take":
            expected = next((entry for entry in queue if entry[0] == wanted and wanted), None)
            left = [entry for entry in queue if entry is not expected]
            assert index.take(queue, wanted) is expected
            assert list(queue) == left
        elif what == "ask":
            found = [at for at, entry in enumerate(queue) if entry[0] == wanted and wanted]
            assert index.count(queue, wanted) == len(found)
            assert index.place(queue, wanted, older) == (
                (found[older:] or found)[0 if found[older:] else -1] if found else -1
            )
    index.follow(queue)
    assert sum(map(len, index.numbers.values())) == sum(bool(entry[0]) for entry in queue)
    assert len(index.ids) == len(queue)


def test_each_entry_costs_it_a_moment_once() -> None:
    """However often it is asked while the queue is long."""
    asked = 0

    def id_of(entry: Any) -> Any:
        nonlocal asked
        asked += 1
        return entry[0]

    queue: deque[Any] = deque()
    index = IdIndex(id_of)
    for number in range(3000):
        queue.append((number,))
        assert index.count(queue, number) == 1
        assert index.place(queue, number, 0) == len(queue) - 1
        if number % 3 == 0:
            queue.popleft()
    assert asked == 3000


def test_requests_of_kproxys_own_are_not_the_clients() -> None:
    inflight, step = InFlight(), Step(3, 1, "Metadata")
    inflight.fifo.extend([(7, step, 0.0, None), (7, OWN, 0.0, None), (8, step, 0.0, None), (7, step, 0.0, None)])
    assert (inflight.count(7), inflight.count(8), inflight.count(9)) == (2, 1, 0)
    inflight.fifo.popleft()
    assert (inflight.count(7), inflight.count(8)) == (1, 1)


def test_an_index_of_tuples_needs_no_function_of_its_own() -> None:
    queue = deque([(5, "a"), (6, "b"), (5, "c")])
    index = IdIndex(itemgetter(0))
    assert [index.place(queue, 5, older) for older in (0, 1, 2)] == [0, 2, 2]


def test_entries_behind_one_that_stays_cost_little_and_leave_nothing() -> None:
    """As behind a request that a rule has dropped: all others are taken from behind it."""
    asked = 0

    def id_of(entry: Any) -> Any:
        nonlocal asked
        asked += 1
        return entry[0]

    queue: deque[Any] = deque([(-1,)])
    index = IdIndex(id_of)
    for number in range(5000):
        queue.append((number,))
        queue.append((number + 10_000,))
        assert index.take(queue, number) == (number,)
        assert index.take(queue, number + 10_000) == (number + 10_000,)
        assert len(index.taken) <= MOST_TAKEN
    assert list(queue) == [(-1,)]
    assert asked <= 10_000 + 3 * 10


def test_pairing_skip_to_returns_older_requests() -> None:
    """A response that follows a gap leaves the newer requests. An id without a request removes none."""
    pairing = Pairing(itemgetter(0))
    pairing += [(1, "a"), (2, "b"), (1, "c"), (3, "d")]

    assert pairing.skip_to(9) is None
    assert (pairing.skip_to(1), pairing.popleft()) == ([], (1, "a"))
    assert (pairing.skip_to(3), list(pairing)) == ([(2, "b"), (1, "c")], [(3, "d")])


def test_pairing_strange_responses_cost_linear_work() -> None:
    """Responses to no request, as in a hostile capture, do not search through the waiting requests."""
    asked = 0

    def id_of(entry: tuple[int]) -> int:
        nonlocal asked
        asked += 1
        return entry[0]

    pairing = Pairing(id_of)
    pairing += [(number,) for number in range(10_000)]
    assert all(pairing.skip_to(-1 - number) is None for number in range(10_000))
    assert all(pairing.place(-1 - number) < 0 for number in range(10_000))
    assert asked <= 10_000 + 2 * 10_000


def test_pairing_without_references_is_freed_at_once() -> None:
    """Connections end by the thousand; none waits for the garbage collector."""
    opened = Pairing(itemgetter(0))
    opened += [(1, None), (2, None), (3, None)]
    assert opened.place(2, 0) == 1
    assert opened.find(3) == (3, None)
    gone = weakref.ref(opened)
    gc.disable()
    try:
        del opened
        assert gone() is None
    finally:
        gc.enable()


def test_what_has_left_is_not_held() -> None:
    """An answer may have megabytes, and a connection be idle for hours."""
    inflight = InFlight()
    inflight.fifo.append((1, ANSWER, 0.0, b"long"))
    assert inflight.count(1) == 1
    assert inflight.take_answers() == [b"long"]
    assert inflight.index is None
