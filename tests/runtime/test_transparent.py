"""Connections that the kernel diverts go on to where they were to go, in network namespaces with the shipped rules.

Needs unshare(1), ip(8) and nft(8), and root or user namespaces; with KPROXY_TEST_ALL=1 iptables(8), too.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kproxy.app.config.document import Config
from kproxy.base.errors import InternalError
from kproxy.runtime.io.socket_io import check_mark, is_own

pytestmark = [pytest.mark.process, pytest.mark.tools("nft", "ip", "unshare")]
REST = (
    [pytest.param(workers, "iptables", marks=pytest.mark.tools("iptables")) for workers in (1, 2)]
    if os.environ.get("KPROXY_TEST_ALL")
    else []
)
ITSELF = "the destination 127.0.0.1:19092 is kproxy itself: connections would loop"
ROOT = Path(__file__).parents[2]


def seen(what: str, workers: int, tool: str) -> Any:
    """What diverted.py saw, in a namespace that goes with it."""
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable]
    command += ["-m", "tests.runtime.diverted", what, str(workers), tool]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize(("workers", "tool"), [(2, "nft"), *REST])
def test_redirect(workers: int, tool: str) -> None:
    """A client on the same machine uses the brokers' own addresses, IPv4 and IPv6, and all of it passes kproxy, whose
    own connections are not diverted again. Who connects to kproxy itself is told apart, and ends alone."""
    found = seen("redirect", workers, tool)

    assert (found["left"], found["got"], found["same"]) == (0, 10, True)
    brokers = {f"127.0.0.1:{port}" for port in found["ports"]}
    if tool == "nft":
        assert found["by_six"] == {"0": found["six"].replace("[", "").replace("]", "")}
        brokers |= {found["six"]}
    assert set(found["brokers"]) >= brokers
    assert [found["nodes"][f"127.0.0.1:{port}"] for port in found["ports"]] == [1, 2]
    assert found["opened"] >= 3
    assert found["unreachable"] == 0
    assert (found["end"], found["lines"], found["loops"]) == ("", [ITSELF], 1)


@pytest.mark.parametrize(("workers", "tool"), [(1, "nft"), *REST])
def test_tproxy(workers: int, tool: str) -> None:
    """A router that nobody sees: clients see the brokers' addresses, brokers see the clients', IPv4 and IPv6; a broker
    that is not there ends its client's connection."""
    found = seen("tproxy", workers, tool)

    assert found["listed"] == ["10.77.2.2:9092"]
    peers = ["10.77.1.2", "10.77.2.1"]  # the client, and kproxy, which asks whether the broker answers
    if tool == "nft":
        assert found["six"] == [{"0": "fd77:2::2:9092"}, "fd77:2::2"]
        peers.append("fd77:1::2")
    assert found["peers"] == peers
    assert (found["nobody"], found["failed"]) == ("", ["10.77.2.9:9092: no answer in 1 s"])
    assert found["address"] == "[::]:19092"
    assert (found["end"], found["lines"], found["loops"]) == ("", [ITSELF], 1)


def test_addresses_of_this_machine() -> None:
    """All of the loopback's are; one for documentation is not."""
    assert [is_own(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "192.0.2.1", "2001:db8::1")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_a_mark_that_may_not_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the right to it kproxy does not start, and says what it needs."""

    class Powerless(socket.socket):
        def setsockopt(self, *given: Any) -> None:
            raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("kproxy.runtime.io.socket_io.socket.socket", Powerless)
    with pytest.raises(
        InternalError, match="cluster main cannot be marked with 27504: operation not permitted; CAP_NET_"
    ):
        check_mark("main", 27504)


def test_the_mark_is_of_clusters_with_a_transparent_listener() -> None:
    """Unless another one is set, or none."""
    listeners = [
        {"name": "a", "bind": "h:1", "cluster": "a", "transparent": True},
        {"name": "b", "bind": "h:2", "cluster": "b"},
        {"name": "c", "bind": "h:3", "cluster": "c", "transparent": {"by": "tproxy"}},
    ]
    clusters: dict[str, Any] = {name: {"bootstrap": ["b:1"]} for name in "abc"}
    clusters["c"]["mark"] = 0
    config = Config.model_validate({"clusters": clusters, "listeners": listeners})

    assert config.marks() == {"a": 27504, "b": 0, "c": 0}
    assert [one.advertise is False for one in config.listeners] == [True, False, True]
    assert config.places()["a"].transparent
