"""The limit on open files."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from kproxy.net.descriptors import raise_descriptor_limit


@pytest.mark.parametrize(
    ("limits", "wanted", "warned"),
    [
        pytest.param((1024, 100_000), 41_100, False, id="lifted as far as needed"),
        pytest.param((1024, 4096), 4096, True, id="as far as allowed, with a warning"),
        pytest.param((50_000, 100_000), 50_000, False, id="never lowered"),
        pytest.param((1024, resource.RLIM_INFINITY), 41_100, False, id="no hard limit"),
        pytest.param((resource.RLIM_INFINITY, resource.RLIM_INFINITY), resource.RLIM_INFINITY, False, id="no limit"),
    ],
)
@pytest.mark.trio
async def test_the_soft_limit_is_lifted(
    net: Any, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], wanted: int, warned: bool
) -> None:
    """20,000 connections need 40,000 descriptors and some for ports, and 1024 is what a process mostly starts with."""
    now = limits

    def lift(which: int, new: tuple[int, int]) -> None:
        nonlocal now
        now = new

    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(resource, "setrlimit", lift)
    log, entries = net.make_log()

    assert raise_descriptor_limit(20_000, log) == wanted
    assert now == (wanted, limits[1])
    assert bool(entries) == warned
