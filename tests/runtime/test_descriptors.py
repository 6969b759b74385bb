"""The limit on open files, and what it leaves for connections."""

from __future__ import annotations

import resource
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.runtime import capacity as descriptors
from kproxy.runtime.capacity import FEWEST, ConnectionPlaces, find_capacity, log_capacity
from kproxy.runtime.config.network import Limits

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


# ---- places of connections


class Placed:
    """Connection of a network. `idle`: no request is in flight."""

    def __init__(self, address: str, active: float = 0.0, idle: bool = True) -> None:
        self.address, self.active, self.idle = address, active, idle

    def end(self, cause: str, message: str) -> None:
        raise AssertionError


def test_places_largest_network_gives_way() -> None:
    places = ConnectionPlaces()
    assert places.to_end("c") is None
    for network in "aabbb":
        places.add(Placed(network))
    found = places.to_end("c")
    assert found is not None
    assert found.address == "b"
    assert places.to_end("a") is None, "it would have more than the other afterwards"
    assert places.to_end("b") is None


def test_places_idle_connections_go_first() -> None:
    places = ConnectionPlaces()
    busy, late, early = Placed("a", 1.0, idle=False), Placed("a", 3.0), Placed("a", 2.0)
    for one in (busy, late, early):
        places.add(one)
    assert places.to_end("b") is early
    places.remove(early)
    assert places.to_end("b") is late


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=60))
def test_places_agree_with_a_count(steps: list[tuple[str, bool]]) -> None:
    places = ConnectionPlaces()
    here: list[Placed] = []
    for network, comes in steps:
        if comes:
            here.append(Placed(network))
            places.add(here[-1])
        elif (gone := next((one for one in here if one.address == network), None)) is not None:
            here.remove(gone)
            places.remove(gone)
        counts = Counter(one.address for one in here)
        assert places.most == max(counts.values(), default=0)
        assert {name: len(found) for name, found in places.by_network.items()} == counts
        found = places.to_end("e")
        assert (found is None) is (places.most < 2)
        assert found is None or counts[found.address] == places.most
