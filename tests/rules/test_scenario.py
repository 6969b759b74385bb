"""Where a scenario is at any time."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import Moment, Scenario, moment, parse_rules


def scenario(*lengths: float | None, repeat: Any = None) -> Scenario:
    stages = [{"rules": []} | ({} if length is None else {"for": length}) for length in lengths]
    return Scenario.model_validate({"stages": stages} | ({} if repeat is None else {"repeat": repeat}))


@pytest.mark.parametrize(
    ("elapsed", "at"),
    [
        (0, Moment(0, 0, 0, 10)),
        (9.99, Moment(0, 0, 0, 10)),
        (10, Moment(0, 1, 10, 15)),
        (15, Moment(1, 0, 15, 25)),
        (29, Moment(1, 1, 25, 30)),
        (30, None),
    ],
)
def test_stages_follow_each_other_and_rounds(elapsed: float, at: Moment | None) -> None:
    """A stage is in force from its beginning, included, to its end, excluded."""
    assert moment(scenario(10, 5, repeat=2), elapsed) == at


def test_a_last_stage_without_an_end_goes_on() -> None:
    """For ever."""
    assert moment(scenario(10, None), 1e9) == Moment(0, 1, 10, math.inf)


def test_a_scenario_without_an_end_comes_round() -> None:
    """Any number of times."""
    assert moment(scenario(10, 5, repeat=True), 15e6 + 12) == Moment(1_000_000, 1, 15e6 + 10, 15e6 + 15)


LENGTHS = st.lists(st.floats(0.1, 1e5), min_size=1, max_size=5)


@given(lengths=LENGTHS, elapsed=st.floats(0, 1e7))
def test_there_is_a_stage_at_any_time(lengths: list[float], elapsed: float) -> None:
    """Of a scenario that has no end; it has begun, and is not over, as exactly as numbers can say."""
    at = moment(scenario(*lengths, repeat=True), elapsed)

    assert at is not None
    assert at.began <= elapsed * (1 + 1e-9) + 1e-9
    assert elapsed <= at.ends * (1 + 1e-9)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("stages: []", "r:1:20: expected at least 1 entry, got 0"),
        (
            "stages: [{rules: []}, {rules: []}]",
            'r:1:21: "for" is missing: this stage would never end, and others follow',
        ),
        ("repeat: true, stages: [{rules: []}]", 'r:1:35: "for" is missing: this stage would never end, and it is'),
        ("stages: [{for: 0s, rules: []}]", "r:1:27: expected at least 0.1 s, got 0s"),
        ("stages: [{for: 1s}]", 'r:1:21: "rules" is missing'),
        ("stages: [{for: 1s, rules: {}}]", "r:1:38: expected a list, got a mapping"),
        ("stages: [{for: 1s, rules: [{name: x}]}]", 'r:1:39: "kind" is missing'),
        ("repeat: 0, stages: [{for: 1s, rules: []}]", "r:1:20: "),
        ("repeats: 2, stages: [{for: 1s, rules: []}]", 'r:1:12: unknown key "repeats", did you mean "repeat"?'),
        ("{}", "r:1:11: expected a mapping, got a list"),
    ],
)
def test_mistakes_stand_at_their_places(text: str, mistake: str) -> None:
    """Of the scenario as of the rules in it."""
    with pytest.raises(DocumentError) as caught:
        parse_rules(f"scenario: {{{text}}}" if text != "{}" else "scenario: []", "r")

    assert caught.value.mistakes[0].startswith(mistake)
