"""The admin address serves before the ports of listeners are open, and what is asked of them then has an answer."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.admin.api import OPERATIONS
from kproxy.runtime.protocols import HostPort

STREAMS = ("/api/tail", "/api/view")
NODES: dict[int, HostPort] = {1: ("broker-1.example.com", 9092)}


@pytest.mark.trio
async def test_the_topology_names_brokers_whose_ports_are_to_come(api: Any) -> None:
    """A state file may name brokers before any client has asked for them."""
    api.proxy.server.upstreams["main"].topology.learn(NODES)

    found = (await api("GET", "/api/topology")).json

    (node,) = found["clusters"]["main"]["nodes"]
    assert (node["id"], node["host"], node["addresses"]) == (1, "broker-1.example.com", {})


@pytest.mark.trio
async def test_the_topology_goes_through_no_connections(api: Any) -> None:
    """There may be thousands, and as many listeners: each listener knows how many it has."""
    server = api.proxy.server
    (listener,) = server.listeners
    listener.connections, server.connections = 7, None

    assert (await api("GET", "/api/topology")).json["listeners"][listener.name]["connections"] == 7


@pytest.mark.trio
@pytest.mark.parametrize("path", [one.path for one in OPERATIONS if one.method == "GET" and "{" not in one.path])
async def test_no_question_is_a_mistake_of_kproxy(api: Any, path: str) -> None:
    """Streams have no end, so theirs is a filter that is wrong."""
    api.proxy.server.upstreams["main"].topology.learn(NODES)
    query = "?filter=%7Ek" if path in STREAMS else ""

    answer = await api("GET", path + query)

    assert answer.status < 500, answer.body
