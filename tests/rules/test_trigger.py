"""When rules act: each word of `when:` by itself and together, the same every run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.base.errors import DocumentError
from kproxy.rules import trigger as module
from kproxy.rules.document.read import parse_rules
from kproxy.rules.trigger import SharedTrigger, Trigger, When

from .shared_table import commons


def numbers(
    when: dict[str, Any], times: int = 12, seed: str = "7:rule", step: float = 0.0, began: float = 0.0
) -> list[int]:
    """Which of so many requests, from 1 on, the rule acts on; `step` seconds apart."""
    trigger = Trigger(When.model_validate(when), seed, began)
    return [number for number in range(1, times + 1) if trigger.fires((number - 1) * step)]


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({"nth": 3}, [3]),
        ({"nth": [2, 5]}, [2, 5]),
        ({"first": 2}, [1, 2]),
        ({"every": 4}, [4, 8, 12]),
        ({"first": 9, "every": 3}, [3, 6, 9]),
        ({"once": True}, [1]),
        ({"times": 2}, [1, 2]),
        ({"every": 5, "times": 1}, [5]),
        ({"after": 10}, [11, 12]),
        ({"after": 2, "nth": 3}, [5]),
        ({"after": 2, "first": 1}, [3]),
        ({"after": 0, "nth": 1}, [1]),
        ({}, list(range(1, 13))),
    ],
)
def test_words_about_numbers(when: dict[str, Any], expected: list[int]) -> None:
    """Numbers are from 1 on, and from 1 on again behind `after`."""
    assert numbers(when) == expected


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({"after": "3s"}, [4, 5, 6, 7, 8, 9, 10, 11, 12]),
        ({"for": "3s"}, [1, 2, 3]),
        ({"after": "2s", "for": "3s"}, [3, 4, 5]),
        ({"after": "2s", "nth": 2}, [4]),
        ({"after": 4, "for": "2s"}, [5, 6]),
    ],
)
def test_words_about_time(when: dict[str, Any], expected: list[int]) -> None:
    """One request a second, the first as the rule begins. `for` begins where `after` ends."""
    assert numbers(when, step=1.0) == expected


def test_a_rule_counts_from_when_it_began() -> None:
    trigger = Trigger(When.model_validate({"after": "5s"}), "", began=100.0)
    assert not trigger.fires(104.9)
    assert trigger.fires(105.0)


def test_the_same_seed_gives_the_same_firings() -> None:
    """After a restart, too; another seed, or another rule's name, gives others."""
    half = {"probability": 0.5}
    once, again = numbers(half, 200), numbers(half, 200)
    assert once == again
    assert 60 < len(once) < 140
    assert numbers(half, 200, seed="8:rule") != once
    assert numbers(half, 200, seed="7:other") != once


def test_a_chance_of_one_is_certain() -> None:
    assert numbers({"probability": 1.0}) == list(range(1, 13))


def test_a_ramp_grows_to_its_chance() -> None:
    fired = numbers({"ramp": "100s"}, 200, step=1.0)
    early, late = [one for one in fired if one <= 30], [one for one in fired if one > 101]
    assert len(early) < 12
    assert late == list(range(102, 201))


def test_every_connection_has_its_own_count_and_the_same_chances() -> None:
    """`count_scope: connection`: which connection comes first does not matter."""
    third = Trigger(When.model_validate({"nth": 2, "count_scope": "connection"}), "s", 0.0)
    assert [third.fires(0.0, connection) for connection in (1, 2, 1, 2, 1)] == [False, False, True, True, False]
    half = Trigger(When.model_validate({"probability": 0.5, "count_scope": "connection"}), "s", 0.0)
    mixed = [(connection, half.fires(0.0, connection)) for _ in range(50) for connection in (1, 2)]
    assert [fired for connection, fired in mixed if connection == 1] == [
        fired for connection, fired in mixed if connection == 2
    ]


def test_every_client_has_its_own_count_and_its_own_chances() -> None:
    """`count_scope: client`, by client id; a null one counts as empty."""
    first = Trigger(When.model_validate({"first": 1, "count_scope": "client"}), "s", 0.0)
    assert [first.fires(0.0, 1, client) for client in ("a", "b", "a", None, "")] == [True, True, False, True, False]
    half = Trigger(When.model_validate({"probability": 0.5, "count_scope": "client"}), "s", 0.0)
    drawn = {client: [half.fires(0.0, 1, client) for _ in range(64)] for client in ("a", "b")}
    assert drawn["a"] != drawn["b"]


