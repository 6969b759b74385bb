"""What effects remember is there wherever it is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.rules.kinds.base.rule import Effect
from kproxy.rules.kinds.move_coordinator import MoveCoordinator, MovingCoordinators
from kproxy.rules.kinds.rebalance import Rebalances
from kproxy.rules.shared_numbers import Remembered

from .shared_table import commons


def effects(count: int) -> list[Effect]:
    made = [Effect() for _ in range(count)]
    for one, common in zip(made, commons(count), strict=True):
        one.common = common
    return made


@pytest.mark.parametrize("alone", [True, False])
def test_numbers_are_changed_or_stay(alone: bool) -> None:
    """By one process or another."""
    one, two = (Remembered(effect, 10) for effect in effects(2))
    one, two = (Remembered(Effect(), 10),) * 2 if alone else (one, two)

    assert one.change(("a", 1), 0.0, lambda before: before) is None
    assert one.change(("a", 1), 0.0, lambda before: (1.0, 2.0)) == (1.0, 2.0)
    found: list[Any] = []
    assert two.change(("a", 1), 0.0, found.append) is None
    assert found[0][:2] == (1.0, 2.0)
    assert two.change(("a", 2), 0.0, lambda before: before) is None


@pytest.mark.parametrize("alone", [True, False])
def test_remembered_full_evicts_least_recently_used(alone: bool) -> None:
    kept = Remembered(Effect() if alone else effects(1)[0], 2)
    for key in ("a", "b", "a", "c"):
        kept.change((key,), 0.0, lambda before: before or (1.0,))
    assert list(kept.here if alone else kept.cells) == [("a",), ("c",)]


def test_a_client_that_asks_one_process_goes_on_at_another() -> None:
    """A moved coordinator: it is sent away by one, asks the other, and is let in by the first."""
    rule = MoveCoordinator.model_validate({"name": "m", "kind": "move_coordinator"})
    one, two = MovingCoordinators(rule), MovingCoordinators(rule)
    for effect, common in zip((one, two), commons(2), strict=True):
        effect.common = common
    name = ("client", "group", "billing")

    assert one.sends_away(name, 0.0)
    assert two.sends_away(name, 0.0)
    assert two.asked.change(name, 0.0, lambda before: (1.0,)) == (1.0,)
    assert not one.sends_away(name, 0.0)


def test_members_in_two_processes_are_told_of_one_rebalance() -> None:
    """Each once in a period; one that has joined again since is not told a second time."""
    one, two = Rebalances(10.0), Rebalances(10.0)
    for effect, common in zip((one, two), commons(2), strict=True):
        effect.common = common

    assert not one.due("g", "a", 0.0, 1)
    assert [one.due("g", "a", 11.0, 1), two.due("g", "b", 11.0, 1)] == [True, True]
    assert [two.due("g", "a", 12.0, 1), one.due("g", "c", 12.0, 2)] == [False, False]
    assert two.due("g", "a", 21.0, 2)
