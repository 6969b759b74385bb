"""Sequences of configs: after each, what is served equals a fresh start with that config."""

from __future__ import annotations

import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from kproxy.errors import DocumentError
from kproxy.testing.process import free_port
from tests.support.certificates import Authority
from tests.support.live_proxy import LiveProxy, NamedBroker
from tests.support.raw_client import RawClient

NAMES = ("a", "b", "c")
HOSTS = ("one.example.com", "two.example.com")
Served = dict[str, Any]


class World:
    """Brokers of two clusters, certificates, and ports for listeners, far enough from each other for their nodes."""

    def __init__(self, stack: ExitStack) -> None:
        self.brokers = [stack.enter_context(NamedBroker(name, node)) for name, node in (("one", 1), ("two", 2))]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        authority = Authority(folder)
        self.pem = str(authority.issue(*HOSTS, "node1.example.com", "node2.example.com"))
        self.tls = ssl.create_default_context(cafile=str(authority.file))
        self.ports = [room_for_nodes() for _ in range(3)]

    def config(self, choice: list[tuple[int, int, str, str]], limit: int) -> Served:
        """A config of listeners by (port, cluster, way of advertising, host); names are in the order of the list."""
        listeners = []
        for name, (port, cluster, way, host) in zip(NAMES, choice, strict=False):
            one: Served = {"name": name, "bind": f"127.0.0.1:{self.ports[port]}", "cluster": f"c{cluster}"}
            if host:
                one |= {"hosts": [host], "tls": {"cert": self.pem}}
            first = self.ports[port] + 4
            one |= {
                "plain": {},
                "host": {"advertise": {"host": "localhost"}},
                "range": {"advertise": {"host": "127.0.0.1", "ports": f"{first}-{first + 5}"}},
                "nodes": {"advertise": {"nodes": {1: f"127.0.0.1:{first + 1}", 2: f"127.0.0.1:{first + 2}"}}},
                "off": {"advertise": False},
            }[way]
            listeners.append(one)
        clusters = {f"c{number}": {"bootstrap": [broker.address]} for number, broker in enumerate(self.brokers)}
        return {"clusters": clusters, "listeners": listeners, "limits": {"max_connections": limit}}

    def served(self) -> Served:
        """What clients find at each port: nobody, or the brokers that they are told of, and what is at these; by the
        host that they ask for, too."""
        return {f"{port} {host}": self.told(port, host, deep=True) for port in self.ports for host in ("", *HOSTS)} | {
            f"node {port + more}": self.told(port + more, "") for port in self.ports for more in range(1, 11)
        }

    def told(self, port: int, host: str, *, deep: bool = False) -> Any:
        try:
            with RawClient(
                f"127.0.0.1:{port}", tls=self.tls if host else None, server_name=host or None, timeout=5
            ) as client:
                brokers = client.brokers()
        except ConnectionRefusedError:
            return "refused"
        except (OSError, ssl.SSLError) as error:
            return "ended" if isinstance(error, ConnectionError | ssl.SSLError) else type(error).__name__
        if not deep:
            return brokers
        at = {
            node: self.told(int(address.rpartition(":")[2]), host)
            for node, address in brokers.items()
            if address not in {broker.address for broker in self.brokers}
        }
        return brokers, at


def room_for_nodes() -> int:
    """A port behind which a dozen are free."""
    while True:
        first = free_port()
        with ExitStack() as stack:
            try:
                for port in range(first, first + 12):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except (OSError, OverflowError):
                continue
            return first


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack)


listeners = st.tuples(
    st.sampled_from(range(3)),
    st.sampled_from(range(2)),
    st.sampled_from(["plain", "host", "range", "nodes", "off"]),
    st.sampled_from(["", "", *HOSTS]),
)
configs = st.lists(
    st.tuples(st.lists(listeners, min_size=1, max_size=3), st.sampled_from([50, 60])), min_size=2, max_size=4
)


def settled(live: LiveProxy) -> None:
    """Wait until no connection is left, whose listener may have kept ports open."""
    end = time.monotonic() + 10
    while live.call(lambda: live.proxy.server.connections):
        assert time.monotonic() < end, "connections stay"
        time.sleep(0.002)


@settings(max_examples=10, deadline=None)
@given(sequence=configs)
def test_what_is_served_equals_a_fresh_start(world: World, sequence: list[tuple[list[Any], int]]) -> None:
    """A config that is no good is refused by both, and changes nothing. All sockets of one run are of one process, the
    others are of one that has never had another config."""
    wanted = [world.config(*each) for each in sequence]
    fresh: list[Served | None] = [started(world, each) for each in wanted]
    right = [(config, found) for config, found in zip(wanted, fresh, strict=True) if found is not None]
    if not right:
        return
    with LiveProxy(right[0][0]) as live:
        current = right[0][1]
        for config, found in zip(wanted, fresh, strict=True):
            if found is None:
                with pytest.raises(DocumentError):
                    live.apply(config)
            else:
                live.apply(config)
                current = found
            assert asked_for(world.served(), current) == current
            settled(live)


def asked_for(found: Served, fresh: Served) -> Served:
    """Return what is served without the ports of nodes that a fresh start has not been asked for yet: a listener keeps
    the ports of all nodes that it has ever had."""
    return {where: "refused" if "node" in where and fresh[where] == "refused" else one for where, one in found.items()}


def started(world: World, config: Served) -> Served | None:
    """What a fresh start serves; None: it does not start."""
    try:
        with LiveProxy(config) as live:
            found = world.served()
            settled(live)
            return found
    except DocumentError:
        return None


def test_a_shared_port_goes_on_when_its_owner_goes(world: World) -> None:
    """Listeners that clients tell apart by the host they ask for: any of them may go, and come back."""
    first, second = (0, 0, "off", HOSTS[0]), (0, 1, "off", HOSTS[1])

    def nodes(host: str) -> Any:
        return world.told(world.ports[0], host)

    both = world.config([first, second], 50)
    expected = {HOSTS[0]: {1: world.brokers[0].address}, HOSTS[1]: {2: world.brokers[1].address}}
    only_second = both | {"listeners": both["listeners"][1:]}
    only_first = both | {"listeners": both["listeners"][:1]}
    with LiveProxy(both) as live:
        acceptor: Callable[[], Any] = lambda: live.call(  # noqa: E731
            lambda: [
                one
                for ports in live.proxy.server.port_service.by_listener.values()  # type: ignore[attr-defined]
                for one in ports.by_port[world.ports[0]]
            ]
        )
        before = acceptor()
        for config, served in ((only_second, HOSTS[1:]), (both, HOSTS), (only_first, HOSTS[:1]), (both, HOSTS)):
            live.apply(config)
            assert {host: nodes(host) for host in HOSTS} == {
                host: expected[host] if host in served else "ended" for host in HOSTS
            }
            assert acceptor() == before
