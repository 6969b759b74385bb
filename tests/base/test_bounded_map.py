"""LRU maps: uses, evictions, and a budget of bytes that several maps share."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kproxy
from kproxy.base.bounded_map import BoundedMap, SharedBudget

EVICTION = re.compile(r"popitem\(last=False\)|del [\w.]+\[next\(iter|if len\([^)]*\) >=? [^:]*:\n +[\w.]+\.clear\(\)")
MOST_OTHERS = 12  # modules that evict by time, turn or the size of others, or that are too hot for a call


def test_bounded_map_full_evicts_least_recently_used() -> None:
    """Assignments and lookups by `[]` are uses; `get`, `in` and iteration are not."""
    evicted: list[tuple[str, int]] = []
    known: BoundedMap[str, int] = BoundedMap(3, on_evict=lambda key, value: evicted.append((key, value)))
    known["a"], known["b"], known["c"] = 1, 2, 3
    known["a"] = 4
    assert (known["b"], known.get("c"), "c" in known, list(known)) == (2, 3, True, ["c", "a", "b"])
    known.discard("x")
    known["d"] = 5
    assert (evicted, known.evicted, list(known.items())) == ([("c", 3)], 1, [("a", 4), ("b", 2), ("d", 5)])


def test_bounded_map_missing_key_is_made_or_raises() -> None:
    """Only a lookup by `[]` stores what `make` returns; None is an entry like others."""
    lists: BoundedMap[str, list[int]] = BoundedMap(2, list[int])
    lists["a"].append(1)
    assert (lists["a"], lists.get("b")) == ([1], None)
    plain: BoundedMap[str, int | None] = BoundedMap(2)
    plain["none"] = None
    assert plain["none"] is None
    with pytest.raises(KeyError, match="a"):
        plain["a"]


def test_budget_exceeded_evicts_from_fullest_map() -> None:
    """Entries weigh what they have at the next use of another one, since their users enlarge them."""
    budget = SharedBudget(1000)
    many: BoundedMap[int, list[int]] = BoundedMap(100, list[int], budget=budget, weigh=lambda one: 10 * len(one))
    few: BoundedMap[int, list[int]] = BoundedMap(100, list[int], budget=budget, weigh=lambda one: 10 * len(one))
    few[0].extend(range(20))
    for number in range(50):
        many[number].extend(range(10))
        _ = few[0], few[1]
        assert budget.used == many.used + few.used <= 1000 + 100
    assert len(many) <= 9 and many.evicted == 50 - len(many)
    assert few.evicted == 0
    few.discard(0)
    assert (list(few), few.used, budget.used) == ([1], 0, many.used)


def test_evictions_elsewhere_are_few() -> None:
    modules = Path(kproxy.__file__).parent.rglob("*.py")
    assert len(found := [path for path in modules if EVICTION.search(path.read_text())]) <= MOST_OTHERS, found
