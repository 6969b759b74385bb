"""Brokers that stop, start and hand over their partitions while records flow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.java_program import JavaProgram

ROUTES = None if os.environ.get("KPROXY_TEST_ALL") else ["renamed"]
"""Brokers that come back keep two processors busy for a while, so by default there is one way to them here."""
#: A killed broker is missed only after its session ends, which takes long.
KILL = [False, True] if os.environ.get("KPROXY_TEST_ALL") == "1" else [False]


@contextmanager
def traffic(java: JavaProgram, route: Any, topic: str) -> Iterator[dict[str, Any]]:
    """A Java producer and consumer at work; the dict is filled with their report at the end."""
    base = {"bootstrap.servers": route.bootstrap}
    producer = base | {"acks": "all", "linger.ms": 2}
    consumer = base | {"group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    report: dict[str, Any] = {}
    java("traffic_start", name=topic, topic=topic, producer=producer, consumer=consumer)
    try:
        yield report
    finally:
        report |= java("traffic_stop", name=topic)


def direct_admin(java: JavaProgram, route: Any, *steps: list[Any]) -> list[Any]:
    """Steps of an administrator who does not come through the proxy."""
    return list(java("admin", config={"bootstrap.servers": route.kafka.bootstrap("DIRECT")}, steps=list(steps)))


def test_a_leader_moves_and_clients_follow_by_node_endpoints(java: JavaProgram, route: Any) -> None:
    """Clients learn of a new leader from NodeEndpoints in Produce or Fetch (KIP-951), rewritten, and lose nothing."""
    topic = route.create("moving", partitions=1, replicas=3)
    name = route.upstream_name(topic)
    rewritten = {"what": "node_endpoints"}
    before = route.proxy.metric("kproxy_rewritten_total", **rewritten) if route.proxy else 0.0
    (described,) = direct_admin(java, route, ["describe", name])
    leader, others = described["leaders"][0], [node for node in (1, 2, 3) if node != described["leaders"][0]]

    with traffic(java, route, topic) as report:
        for order in ([others[0], others[1], leader], [others[1], leader, others[0]], [leader, *others]):
            direct_admin(java, route, ["move", name, 0, order], ["elect", name, 0])
            progress = java("traffic_wait", name=topic)
            assert progress["errors"] == []

    assert report["errors"] == []
    assert report["missing"] == []
    assert report["acknowledged"] >= 300
    assert route.proxy is None or route.proxy.metric("kproxy_rewritten_total", **rewritten) > before


@pytest.mark.deep
@pytest.mark.parametrize("route", ROUTES or ["direct", "proxy", "renamed"], indirect=True)
@pytest.mark.parametrize("kill", KILL)
def test_a_broker_stops_and_starts_while_records_flow(java: JavaProgram, route: Any, kill: bool) -> None:
    """With one broker of three stopped in order, or killed, and back again, everything acknowledged is received."""
    topic = route.create("restart", partitions=3, replicas=3)

    with traffic(java, route, topic) as report:
        route.kafka.stop_broker(2, kill=kill)
        without = java("traffic_wait", name=topic)
        route.kafka.start_broker(2)
        leaders = lead_again(java, route, route.upstream_name(topic), 2)
        java("traffic_wait", name=topic)

    assert without["errors"] == []
    assert report["errors"] == []
    assert report["missing"] == []
    assert report["acknowledged"] >= 300
    assert 2 in leaders


def lead_again(java: JavaProgram, route: Any, name: str, node: int) -> list[int]:
    """The leaders of a topic's partitions, once a broker that came back is in sync and leads what it led before."""
    elections = [["elect", name, partition] for partition in range(3)]
    limit = time.monotonic() + 30
    leaders: list[int] = []
    while node not in leaders and time.monotonic() < limit:
        *_, described = direct_admin(java, route, *elections, ["describe", name])
        leaders = described["leaders"]
    return leaders
