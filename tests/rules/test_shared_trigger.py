"""Triggers of several processes that count together fire when the trigger of one process would."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kproxy.rules import trigger as module
from kproxy.rules.trigger import BLOCK, SharedTrigger, Trigger, When

from .shared_table import commons

WHENS: list[dict[str, Any]] = [
    {"nth": 3},
    {"nth": [1, 7]},
    {"first": 4},
    {"every": 3, "times": 5},
    {"once": True},
    {"after": 5, "first": 2},
    {"after": 4, "for": "3s"},
    {"after": "2s", "nth": 2},
    {"for": "5s", "every": 2},
    {"probability": 0.4},
    {"probability": 0.5, "times": 9},
    {"ramp": "30s"},
]


@pytest.mark.parametrize("count_scope", ["rule", "client", "connection"])
@pytest.mark.parametrize("when", WHENS, ids=str)
def test_it_does_not_matter_who_counts(when: dict[str, Any], count_scope: str) -> None:
    """Three processes that get the requests of two clients in any order fire for the same ones as one does. A
    connection is in one process."""
    meant = When.model_validate({**when, "count_scope": count_scope})
    alone = Trigger(meant, "7:rule", 0.0)
    together = [SharedTrigger(meant, "7:rule", 0.0, common) for common in commons(3)]
    random = Random(5)

    for number in range(120):
        now, client, connection = number * 0.25, random.choice(("a", "b")), random.randrange(6)
        one = together[connection % 3]
        assert one.fires(now, connection, client) == alone.fires(now, connection, client), number


def test_chances_go_on_behind_the_first_generator() -> None:
    """Each generator is good for so many; who begins late, or stands at the border, draws what one process would."""
    meant = When.model_validate({"probability": 0.5})
    alone = Trigger(meant, "7:rule", 0.0)
    expected = [alone.fires(0.0) for _ in range(2 * BLOCK + 50)]
    first, second, late = (SharedTrigger(meant, "7:rule", 0.0, common) for common in commons(3))
    found = [first.fires(0.0) for _ in range(BLOCK - 1)]
    found += [(second if number % 3 else first).fires(0.0) for number in range(BLOCK)]
    found += [late.fires(0.0) for _ in range(51)]

    assert found == expected


def test_a_rule_that_begins_anew_counts_anew() -> None:
    """Another life has other numbers."""
    meant = When.model_validate({"once": True})
    one = commons(1)[0]
    again = commons(1)[0]

    assert SharedTrigger(meant, "", 0.0, one).fires(0.0)
    assert not SharedTrigger(meant, "", 0.0, one).fires(0.0)
    assert SharedTrigger(meant, "", 0.0, again).fires(0.0)


def test_clients_beyond_the_bound_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process forgets of a client is still in the table."""
    monkeypatch.setattr("kproxy.rules.trigger.MOST_COUNTS", 2)
    monkeypatch.setattr(module, "MOST_COUNTS", 2)
    trigger = SharedTrigger(When.model_validate({"once": True, "count_scope": "client"}), "", 0.0, commons(1)[0])

    assert [trigger.fires(0.0, 1, client) for client in "abcabc"] == [True] * 3 + [False] * 3
