"""Brokers that name nodes without end, in front of which another cluster's clients are served as ever."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kproxy.testing.process import free_port
from tests.selection import WORKERS
from tests.support.raw_client import RawClient

NODES = 20_000
CONNECTIONS = 20


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("workers", WORKERS)
def test_twenty_thousand_nodes_close_one_connection(
    fake: Callable[..., Any], kproxy_process: Callable[..., Any], workers: int
) -> None:
    """Each connection that is told of them ends with a line that names the limit; they cost milliseconds, and the log
    does not grow with their number. Clients of another cluster see nothing of it."""
    binds = {"good": f"127.0.0.1:{free_port()}", "hostile": f"127.0.0.1:{free_port()}"}
    hostile = fake(nodes={node: (f"b{node}", 9092) for node in range(NODES)})
    good = fake()
    proxy = kproxy_process(
        config={
            "clusters": {"hostile": {"bootstrap": [hostile.address]}, "good": {"bootstrap": [good.address]}},
            "listeners": [{"name": name, "bind": bind, "cluster": name} for name, bind in binds.items()],
            "workers": workers,
        }
    )
    before = cpu_seconds(proxy.pid)
    with RawClient(binds["good"]) as stays:
        for _ in range(CONNECTIONS):
            with RawClient(binds["hostile"]) as client:
                client.send(client.request(3, 4, {"topics": [], "allow_auto_topic_creation": False}))
                assert client.rest() == b""
            assert len(stays.brokers()) == 1

    used = cpu_seconds(proxy.pid) - before
    assert used < CONNECTIONS * 0.3, used
    lines = proxy.said("connection closed", cause="decode")
    assert lines and "limits.max_nodes" in lines[0]["reason"]
    assert len(proxy.said("node has a port")) + len(proxy.said("nodes have ports")) <= 2
