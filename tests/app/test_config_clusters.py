"""Clusters that come and go while kproxy runs: what asks their brokers begins and ends with them, a few at a time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from kproxy.runtime import readiness
from kproxy.runtime.io import scheduler
from kproxy.runtime.io.scheduler import FEW
from kproxy.runtime.network import Retired
from kproxy.testing.process import free_port
from tests.support.live_proxy import LiveProxy, NamedBroker
from tests.support.raw_client import RawClient
from tests.support.wait import until

MANY = 20 * FEW


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def config(port: int, bootstrap: str, clusters: int = 0, **parts: Any) -> dict[str, Any]:
    """A listener in front of this server, and so many clusters that nobody can reach."""
    others = {f"other-{number}": {"bootstrap": ["127.0.0.1:1"]} for number in range(clusters)}
    return {
        "clusters": {"main": {"bootstrap": [bootstrap]}, **others},
        "listeners": [{"name": "a", "bind": f"127.0.0.1:{port}", "cluster": "main"}],
        **parts,
    }


class Relay:
    """Passes on whatever comes to its port to another one, as a balancer does."""

    def __init__(self, target: int) -> None:
        self.target, self.server = target, socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self.pass_on, args=self.server.accept()[:1], daemon=True).start()

    def pass_on(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self.target)) as broker:
            back = threading.Thread(target=self.pump, args=(broker, client), daemon=True)
            back.start()
            self.pump(client, broker)
            back.join()

    def pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(4096):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()


def test_a_cluster_that_led_back_is_asked_no_more_when_it_is_gone(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its questions come back as ones to the cluster that has its name now, which would be refused again and again."""
    monkeypatch.setattr(readiness, "LOOP_RETRY", 0.02)
    broker, port = stack.enter_context(NamedBroker("one")), free_port()
    relay = Relay(port)
    stack.callback(relay.close)
    live = stack.enter_context(LiveProxy(config(port, relay.address)))
    live.call(live.proxy.watch.detect_loops)
    before = live.proxy.watch.circles["main"]
    until(lambda: before.upstream.leads_back)
    live.apply(config(port, broker.address))
    until(lambda: not before.asking)
    after = live.proxy.watch.circles["main"]
    until(lambda: not after.asking and not after.upstream.leads_back)
    for _ in range(5):
        with RawClient(f"127.0.0.1:{port}") as client:
            assert client.brokers()
    live.call(before.start)
    assert not before.asking


def test_readiness_is_followed_as_long_as_somebody_is_told_of_it(stack: ExitStack) -> None:
    """Without an admin address by the export, from the config on that brings it."""
    broker, port = NamedBroker("one"), free_port()
    plain = config(port, broker.address)
    otlp = {"otlp": {"endpoint": "http://127.0.0.1:1", "metrics": "1h"}}
    live = stack.enter_context(LiveProxy(plain | otlp))

    def waits() -> bool:
        return bool(live.call(lambda: live.proxy.readiness.clusters["main"]))

    until(lambda: not waits())
    live.apply(plain)
    live.apply(plain | otlp)
    until(lambda: not waits())
    broker.close()
    until(waits)
    live.apply(plain)


def test_each_retired_listener_is_looked_at_once() -> None:
    """However many there are: thousands may go at the same time."""

    class Gone:
        connections, asked = 0, 0

        @property
        def name(self) -> str:
            Gone.asked += 1
            return "same" if self in shared else str(id(self))

    gone = [Gone() for _ in range(200)]
    shared, pruned = set(gone[:2]), list[str]()
    retired = Retired(pruned.append)
    for one in gone:
        retired.add(cast("Any", one))
        retired.add(cast("Any", one))
    for one in gone:
        retired.close_unused(cast("Any", one))
        retired.close_unused(cast("Any", one))
    assert len(pruned) == len(set(pruned)) == len(gone) - 1
    assert Gone.asked <= 4 * len(gone)
    assert not retired.listeners


def test_thousands_of_listeners_are_told_some_at_a_time(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them, though another config has taken it by then."""
    monkeypatch.setattr(scheduler, "SLICE", -1.0)
    broker, ports = stack.enter_context(NamedBroker("one")), [free_port() for _ in range(8)]
    few = config(ports[0], broker.address)
    more = [{"name": f"more-{port}", "bind": f"127.0.0.1:{port}", "cluster": "main"} for port in ports[1:]]
    live = stack.enter_context(LiveProxy(few))
    live.apply(few | {"listeners": [*few["listeners"], *more]})
    live.apply(few)

    def told() -> list[int]:
        """At which lines."""
        return [number for number, line in enumerate(live.said.lines) if "listening" in line and "more-" in line]

    until(lambda: len(told()) == len(more))
    applied = next(number for number, line in enumerate(live.said.lines) if "config applied" in line)
    assert told()[0] < applied < told()[-1]


class Batches(trio.abc.Instrument):
    """How many tasks begin and end at most while trio gives nobody else a turn."""

    def __init__(self) -> None:
        self.begun = self.ended = self.most = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.begun += 1

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.ended += 1

    def before_io_wait(self, timeout: float) -> None:
        self.most = max(self.most, self.begun, self.ended)
        self.begun = self.ended = 0


@pytest.mark.parametrize("kind", ["asked", "audited", "elsewhere"])
def test_thousands_of_clusters_come_and_go_a_few_at_a_time(kind: str, stack: ExitStack, tmp_path: Path) -> None:
    broker, port = stack.enter_context(NamedBroker("one")), free_port()
    more: dict[str, Any] = {"audit": {"dir": str(tmp_path)}} if kind == "audited" else {}
    live = stack.enter_context(LiveProxy(config(port, broker.address, **more)))
    batches = Batches()
    live.call(lambda: trio.lowlevel.add_instrument(batches))
    many = config(port, broker.address, MANY, **more)
    for wanted, number in ((many, MANY + 1), (config(port, broker.address, **more), 1)):
        live.apply(wanted)
        until(lambda number=number: len(live.proxy.watch.probing) == number)
        if kind == "audited":
            until(lambda number=number: len(live.proxy.audit.pollers) == number)
        if kind == "elsewhere" and number > 1:
            for cluster in many["clusters"].values():
                cluster["bootstrap"] = [*cluster["bootstrap"], "127.0.0.1:2"]
            live.apply(many)
    until(lambda: not live.proxy.watch.left)
    assert batches.most <= 4 * FEW
    with RawClient(f"127.0.0.1:{port}") as client:
        assert client.brokers()


def test_of_two_configs_at_once_the_last_says_whose_brokers_are_polled(stack: ExitStack, tmp_path: Path) -> None:
    """Trio begins tasks in any order."""
    broker, port = stack.enter_context(NamedBroker("one")), free_port()
    live = stack.enter_context(LiveProxy(config(port, broker.address, audit={"dir": str(tmp_path)})))
    audit, clusters = cast("Any", live.proxy.audit), dict(live.proxy.server.upstreams)

    def both() -> None:
        audit.follow_clusters(clusters)
        audit.follow_clusters({})

    for _ in range(20):
        live.call(both)
        trio.from_thread.run(trio.sleep, 0.005, trio_token=live.token)
        assert not audit.pollers
