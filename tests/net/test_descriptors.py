"""The limit on open files, and what it leaves for connections."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from kproxy.config.limits import Limits
from kproxy.net import capacity as descriptors
from kproxy.net.capacity import FEWEST, find_capacity, log_capacity

OPEN = 20
UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "lifted", "connections"),
    [
        pytest.param((1024, 100_000), 41_100, 20_000, id="lifted as far as needed"),
        pytest.param((1024, 4096), 4096, (4096 - OPEN - 1024) // 2, id="as far as allowed, with fewer connections"),
        pytest.param((1024, 20_000), 20_000, (20_000 - OPEN - 1100) // 2, id="ports take no more than there are"),
        pytest.param((64, 64), 64, (64 - OPEN - 16) // 2, id="very few"),
        pytest.param((16, 16), 16, FEWEST, id="fewer than are open"),
        pytest.param((50_000, 100_000), 50_000, 20_000, id="never lowered"),
        pytest.param((1024, UNLIMITED), 41_100, 20_000, id="no hard limit"),
        pytest.param((UNLIMITED, UNLIMITED), UNLIMITED, 20_000, id="no limit"),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.trio
async def test_the_soft_limit_is_lifted(
    net: Any, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], lifted: int, connections: int, asked: bool
) -> None:
    """20,000 connections need 40,000 descriptors and some for ports. Where there are fewer, fewer connections are
    taken, which is told at the start to who has asked for so many."""
    now = limits

    def lift(which: int, new: tuple[int, int]) -> None:
        nonlocal now
        now = new

    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(resource, "setrlimit", lift)
    monkeypatch.setattr(descriptors, "open_files", lambda: OPEN)
    log, entries = net.make_log()
    config = Limits(max_connections=20_000) if asked else Limits()

    capacity = find_capacity(config)
    log_capacity(capacity, config, log)

    assert (capacity.files, capacity.connections, capacity.lacking) == (lifted, connections, connections < 20_000)
    assert now == (lifted, limits[1])
    assert bool(entries) == (capacity.lacking and asked)
    assert str(connections) in capacity.reason


def test_processes_share_what_was_asked_for() -> None:
    """Each has capacity of its own; all of them take no more than limits.max_connections."""
    capacity = descriptors.Capacity(64, 14, 20)

    assert (capacity.times(1).connections, capacity.times(2).connections) == (14, 20)
    assert "64 open files" in capacity.reason and "64" not in capacity.times(2).reason
