"""Delays, fixed and drawn."""

from __future__ import annotations

from random import Random
from statistics import fmean, median, pstdev
from typing import Any

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import parse_rules
from kproxy.rules.values.quantities import LONGEST, Latency, parse_latency


def mistakes_of(text: str) -> list[str]:
    """The mistakes in the rule of one line of flow style, without their places."""
    with pytest.raises(DocumentError) as caught:
        parse_rules(f"rules: [{{name: r, {text}}}]", "f")
    return [line.split(": ", 1)[1] for line in caught.value.mistakes]


def drawn(value: Any, count: int = 4000) -> list[float]:
    """So many draws of one seed."""
    random, latency = Random(1), parse_latency(value)
    return [latency.draw(random) for _ in range(count)]


def test_a_fixed_delay_draws_nothing() -> None:
    """So that it moves no other chance."""
    random = Random(1)

    assert parse_latency("200ms").draw(random) == 0.2
    assert random.random() == Random(1).random()


def test_uniform_stays_between_its_bounds() -> None:
    """And fills them."""
    found = drawn({"uniform": ["100ms", 0.3]})

    assert 0.1 <= min(found) < 0.11
    assert 0.29 < max(found) <= 0.3


def test_normal_has_its_mean_and_deviation_and_is_never_negative() -> None:
    """What would be below 0 is 0."""
    found = drawn({"normal": ["200ms", "50ms"]})

    assert fmean(found) == pytest.approx(0.2, rel=0.02)
    assert pstdev(found) == pytest.approx(0.05, rel=0.05)
    assert min(drawn({"normal": ["1ms", "50ms"]})) == 0


def test_lognormal_has_its_median_and_a_tail_with_an_end() -> None:
    """Half of the draws are longer; none is longer than an hour."""
    found = drawn({"lognormal": ["200ms", 0.5]})

    assert median(found) == pytest.approx(0.2, rel=0.05)
    assert max(found) > 0.6
    assert max(drawn({"lognormal": ["60s", 10]})) == LONGEST


def test_a_deviation_of_nothing_is_a_fixed_delay() -> None:
    """There is no distribution without width."""
    assert set(drawn({"normal": ["200ms", 0]}, 5)) == set(drawn({"lognormal": ["200ms", 0]}, 5)) == {0.2}


def test_the_same_seed_draws_the_same_delays_everywhere() -> None:
    """These numbers must never change: they follow from random() and a formula."""
    random = Random("seed")
    latency = Latency("normal", 0.2, 0.05)

    assert [round(latency.draw(random), 6) for _ in range(3)] == [0.145586, 0.164154, 0.25516]


@pytest.mark.parametrize(
    ("delay", "mistake"),
    [
        ("200000", "expected a duration of 0 to 3600s such as 200ms, got the number 200000"),
        ("2h", 'expected a duration of 0 to 3600s such as 200ms, got text "2h"'),
        ("fast", "expected a duration such as 10s"),
        ("[1, 2]", "expected a duration of 0 to 3600s such as 200ms, got a list"),
        ("{norml: [1, 2]}", 'unknown distribution "norml", did you mean "normal"? allowed: uniform, normal, lognormal'),
        ("{normal: 5}", "expected normal as [mean, standard deviation], got the number 5"),
        ("{normal: [1s, 1s], uniform: [1s, 2s]}", "expected one distribution of uniform, normal, lognormal, got 2"),
        ("{uniform: [2s, 1s]}", "uniform is written [least, most], and 2s is more than 1s"),
        ("{lognormal: [2s, 1s]}", 'expected a plain number for sigma (0 to 10), got text "1s"'),
    ],
)
def test_what_is_no_delay_is_said_so(delay: str, mistake: str) -> None:
    """With the form that it has."""
    (found,) = mistakes_of(f"kind: delay, delay: {delay}")

    assert found.startswith(mistake)
