"""Samples of sweeps: together they are everything, and each has something of every test."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import core

from tests.sampling import PARTS, QUICK, QUICK_TURNS, TURNS, sampled

ROOT = Path(__file__).parents[2]
SWEEP = [f"tests/protocol/test_codec.py::test_it[{number}]" for number in range(101)]
FEW = [f"tests/protocol/test_codec.py::test_few[{number}]" for number in range(5)]
ROUTES = [f"tests/kafka/test_admin.py::test_it[{way}]" for way in ("proxy", "renamed")]
ALONE = ["tests/kafka/test_admin.py::test_alone"]
IN_TURN = [f"tests/lake/jobs/test_compact.py::test_{name}[{number}]" for name in "abc" for number in range(3)]
TOGETHER = [f"tests/lake/jobs/test_clean.py::test_{name}" for name in "abc"]
EVERYTHING = SWEEP + FEW + ROUTES + ALONE + IN_TURN + TOGETHER


def test_samples_of_some_days_are_everything() -> None:
    """Whichever day is the first."""
    turns, parts = max(one_in for one_in, _ in TURNS), max(one_in for _, one_in in PARTS.values())

    assert set().union(*(sampled(EVERYTHING, 739_943 + day) for day in range(turns * parts))) == set(EVERYTHING)


@pytest.mark.parametrize("number", range(8))
def test_a_sample_has_a_part_of_each_sweep(number: int) -> None:
    """What is no sweep is in it whole, and of a test with two sets there is one."""
    mine = sampled(EVERYTHING, number)

    assert len(mine & set(SWEEP)) in (16, 17)
    assert mine >= {*FEW, *ALONE}
    assert len(mine & set(ROUTES)) == 1
    assert 0 < len(mine & set(IN_TURN)) < len(IN_TURN)
    assert mine & set(TOGETHER) in (set(), set(TOGETHER))
    assert mine == sampled(EVERYTHING, number)


def test_quick_runs_have_a_part_of_each_sweep_and_some_days_are_everything() -> None:
    """A quick run is a part of that day's sample or not, but of each function there is something."""
    days = [sampled(EVERYTHING, 739_943 + day, quick=True) for day in range(3 * 6 * QUICK)]

    assert set().union(*days) == set(EVERYTHING)
    for mine in days:
        assert len(mine & set(SWEEP)) in (4, 5)
        assert len(mine & set(FEW)) in (1, 2)
        assert mine >= set(ALONE)


def test_paths_of_the_tables_are_there() -> None:
    """A file that was renamed would be whole in each sample, unseen."""
    for path in (*PARTS, *(path for _, paths in (*TURNS, *QUICK_TURNS) for path in paths)):
        file, _, function = path.partition("::")
        assert (ROOT / file).exists() or file == "tests/test_", path
        assert not function or f"def {function}" in (ROOT / file).read_text(), path


def test_a_run_says_its_sample(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> None:
    """Where a sample was asked for, the plugin has its number, and this test is in it."""
    plugin = pytestconfig.pluginmanager.get_plugin("sample")

    assert (plugin and plugin.number) == pytestconfig.option.sample
    assert plugin is None or str(core.global_force_seed) == pytestconfig.option.hypothesis_seed
    assert plugin is None or request.node.nodeid in sampled([request.node.nodeid], plugin.number, plugin.quick)
