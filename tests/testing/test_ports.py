"""Ports that are given out are nobody else's for a while."""

from __future__ import annotations

import pytest

from kproxy.testing import process as ports


def test_workers_of_one_test_run_have_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a part of its own; whoever runs alone has all of them."""
    parts = []
    for number in range(3):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
        parts.append(ports._part())
    monkeypatch.delenv("PYTEST_XDIST_WORKER")
    alone = ports._part()

    room = 2 * ports._STEP  # a port is at most this far behind the last beginning, with those of its nodes
    ends = [first + size + room for first, size in parts]
    assert ends[0] <= parts[1][0] + ports._STEP and ends[1] <= parts[2][0] + ports._STEP
    assert (alone[0], parts[0][0]) == (ports._FIRST, ports._FIRST)
    assert max(ends[2], alone[0] + alone[1]) <= 32768 < 3 * alone[1]


def test_a_port_is_not_given_out_again() -> None:
    """Even if nobody has bound it meanwhile; and the ports after one with room are given to nobody else."""
    given = [ports.free_ports(1)[0] for _ in range(100)]
    roomy = [ports.free_port_with_room(16) for _ in range(50)]

    assert len({*given, *roomy}) == 150
    assert not {port + room for port in roomy for room in range(1, 17)} & {*given, *roomy}
