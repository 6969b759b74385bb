"""Entries of a queue are found by their ids as if one went through it, and at the cost of each entry once."""

from __future__ import annotations

from collections import deque
from operator import itemgetter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kproxy.core.id_index import IdIndex
from kproxy.core.inflight import OWN, InFlight
from kproxy.core.step import Step

STEPS = st.lists(st.tuples(st.sampled_from(("append", "pop", "head", "ask")), st.integers(0, 3), st.integers(0, 2)))


@given(STEPS)
def test_places_are_those_that_going_through_it_finds(steps: list[Any]) -> None:
    """Whatever comes and goes between two questions, ids twice among it; the entry at the head may be replaced."""
    queue: deque[Any] = deque()
    index = IdIndex(queue, lambda entry: entry[0] or None)  # 0 is not to be found
    for number, (what, wanted, older) in enumerate(steps):
        if what == "append":
            queue.append((wanted, number))
        elif what == "pop" and queue:
            queue.popleft()
        elif what == "head" and queue:
            queue[0] = (queue[0][0], number)
        elif what == "ask":
            found = [at for at, entry in enumerate(queue) if entry[0] == wanted and wanted]
            assert index.count(wanted) == len(found)
            assert index.place(wanted, older) == ((found[older:] or found)[0 if found[older:] else -1] if found else -1)
    index.follow()
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
    index = IdIndex(queue, id_of)
    for number in range(3000):
        queue.append((number,))
        assert index.count(number) == 1
        assert index.place(number, 0) == len(queue) - 1
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
    index = IdIndex(queue, itemgetter(0))
    assert [index.place(5, older) for older in (0, 1, 2)] == [0, 2, 2]
