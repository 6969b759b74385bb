"""Brokers that are not there, come late, go and come back, have other addresses than they say, or odd ids."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kproxy.runtime.config.network import Limits
from kproxy.testing.process import free_port, free_ports
from tests.support.raw_client import RawClient
from tests.support.wait import until


def test_no_broker_is_there_at_first(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """kproxy starts all the same; clients are turned away with the reason in the log, until the broker has come."""
    port = free_port()
    proxy = proxy_with(f"127.0.0.1:{port}", wait=False)
    with RawClient(proxy.bootstrap) as client:
        client.send(client.request(18, 0, {}))
        assert client.rest() == b""
    closed = until(lambda: proxy.said("connection closed", cause="unreachable"))
    assert closed[0]["reason"] == f"127.0.0.1:{port}: connection refused"
    assert closed[0]["level"] == "warning"
    assert proxy.said("no broker could be reached", node=None, cluster="main")
    assert proxy.metric("kproxy_upstream_connect_failures_total", cluster="main") >= 1
    assert proxy.get("/livez")[0] == 200
    status, why = proxy.get("/readyz")
    assert (status, f"cluster main: 127.0.0.1:{port}: connection refused" in why) == (503, True)

    broker = fake(port=port)
    until(lambda: proxy.get("/readyz")[0] == 200)
    with RawClient(proxy.bootstrap) as client:
        assert len(client.brokers()) == 1
    broker.close()


def test_one_of_two_bootstrap_servers_is_dead(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """Every client is served, whichever of the two would have been its turn."""
    proxy = proxy_with(f"127.0.0.1:{free_port()}", fake().address)
    for _ in range(6):
        with RawClient(proxy.bootstrap) as client:
            assert len(client.brokers()) == 1
    assert proxy.metric("kproxy_upstream_connect_failures_total") == 0
    assert proxy.metric("kproxy_connections_closed_total", cause="unreachable") == 0


@contextmanager
def black_hole() -> Iterator[str]:
    """An address where connects are never answered: the queue of a listening socket is full."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", free_port()), backlog=0))
        for _ in range(3):
            filling = stack.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(listening.getsockname())
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.deep
def test_a_bootstrap_server_that_never_answers(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """With another one beside it clients hardly wait; alone it is given up after connect_timeout, and said so."""
    with black_hole() as hole:
        both = proxy_with(hole, fake().address)
        for _ in range(3):
            with RawClient(both.bootstrap, timeout=Limits().connect_timeout / 2) as client:
                assert len(client.brokers()) == 1
        alone = proxy_with(hole, wait=False, limits={"connect_timeout": 0.3})
        with RawClient(alone.bootstrap) as client:
            client.send(client.request(18, 0, {}))
            assert client.rest() == b""
        (line,) = until(lambda: alone.said("connection closed"))
    assert (line["cause"], line["reason"]) == ("unreachable", f"{hole}: no answer in 0.3 s")


def test_a_broker_restarts_on_the_same_port(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """Of two brokers one goes: its clients get the end and a refusal, those of the other notice nothing; it is back."""
    first_port, second_port = free_ports(2)
    nodes = {1: ("127.0.0.1", first_port), 2: ("127.0.0.1", second_port)}
    first, second = fake(nodes=nodes, port=first_port), fake(nodes=nodes, port=second_port)
    proxy = proxy_with(first.address)
    with RawClient(proxy.bootstrap) as client:
        places = client.brokers()
    with RawClient(places[1]) as stays, RawClient(places[2]) as leaves:
        stays.brokers()
        leaves.brokers()
        second.close()
        assert leaves.rest() == b""
        with RawClient(places[2]) as early:
            early.send(early.request(18, 0, {}))
            assert early.rest() == b""
        until(lambda: proxy.said("no broker could be reached", node=2))
        fake(nodes=nodes, port=second_port)
        with RawClient(places[2]) as later:
            assert later.brokers() == places
        assert stays.brokers() == places


@pytest.mark.parametrize("ids", [(1, 2, 3), (0, 7, 999), (5, 1000, 70000, 2**31 - 1)])
def test_every_node_id_leads_to_its_broker(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], ids: tuple[int, ...]
) -> None:
    """Ids that start at 1, leave gaps or exceed every port number have ports of their own, each with the right broker
    behind it; first + id where that fits."""
    ports = dict(zip(ids, free_ports(len(ids)), strict=True))
    nodes = {node: ("127.0.0.1", port) for node, port in ports.items()}
    brokers = {node: fake(nodes=nodes, port=port) for node, port in ports.items()}
    proxy = proxy_with(brokers[ids[0]].address)
    with RawClient(proxy.bootstrap) as client:
        places = client.brokers()

    assert set(places) == set(ids)
    assert len(set(places.values())) == len(ids)
    for node, place in places.items():
        own = proxy.port + 1 + node
        if node < 1000 and not proxy.said("port cannot be bound", port=own):  # somebody else may have it just now
            assert place == f"127.0.0.1:{own}"
        before = len(brokers[node].requests)
        with RawClient(place) as client:
            assert client.brokers() == places
        assert len(brokers[node].requests) == before + 1
    assert proxy.metric("kproxy_addresses_withheld_total") == 0


def test_a_range_too_small_hides_nodes(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """Two ports for three brokers: two are seen, the third is hidden, warned about and counted; no address leaks."""
    port, first = free_port(), free_port()
    nodes = dict.fromkeys((1, 2, 3), ("127.0.0.1", port))
    proxy = proxy_with(fake(nodes=nodes, port=port).address, listener={"advertise": {"ports": f"{first}-{first + 1}"}})
    with RawClient(proxy.bootstrap) as client:
        places = client.brokers()

    assert sorted(places.values()) == [f"127.0.0.1:{first}", f"127.0.0.1:{first + 1}"]
    hidden = {1, 2, 3} - set(places)
    (line,) = proxy.said("node cannot be given an address, clients will not see it")
    assert (line["level"], {line["node"]}) == ("warning", hidden)
    assert proxy.metric("kproxy_nodes_hidden_total") == 1


def test_a_port_of_the_range_is_taken(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> None:
    """A node whose usual port belongs to somebody else gets the next free one, and the line says so."""
    port = free_port()
    proxy = kproxy_process(fake(nodes={1: ("127.0.0.1", port)}, port=port).address)
    with socket.create_server(("127.0.0.1", proxy.port + 2)), RawClient(proxy.bootstrap) as client:
        places = client.brokers()

    assert places == {1: f"127.0.0.1:{proxy.port + 1}"}
    (line,) = proxy.said("port cannot be bound")
    assert (line["port"], line["error"]) == (proxy.port + 2, "Address already in use")


def test_ipv6_on_both_sides(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """A listener on [::1] advertises [::1], and brokers are reached there."""
    port = free_port("::1")
    broker = fake(host="::1", nodes={4: ("::1", port)}, port=port)
    proxy = proxy_with(broker.address, listener={"bind": f"[::1]:{free_port('::1')}"})
    with RawClient(proxy.bootstrap) as client:
        places = client.brokers()

    assert places == {4: f"::1:{proxy.port + 5}"}
    with RawClient(f"[::1]:{proxy.port + 5}") as client:
        assert client.brokers() == places
    assert {line["client"].partition("]")[0] for line in proxy.said("connection closed")} <= {"[::1"}


def test_names_that_only_the_brokers_know(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """A broker advertises a name without address: `dial` says where it is. One without `dial` fails by itself."""
    port = free_port()
    nodes = {1: ("no-such-host.invalid", 9092), 2: ("nor-this.invalid", 9092)}
    broker = fake(nodes=nodes, port=port)
    proxy = proxy_with(broker.address, cluster={"dial": {"no-such-host.invalid:9092": broker.address}})
    with RawClient(proxy.bootstrap) as client:
        places = client.brokers()
    with RawClient(places[1]) as client:
        assert client.brokers() == places
    with RawClient(places[2]) as client:
        client.send(client.request(18, 0, {}))
        assert client.rest() == b""
    (line,) = until(lambda: proxy.said("no broker could be reached"))
    assert line["node"] == 2
    assert list(line["tried"]) == ["nor-this.invalid:9092"]
    with RawClient(places[1]) as client:
        assert client.brokers() == places


def test_a_broker_moves_to_another_address(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> None:
    """When Metadata gives a node another address, the port that clients know leads there from then on."""
    first_port, second_port = free_ports(2)
    first = fake(nodes={1: ("127.0.0.1", first_port)}, port=first_port)
    second = fake(nodes={1: ("127.0.0.1", second_port)}, port=second_port)
    proxy = kproxy_process(first.address)
    with RawClient(proxy.bootstrap) as client:
        places = client.brokers()
        first.nodes = second.nodes
        assert client.brokers() == places
    with RawClient(places[1]) as client:
        assert client.brokers() == places
    assert len(second.requests) == 1


def test_one_port_for_both_families(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """A listener on [::] serves IPv4, too; each client is told addresses of its own family, and shown with its own."""
    proxy = proxy_with(fake().address, listener={"bind": f"[::]:{free_port('::')}"})
    for host in ("127.0.0.1", "::1"):
        shown = f"[{host}]" if ":" in host else host
        with RawClient(f"{shown}:{proxy.port}") as client:
            assert client.brokers() == {0: f"{host}:{proxy.port + 1}"}
            (listed,) = json.loads(proxy.get("/api/connections")[1])["connections"]
            assert listed["client"] == f"{shown}:{client.socket.getsockname()[1]}"
        until(lambda: not json.loads(proxy.get("/api/connections")[1])["connections"])
    assert proxy.said("listening", address=f"[::]:{proxy.port}")


def test_brokers_behind_unix_sockets(tmp_path: Path, fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """As bootstrap server, and where `dial` leads to; a socket that is not there is told by its path."""
    nodes = {1: ("b1.invalid", 9092), 2: ("b2.invalid", 9092)}
    broker = fake(nodes=nodes, path=str(tmp_path / "kafka.sock"))
    dial = {"b1.invalid:9092": broker.address, "b2.invalid:9092": f"unix:{tmp_path}/none.sock"}
    proxy = proxy_with(broker.address, cluster={"dial": dial}, limits={"idle_timeout": "10s"})
    with RawClient(proxy.bootstrap) as client:
        places = client.brokers()
    with RawClient(places[1]) as client:
        client.call(3, 4, {"topics": [{"name": "x" * 30_000}] * 9, "allow_auto_topic_creation": False})
        (listed,) = json.loads(proxy.get("/api/connections")[1])["connections"]
        assert (listed["node"], listed["broker"]) == (1, broker.address)
    with RawClient(places[2]) as client:
        client.send(client.request(18, 0, {}))
        assert client.rest() == b""
    (line,) = until(lambda: proxy.said("no broker could be reached"))
    assert line["tried"] == {f"unix:{tmp_path}/none.sock": "no such file or directory"}
    assert proxy.metric("kproxy_connections_closed_total", cause="crashed") == 0