def test_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was quiet for the longest begins anew."""
    monkeypatch.setattr(module, "MOST_COUNTS", 2)
    once = Trigger(When.model_validate({"once": True, "count_scope": "client"}), "s", 0.0)
    assert [once.fires(0.0, 1, client) for client in ("a", "b", "a", "c", "a", "b")] == [
        True, True, False, True, False, True,
    ]  # fmt: skip
    assert len(once.counts) == 2


def test_rules_about_lines_are_in_force_for_a_time() -> None:
    """`open` and when it changes, for rules that have no requests to count."""
    window = Trigger(When.model_validate({"after": "2s", "for": "3s"}), "", began=10.0)
    assert [window.open(now) for now in (10.0, 11.9, 12.0, 14.9, 15.0)] == [False, False, True, True, False]
    assert [window.next_change(now) for now in (10.0, 12.0, 15.0)] == [12.0, 15.0, None]
    always = Trigger(None, "", 0.0)
    assert always.open(5.0)
    assert always.next_change(5.0) is None


WHEN = st.fixed_dictionaries(
    {},
    optional={
        "after": st.one_of(st.integers(0, 3), st.just("2s")),
        "first": st.integers(1, 6),
        "every": st.integers(1, 3),
        "times": st.integers(1, 4),
        "probability": st.floats(0.1, 1.0),
        "for": st.just("4s"),
    },
)


@settings(deadline=None)
@given(WHEN, st.integers(0, 9))
def test_each_word_only_ever_takes_away(when: dict[str, Any], seed: int) -> None:
    """With one word more a rule acts on no request that it did not act on before, save for times and after, which move
    the others."""
    fired = set(numbers(when, 12, str(seed), step=0.5))
    if "times" in when:
        assert len(fired) <= when["times"]
    for word in ("first", "every", "for"):
        fewer = {key: value for key, value in when.items() if key not in (word, "times", "probability")}
        base = {key: value for key, value in when.items() if key not in ("times", "probability")}
        assert set(numbers(base, 12, str(seed), step=0.5)) <= set(numbers(fewer, 12, str(seed), step=0.5))


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("{once: true, times: 2}", 'expected either "once" or "times", got both'),
        ("{nth: 2, first: 3}", 'expected either "nth" or "first" and "every"'),
        ("{nth: 0}", "expected at least 1, got 0"),
        ("{probability: 1.5}", "expected at most 1"),
        ("{seed: 3}", '"seed" needs "probability"'),
        ("{times: 2, count: all}", '"count" needs "nth", "first", "every"'),
        ("{after: 2s, count: all}", '"count" needs "nth"'),
        ("{after: 3 apples}", "expected a duration"),
        ("{nht: 2}", 'unknown key "nht", did you mean "nth"?'),
    ],
)
def test_mistakes_have_a_place_and_a_reason(when: str, message: str) -> None:
    with pytest.raises(DocumentError, match=r"<rules>:2:\d+: ") as error:
        parse_rules(f"rules:\n  - {{name: x, kind: delay, delay: 1s, when: {when}}}\n")
    assert message in str(error.value)


@pytest.mark.parametrize("shared", [False, True])
def test_requests_that_others_have_decided_count(shared: bool) -> None:
    """They are counted like others, also by a rule that several processes have, and it does not act on them."""
    when = When.model_validate({"nth": [2, 4], "count": "all"})
    if shared:
        first, second = (SharedTrigger(when, "s", 0.0, common) for common in commons(2))
    else:
        first = second = Trigger(when, "s", 0.0)

    assert not first.fires(0.0)
    second.count_handled(0.0)
    assert not first.fires(0.0)
    assert second.fires(0.0)


def test_they_count_by_connection_and_behind_what_is_let_go() -> None:
    """As `count_scope` and `after` say; a trigger without `when` counts nothing."""
    trigger = Trigger(
        When.model_validate({"after": 1, "first": 1, "count_scope": "connection", "count": "all"}), "", 0.0
    )
    trigger.count_handled(0.0, 1)
    assert trigger.fires(0.0, 1)
    assert [trigger.fires(0.0, 2) for _ in range(3)] == [False, True, False]
    Trigger(None, "", 0.0).count_handled(0.0)
