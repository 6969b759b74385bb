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
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from kproxy.app.otlp import OtlpExport
from kproxy.base.errors import DocumentError
from kproxy.protocol.table.api_keys import GET_TELEMETRY_SUBSCRIPTIONS
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
        self.admin = free_port()

    def config(self, choice: list[tuple[int, int, str, str]], limit: int, parts: Served | None = None) -> Served:
        """A config of listeners by (port, cluster, way of advertising, host); names are in the order of the list.
        `parts`: others of the config, which have an admin address."""
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
        admin = {} if parts is None else {"admin": {"bind": f"127.0.0.1:{self.admin}"}}
        return (
            {"clusters": clusters, "listeners": listeners, "limits": {"max_connections": limit}} | admin | (parts or {})
        )

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


parts = st.fixed_dictionaries(
    {},
    optional={
        "metrics": st.fixed_dictionaries(
            {
                "by": st.lists(st.sampled_from(["topic", "client_id", "principal", "group"]), unique=True, max_size=3),
                "series": st.sampled_from([1, 5]),
            }
        ),
        "telemetry": st.fixed_dictionaries(
            {
                "serve": st.sampled_from(["auto", "never"]),
                "interval": st.sampled_from(["1m", "2m"]),
                "metrics": st.sampled_from(["standard", "all", ["org."]]),
                "labels": st.lists(st.sampled_from(["client_id", "listener"]), unique=True),
            },
            optional={"listeners": st.lists(st.sampled_from(NAMES[:1]), max_size=1)},
        ),
        "otlp": st.fixed_dictionaries(
            {
                "endpoint": st.sampled_from(["http://127.0.0.1:1", "https://127.0.0.1:1/x"]),
                "metrics": st.sampled_from(["1h", "30m"]),
                "encoding": st.sampled_from(["json", "protobuf"]),
            },
            optional={"traces": st.just({"topics": ["a*"]}), "headers": st.just({"x-a": "b"})},
        ),
        "view": st.fixed_dictionaries(
            {},
            optional={
                "enabled": st.booleans(), "write": st.booleans(), "records": st.booleans(),
                "buffer_size": st.sampled_from(["1MiB", "2MiB"]),
            },
        ),
    },
)  # fmt: skip


def told(world: World, live: LiveProxy) -> Served:
    """What those are told who look, scrape, tell their metrics or take exports, once a client has asked for brokers."""
    with RawClient(f"127.0.0.1:{world.ports[0]}", client_id="c") as client:
        client.brokers()
        asked: Any = None
        if live.call(lambda: next(iter(live.proxy.server.connections)).session.plan.takes_telemetry):
            body = client.call(GET_TELEMETRY_SUBSCRIPTIONS, 0, {"client_instance_id": UUID(int=9)})
            asked = body["subscription_id"], body["requested_metrics"], body["push_interval_ms"]
    settled(live)
    proxy = live.proxy

    def look() -> Served:
        text = b"".join(proxy.measure().scraped()).decode()
        lines = {line.partition("{")[0] for line in text.splitlines() if line.startswith("kproxy_")}
        otlp, member, backend = proxy.otlp, proxy.member, proxy.backend
        assert member is not None
        assert backend is not None
        table = proxy.parts.label_metrics and proxy.parts.label_metrics.totals.tables.get("client_id")
        way = None if otlp is None or otlp.otlp is None else otlp.settings.way
        return {
            "telemetry": asked,
            "lines": sorted(line for line in lines if line.startswith(("kproxy_client_", "kproxy_label_"))),
            "most": None if table is None else table.most,
            "sinks": sorted(type(sink).__name__ for sink in proxy.server.taps.fanout.steady),
            "way": None if way is None else (way.target.port, way.target.path, way.target.headers, way.encoding),
            "exports": None if way is None or otlp is None else exporting(otlp),
            "view": (backend.view.enabled, backend.view.write, member.records, member.held_frames.records,
                     proxy.judge.records, member.view_terms and member.view_terms.config),
        }  # fmt: skip

    return live.call(look)


def exporting(otlp: OtlpExport) -> list[bool]:
    """Whether numbers are gathered, sent, and spans made."""
    return [one is not None for one in (otlp.gathering, otlp.metrics, otlp.traces)]


@settings(max_examples=6, deadline=None)
@given(sequence=st.lists(parts, min_size=2, max_size=4))
def test_what_is_told_equals_a_fresh_start(world: World, sequence: list[Served]) -> None:
    """Of metrics by label, clients' own metrics, exports and the view, whichever came, changed or went."""
    wanted = [world.config([(0, 0, "plain", "")], 50, each) for each in sequence]
    fresh = [started_and_told(world, each) for each in wanted]
    with LiveProxy(wanted[0]) as live:
        assert told(world, live) == fresh[0]
        for config, expected in [*zip(wanted[1:], fresh[1:], strict=True), (wanted[0], fresh[0])]:
            live.apply(config, allow_cluster_change=True)
            assert told(world, live) == expected


def started_and_told(world: World, config: Served) -> Served:
    with LiveProxy(config) as live:
        return told(world, live)


def settled(live: LiveProxy) -> None:
    """Wait until no connection is left, whose listener may have kept ports open."""
    end = time.monotonic() + 60
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
                    live.apply(config, allow_cluster_change=True)
            else:
                live.apply(config, allow_cluster_change=True)
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
                for ports in live.proxy.server.port_service.by_listener.values()
                for one in ports.by_port[world.ports[0]]
            ]
        )
        before = acceptor()
        for config, served in ((only_second, HOSTS[1:]), (both, HOSTS), (only_first, HOSTS[:1]), (both, HOSTS)):
            live.apply(config, allow_cluster_change=True)
            assert {host: nodes(host) for host in HOSTS} == {
                host: expected[host] if host in served else "ended" for host in HOSTS
            }
            assert acceptor() == before
