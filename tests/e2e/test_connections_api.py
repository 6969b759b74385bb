"""Connections and topology over the admin API of a running proxy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproxy.cli.admin_client import Admin, Refused
from kproxy.protocol.table.releases import RELEASES
from tests.support.fake_broker import silence
from tests.support.raw_client import RawClient
from tests.support.wait import until

HEARTBEAT = 12


def test_a_connection_is_listed_with_all_that_is_known(
    fake: Callable[..., Any], kproxy_process: Callable[..., Any]
) -> None:
    """Its addresses, its bytes, its requests in flight; it leaves the list when it ends."""
    broker = fake(answers={HEARTBEAT: silence})
    proxy = kproxy_process(broker.address, rules=[{"name": "r", "kind": "rename_topic", "topics": {"a": "b"}}])
    admin = Admin(f"http://{proxy.admin}")
    with RawClient(proxy.bootstrap) as client:
        client.brokers()
        client.send(client.request(HEARTBEAT, 0, {"group_id": "g", "generation_id": 1, "member_id": "m"}))
        found = until(lambda: [one for one in admin("GET", "/api/connections")["connections"] if one["in_flight"]])[0]
        host, port = client.socket.getsockname()

    assert (found["client"], found["listener"], found["cluster"]) == (f"{host}:{port}", "main", "main")
    assert (found["node"], found["broker"], found["in_flight"]) == (None, broker.address, 1)
    assert (found["rules"], found["outdated"], len(found["version"])) == (["r"], False, 12)
    assert found["client_bytes"] > 0
    assert found["broker_bytes"] > 0
    until(lambda: admin("GET", "/api/connections")["connections"] == [])


@pytest.mark.parametrize("how", ["", "?reset=true"])
def test_a_connection_is_closed(fake: Callable[..., Any], kproxy_process: Callable[..., Any], how: str) -> None:
    """By its number, with a FIN or a reset; another one stays."""
    proxy = kproxy_process(fake().address)
    admin = Admin(f"http://{proxy.admin}")
    with RawClient(proxy.bootstrap) as one, RawClient(proxy.bootstrap) as two:
        one.brokers()
        two.brokers()
        first = admin("GET", "/api/connections")["connections"][0]["id"]
        admin("DELETE", f"/api/connections/{first}{how}")
        if how:
            with pytest.raises(ConnectionResetError):
                one.rest()
        else:
            assert one.rest() == b""
        assert two.brokers()
        with pytest.raises(Refused, match=f'no connection "{first}"') as refused:
            admin("DELETE", f"/api/connections/{first}")
    assert refused.value.code == "no_such_connection"
    assert proxy.metric("kproxy_connections_closed_total", cause="admin") == 1


def test_a_recycled_connection_is_answered_first(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> None:
    """What is in flight comes back, then the end."""
    waiting: list[Any] = []
    broker = fake(answers={HEARTBEAT: lambda *arguments: waiting.append(arguments)})
    proxy = kproxy_process(broker.address)
    admin = Admin(f"http://{proxy.admin}")
    with RawClient(proxy.bootstrap) as client:
        client.send(client.request(HEARTBEAT, 0, {"group_id": "g", "generation_id": 1, "member_id": "m"}))
        until(lambda: waiting)
        number = admin("GET", "/api/connections")["connections"][0]["id"]
        assert admin("POST", f"/api/connections/{number}/recycle")["in_flight"] == 1
        listed = admin("GET", "/api/connections")["connections"]
        assert [(one["id"], one["leaving"]) for one in listed] == [(number, True)]
        assert admin("POST", "/api/connections/recycle?which=all") == {"connections": 0}
        answering, stream, request = waiting[0]
        answering.respond(stream, request, {"error_code": 0})
        assert len(client.frame()) > 0
        assert client.rest() == b""


def test_the_topology_shows_brokers_and_their_ports(
    fake: Callable[..., Any], kproxy_process: Callable[..., Any]
) -> None:
    """As the cluster names them, with the address that clients reach each by."""
    proxy = kproxy_process(fake(nodes={1: ("b1.example", 9092), 2: ("b2.example", 9093)}).address)
    admin = Admin(f"http://{proxy.admin}")
    with RawClient(proxy.bootstrap) as client:
        given = client.brokers()
        found = admin("GET", "/api/topology")

    nodes = found["clusters"]["main"]["nodes"]
    assert [(one["id"], one["host"], one["port"], one["role"]) for one in nodes] == [
        (1, "b1.example", 9092, "broker"),
        (2, "b2.example", 9093, "broker"),
    ]
    assert {one["id"]: one["addresses"]["main"] for one in nodes} == given
    listener = found["listeners"]["main"]
    assert listener == {"address": proxy.bootstrap, "cluster": "main", "tls": False, "connections": 1}


def test_the_version_says_what_is_running(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> None:
    """The process, the protocol, the rules."""
    proxy = kproxy_process(fake().address, arguments=["--seed", "42"])
    admin = Admin(f"http://{proxy.admin}")
    found = admin("GET", "/api/version")

    assert (found["pid"], found["kafka"]) == (proxy.pid, RELEASES[-1])
    assert admin("GET", "/api/rules")["seed"] == 42
    assert proxy.said("rules", seed=42, version=found["rules"])
