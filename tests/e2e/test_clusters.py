"""Several clusters in one process: on ports of their own, and behind one TLS port that names tell apart."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kproxy.runtime.io.sniff import line
from kproxy.testing.process import Proxy, free_port, free_port_with_room, free_ports
from tests.support.certificates import Authority, client_context
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import RawClient
from tests.support.wait import until

NODES = (1, 2)
BALANCER = "127.0.0.3"


@dataclass
class Place:
    """A proxy before the clusters a and b, whose brokers have the same ids. `tls` is the port that they share."""

    proxy: Proxy
    brokers: dict[str, dict[int, FakeBroker]]
    ports: dict[str, int]
    tls: int
    trusted: ssl.SSLContext
    known: ssl.SSLContext

    def named(self, name: str, context: ssl.SSLContext | None = None) -> RawClient:
        """A client that asks for this host."""
        return RawClient(f"127.0.0.1:{self.tls}", tls=context or self.trusted, server_name=name)

    def who_got(self, topic: str) -> list[tuple[str, int]]:
        """The cluster and the node that were asked for this topic."""
        return [
            (cluster, node)
            for cluster, brokers in self.brokers.items()
            for node, broker in brokers.items()
            for request in broker.requests
            if request.api.key == 3 and [one["name"] for one in request.body["topics"] or []] == [topic]
        ]


def ask_for(client: RawClient, topic: str) -> None:
    """A Metadata request that its broker remembers."""
    client.call(3, 4, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})


@pytest.fixture(scope="module", params=[2, 1] if "KPROXY_TEST_ALL" in os.environ else [2])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """For all tests here: with two workers, and with KPROXY_TEST_ALL=1 as one process, too. In b, whoever comes by TLS
    must show a certificate, and a topic has another name."""
    folder = tmp_path_factory.mktemp("clusters")
    authority = Authority(folder)
    plain = {name: free_port_with_room(8) for name in "ab"}
    tls = free_port()
    brokers: dict[str, dict[int, FakeBroker]] = {}
    with ExitStack() as stack:
        for name in "ab":
            ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
            nodes = {node: ("127.0.0.1", port) for node, port in ports.items()}
            brokers[name] = {n: stack.enter_context(FakeBroker(nodes=nodes, port=port)) for n, port in ports.items()}
        listeners: list[dict[str, Any]] = [
            {"name": f"plain-{name}", "bind": f"127.0.0.1:{port}", "cluster": name} for name, port in plain.items()
        ]
        for name in "ab":
            certificate = {"cert": str(authority.issue(f"*.{name}.test"))}
            certificate |= {"client_ca": str(authority.file)} if name == "b" else {}
            sni = {"sni": f"n{{node}}.{name}.test:{tls}"}
            listeners.append({"name": f"tls-{name}", "bind": f"127.0.0.1:{tls}", "cluster": name, "tls": certificate,
                              "hosts": [f"kafka.{name}.test"], "advertise": sni,
                              "proxy_protocol": {"from": BALANCER}})  # fmt: skip
        config = {
            "clusters": {name: {"bootstrap": [brokers[name][1].address]} for name in "ab"},
            "listeners": listeners,
            "workers": request.param,
            "rules": [write_rule(folder)],
        }
        proxy = stack.enter_context(Proxy(config=config))
        known = client_context(authority.file, authority.issue("client", common_name="me"))
        yield Place(proxy, brokers, plain, tls, client_context(authority.file), known)


def write_rule(folder: Path) -> str:
    """A rename for one of the clusters."""
    rule = {"name": "r", "kind": "rename_topic", "match": {"cluster": "b"}, "topics": {"orders": "b.orders"}}
    (folder / "rules.yaml").write_text(json.dumps({"rules": [rule]}))
    return str(folder / "rules.yaml")


def test_the_same_node_ids_lead_to_two_clusters(place: Place) -> None:
    """Each listener gives its cluster's nodes ports of their own, and the cluster's rules hold behind them."""
    for name in "ab":
        with RawClient(f"127.0.0.1:{place.ports[name]}") as client:
            places = client.brokers()
        assert places == {node: f"127.0.0.1:{place.ports[name] + 1 + node}" for node in NODES}
        for node in NODES:
            with RawClient(places[node]) as client:
                ask_for(client, "orders")
    assert place.who_got("orders") == [("a", 1), ("a", 2)]
    assert place.who_got("b.orders") == [("b", 1), ("b", 2)]


def test_names_lead_to_two_clusters_behind_one_port(place: Place) -> None:
    """By a cluster's name to any of its brokers, by a broker's name to that one; each listener has its certificate."""
    for name, context in (("a", place.trusted), ("b", place.known)):
        with place.named(f"kafka.{name}.test", context) as client:
            places = client.brokers()
        assert places == {node: f"n{node}.{name}.test:{place.tls}" for node in NODES}
        for node in NODES:
            with place.named(f"N{node}.{name}.test", context) as client:
                ask_for(client, f"by-name-{name}{node}")
            assert place.who_got(f"by-name-{name}{node}") == [(name, node)]


def test_a_header_goes_before_the_name(place: Place) -> None:
    """A balancer says whose connection it is, and the client behind it which cluster it wants."""
    header = line(("203.0.113.9", 40000), ("203.0.113.1", 443))
    address = f"127.0.0.1:{place.tls}"
    with RawClient(address, source=BALANCER, first=header, tls=place.trusted, server_name="n2.a.test") as client:
        ask_for(client, "behind")
        shown = json.loads(place.proxy.get("/api/connections")[1])["connections"]
        assert "203.0.113.9:40000" in [one["client"] for one in shown]
    assert place.who_got("behind") == [("a", 2)]


def test_who_may_come_in_is_told_by_the_listener(place: Place) -> None:
    """A certificate is asked for by the one that wants it only."""
    with place.named("kafka.a.test") as client:
        assert client.brokers()
    with pytest.raises((ssl.SSLError, ConnectionError)), place.named("kafka.b.test") as client:
        client.brokers()
    until(lambda: place.proxy.said("connection refused", listener="tls-b", cause="tls"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kafka.c.test", "client asks for 'kafka.c.test', which nobody serves here, in its TLS handshake"),
        ("x.kafka.a.test", "client asks for 'x.kafka.a.test', which nobody serves here, in its TLS handshake"),
        (None, "client names no host in its TLS handshake"),
    ],
)
def test_a_name_that_nobody_serves(place: Place, name: str | None, said: str) -> None:
    """Its client gets the alert that TLS has for it; one line, counted; others go on."""
    before = place.proxy.metric("kproxy_connections_refused_total", cause="sni")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with place.named("kafka.a.test") as other, RawClient(f"127.0.0.1:{place.tls}") as stranger:
        brokers = other.brokers()
        with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
            context.wrap_socket(stranger.socket, server_hostname=name)
        assert other.brokers() == brokers
    (told,) = until(lambda: place.proxy.said("connection refused", cause="sni", reason=said))
    assert told["level"] == "warning"
    assert place.proxy.metric("kproxy_connections_refused_total", cause="sni") == before + 1


@pytest.mark.parametrize(
    ("first", "cause", "why"),
    [
        (bytes.fromhex("0000001a"), "tls", "client speaks plain text to a TLS listener"),
        (b"PROXY TCP4 ", "proxy_header", "client sends a PROXY header, and is not among those who may"),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", "tls", "TLS begins with the handshake message 2, expec"),
    ],
    ids=["Kafka", "header", "garbage"],
)  # fmt: skip
def test_what_is_no_hello(place: Place, first: bytes, cause: str, why: str) -> None:
    """Ends its own connection, with the reason."""
    with RawClient(f"127.0.0.1:{place.tls}", first=first):
        until(
            lambda: any(line["reason"].startswith(why) for line in place.proxy.said("connection refused", cause=cause))
        )
