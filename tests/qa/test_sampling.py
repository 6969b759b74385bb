"""Samples of sweeps: together they are everything, and each has something of every test."""

from __future__ import annotations

import pytest

from tests.sampling import PARTS, sampled

SWEEP = [f"tests/wire/test_codec.py::test_it[{number}]" for number in range(101)]
FEW = [f"tests/wire/test_codec.py::test_few[{number}]" for number in range(5)]
ROUTES = [f"tests/kafka/test_admin.py::test_it[{way}]" for way in ("proxy", "renamed")]
ALONE = ["tests/kafka/test_admin.py::test_alone"]
EVERYTHING = SWEEP + FEW + ROUTES + ALONE


def test_samples_of_some_days_are_everything() -> None:
    """Whichever day is the first."""
    parts = max(one_in for _, one_in in PARTS.values())

    assert set().union(*(sampled(EVERYTHING, 739_943 + day) for day in range(parts))) == set(EVERYTHING)


@pytest.mark.parametrize("number", range(8))
def test_a_sample_has_a_part_of_each_sweep(number: int) -> None:
    """What is no sweep is in it whole, and of a test with two sets there is one."""
    mine = sampled(EVERYTHING, number)

    assert len(mine & set(SWEEP)) in (25, 26)
    assert mine >= {*FEW, *ALONE}
    assert len(mine & set(ROUTES)) == 1
    assert mine == sampled(EVERYTHING, number)


def test_a_run_says_its_sample(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> None:
    """Where a sample was asked for, the plugin has its number, and this test is in it."""
    plugin = pytestconfig.pluginmanager.get_plugin("sample")

    assert (plugin and plugin.number) == pytestconfig.option.sample
    assert plugin is None or request.node.nodeid in sampled([request.node.nodeid], plugin.number)
