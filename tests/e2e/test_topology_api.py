"""/api/topology tells where clients of each listener reach each broker, whichever way the listener advertises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproxy.cli.admin_client import Admin
from kproxy.runtime.protocols import show
from kproxy.testing.process import free_port_with_room, free_ports
from tests.selection import WORKERS
from tests.support.certificates import Authority, client_context
from tests.support.raw_client import RawClient

BROKERS = {1: ("b1.example", 9092), 2: ("b2.example", 9093), 3: ("::1", 9094)}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> str:
    return str(authority.issue("127.0.0.1", "localhost"))


def rule(name: str, **parts: Any) -> dict[str, Any]:
    return {"name": name, "kind": "advertise", **parts}


@pytest.mark.parametrize("workers", WORKERS)
def test_what_clients_are_told_is_what_is_shown(
    fake: Callable[..., Any], kproxy_process: Callable[..., Any], authority: Authority, certificate: str, workers: int
) -> None:
    """Ports of a range, a host of one's own, fixed addresses, a template, and what rules say of a whole listener."""
    base = free_port_with_room(30)
    first = range(base, base + 30)
    tls = {"cert": certificate}
    fixed = {str(node): f"127.0.0.1:{port}" for node, port in zip((1, 2), first[7:9], strict=True)}
    by_rule = {"1": f"127.0.0.1:{first[9]}"}
    ways: dict[str, dict[str, Any]] = {
        "range": {},
        "host": {"advertise": {"host": "127.0.0.2", "ports": f"{first[10]}-{first[29]}"}},
        "nodes": {"advertise": {"nodes": fixed}},
        "template": {"advertise": {"sni": f"b{{node}}.example.test:{first[3]}"}, "tls": tls},
        "rule": {},
        "some": {},
        "named": {"tls": tls},
    }
    listeners = [
        {"name": name, "bind": f"127.0.0.1:{first[number]}", "cluster": "main", **way}
        for number, (name, way) in enumerate(ways.items())
    ]
    others = {"not": {"client_address": "127.0.0.1"}}
    broker = fake(nodes=BROKERS)
    proxy = kproxy_process(
        config={
            "clusters": {"main": {"bootstrap": [broker.address]}},
            "listeners": listeners,
            "workers": workers,
        },
        rules=[
            rule("fixed", nodes=by_rule, match={"listener": "rule"}),
            rule("others", host="127.0.0.9", match={"listener": "some", "client_address": "10.0.0.0/8"}),
            rule("not these", host="127.0.0.8", match={"listener": "range"}, **others),
            rule("named", sni="n{node}.example.test:443", match={"listener": ["named"]}),
        ],
    )  # fmt: skip
    trusted = client_context(authority.file)
    given: dict[str, dict[int, str]] = {}
    for listener in listeners:
        with RawClient(listener["bind"], tls=trusted if "tls" in listener else None) as client:
            given[listener["name"]] = client.brokers()
    nodes = Admin(f"http://{proxy.admin}")("GET", "/api/topology")["clusters"]["main"]["nodes"]
    shown = {
        name: {node["id"]: node["addresses"][name] for node in nodes if name in node["addresses"]} for name in ways
    }

    assert shown == given
    assert set(shown["nodes"].values()) == set(fixed.values())
    assert shown["rule"] == {1: by_rule["1"]}
    assert shown["named"][3] == "n3.example.test:443"
    assert shown["host"][1].startswith("127.0.0.2:")


@pytest.mark.deep
@pytest.mark.parametrize("workers", WORKERS)
def test_brokers_own_addresses_are_shown_where_clients_see_them(
    fake: Callable[..., Any], kproxy_process: Callable[..., Any], workers: int
) -> None:
    """With advertise: false; a listener whose clients have asked for nothing yet has no address."""
    ports = free_ports(3)
    asked, quiet, own = (f"127.0.0.1:{port}" for port in ports)
    proxy = kproxy_process(
        config={
            "clusters": {"main": {"bootstrap": [fake(nodes=BROKERS).address]}},
            "listeners": [
                {"name": "asked", "bind": asked, "cluster": "main"},
                {"name": "quiet", "bind": quiet, "cluster": "main"},
                {"name": "own", "bind": own, "cluster": "main", "advertise": False},
            ],
            "workers": workers,
        }
    )
    with RawClient(asked) as client, RawClient(own) as direct:
        given, seen = client.brokers(), direct.brokers()
    nodes = Admin(f"http://{proxy.admin}")("GET", "/api/topology")["clusters"]["main"]["nodes"]

    assert {node["id"]: node["addresses"] for node in nodes} == {
        node: {"asked": given[node], "own": show(BROKERS[node])} for node in BROKERS
    }
    assert seen == {1: "b1.example:9092", 2: "b2.example:9093", 3: "::1:9094"}  # the client's own way of writing it
