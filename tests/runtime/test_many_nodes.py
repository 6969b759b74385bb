"""A broker that names very many nodes: who else is served waits for none of it."""

from __future__ import annotations

import errno
import gc
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from kproxy.record.fanout import ClusterMetadata
from kproxy.rules.kinds.advertise import Advertise
from kproxy.runtime.connection import Connection
from kproxy.runtime.listeners import listener_ports, port_pool
from kproxy.runtime.upstreams import upstream
from kproxy.runtime.upstreams.dialler import Topology
from kproxy.runtime.upstreams.resolve import AT_ONCE, Resolver
from kproxy.runtime.upstreams.upstream import MetadataPoller, NodeLocator
from tests.admin.test_held_stretches import is_short
from tests.support.stretches import LINES

pytestmark = pytest.mark.trio
MANY = 600
"""Ports opened for one answer; each is a descriptor."""


class Turns:
    """Counts the ports that are opened in each turn of the reactor."""

    def __init__(self) -> None:
        self.now = 0
        self.opened: Counter[int] = Counter()

    def listen(self, endpoint: Any, transparent: bool) -> socket.socket:
        self.opened[self.now] += 1
        return port_pool.listen(endpoint, transparent)

    def tick(self, reactor: Any) -> None:
        """Count the turns from now on."""
        self.now += 1
        reactor.soon(lambda: self.tick(reactor))


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    counted = Turns()
    monkeypatch.setattr(listener_ports, "listen", counted.listen)
    return counted


HEARD: dict[Any, list[dict[int, Any]]] = {}
"""By connection, what it was told after it had asked."""


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what connections are told."""
    monkeypatch.setattr(Connection, "nodes_known", lambda self, places: HEARD.setdefault(self, []).append(places))
    yield
    HEARD.clear()


async def connection_of(running: Any) -> Any:
    await running.client()
    await running.until(lambda: running.server.connections)
    return next(iter(running.server.connections))


async def places(connection: Any, nodes: dict[int, tuple[str, int]]) -> dict[int, Any]:
    """What the listener finds, at once or later."""
    found = HEARD[connection] = []
    at_once = connection.listener.ensure(nodes, connection)
    if at_once is not None:
        return dict(at_once)
    while not found:
        await trio.lowlevel.checkpoint()
    return found[0]


async def test_ports_are_opened_in_turns(net: Any, driver: str, turns: Turns) -> None:
    """Hundreds for one answer, and some tens at most between two turns of everybody else; the log has one line."""
    async with net.serving(net.config(9), driver=driver) as running:
        connection = await connection_of(running)
        before = len(running.log)
        turns.tick(running.server.reactor)
        found = await places(connection, dict.fromkeys(range(MANY), ("b", 9092)))

        assert sum(place is not None for place in found.values()) == MANY
        assert max(turns.opened.values()) <= listener_ports.TURN // listener_ports.OPENING + 1
        lines = {line["event"] for line in running.log[before:]}
        lines -= {"port cannot be bound", "ports cannot be bound"}  # somebody else may have some of them
        assert lines == {"nodes have ports"}


async def test_the_second_connection_finds_them_open(net: Any, turns: Turns) -> None:
    """At once, without another port, and the log has nothing new."""
    async with net.serving(net.config(9)) as running:
        connection = await connection_of(running)
        nodes = dict.fromkeys(range(200), ("b", 9092))
        first = await places(connection, nodes)
        opened, lines = sum(turns.opened.values()), len(running.log)

        assert connection.listener.ensure(nodes, connection) == first
        assert (sum(turns.opened.values()), len(running.log)) == (opened, lines)


async def test_who_asks_meanwhile_has_its_turn_behind(net: Any) -> None:
    """Both are told in their order, with the same ports for the same nodes."""
    async with net.serving(net.config(9)) as running:
        connection = await connection_of(running)
        found = HEARD[connection] = []
        nodes = dict.fromkeys(range(200), ("b", 9092))

        assert connection.listener.ensure(nodes, connection) is None
        assert connection.listener.ensure({3: ("b", 9092)}, connection) is None
        await running.until(lambda: len(found) == 2)
        assert found[1] == {3: found[0][3]}


async def test_ports_that_are_taken_are_one_line(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand nodes, and no port: each port is tried once for all connections, and the log has two lines."""
    tried: Counter[int] = Counter()
    async with net.serving(net.config(9)) as running:
        connection = await connection_of(running)

        def listen(endpoint: Any, transparent: bool) -> socket.socket:
            tried[endpoint[1][1]] += 1
            raise OSError(errno.EADDRINUSE, "Address already in use")

        monkeypatch.setattr(listener_ports, "listen", listen)
        before = len(running.log)
        for _ in range(3):
            found = await places(connection, dict.fromkeys(range(2000), ("b", 9092)))

        assert set(found.values()) == {None}
        assert set(tried.values()) == {1}
        assert sorted(line["event"] for line in running.log[before:]) == [
            "node cannot be given an address, clients will not see it", "ports cannot be bound",
        ]  # fmt: skip


async def test_no_more_descriptors_is_not_the_ports_fault(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """None can be bound for now, and all of them as soon as there are descriptors again."""
    real = port_pool.listen

    def listen(*args: Any) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    async with net.serving(net.config(9)) as running:
        connection = await connection_of(running)
        monkeypatch.setattr(listener_ports, "listen", listen)
        assert await places(connection, {1: ("b", 9092)}) == {1: None}
        monkeypatch.setattr(listener_ports, "listen", real)

        found = await places(connection, {1: ("b", 9092)})
        assert found[1] is not None


async def test_ports_of_a_rule_are_opened_in_turns(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that fixes thousands of ports is linear work, some of it in each turn."""
    opened: list[int] = []

    def listen(endpoint: Any, transparent: bool) -> socket.socket:
        opened.append(endpoint[1][1])
        raise OSError(errno.EADDRINUSE, "Address already in use")

    async with net.serving(net.config(9)) as running:
        monkeypatch.setattr(listener_ports, "listen", listen)
        rule = Advertise.model_validate({"nodes": {node: f"k:{20_000 + node}" for node in range(5000)}})
        running.server.port_service.use_rules([rule])

        assert len(opened) <= listener_ports.TURN // listener_ports.OPENING
        await running.until(lambda: len(opened) == 5000)


async def test_a_cluster_has_so_many_nodes_and_the_newest_are_known() -> None:
    """Those that were named longest ago are forgotten; what is named again is new again."""
    topology = Topology(3)

    assert topology.learn({1: ("a", 1), 2: ("b", 2), 3: ("c", 3)}) == {1: ("a", 1), 2: ("b", 2), 3: ("c", 3)}
    assert topology.learn({1: ("a", 1)}) == {}
    assert topology.learn({4: ("d", 4), 3: ("x", 3)}) == {4: ("d", 4), 3: ("x", 3)}
    assert topology.nodes == {1: ("a", 1), 4: ("d", 4), 3: ("x", 3)}


async def test_what_kproxy_asks_itself_is_read_in_a_thread(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of many MB takes seconds to read; of the nodes in it, only so many are looked up, and none of them is a
    path or has a port that is none."""
    threads: list[threading.Thread] = []
    nodes = [{"node_id": node, "host": f"127.0.0.{node % 200 + 1}", "port": 9092} for node in range(50)]
    nodes[3]["host"], nodes[4]["port"] = "/run/docker.sock", 70_000

    def decode(frame: bytes, *args: Any, **more: Any) -> Any:
        threads.append(threading.current_thread())
        return SimpleNamespace(body={"brokers": nodes})

    monkeypatch.setattr(upstream, "decode_response", decode)
    broker = await net.open_broker()
    config = net.config(broker.port, limits={"max_nodes": 10})
    async with trio.open_nursery() as nursery, net.serving(config) as running:
        nursery.start_soon(broker.obey)
        found = NodeLocator(running.server.upstreams["main"], running.server.log)
        await found.ask()

        assert set(found.nodes.values()) == {0, 1, 2, *range(5, 12)}
        assert threads and threads[0] is not threading.main_thread()
        nursery.cancel_scope.cancel()


async def test_all_topics_of_a_large_cluster_are_learnt_a_few_at_a_time(
    net: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200,000 partitions in many topics, or in few: an answer of a cluster's size holds nobody, nor does forgetting
    it."""

    def told(topics: int, partitions: int) -> dict[str, Any]:
        parts = [{"partition_index": number, "leader_id": 1} for number in range(partitions)]
        return {
            "topics": [
                {
                    "name": f"topic-{number}", "error_code": 0, "topic_id": UUID(int=number + 1), "is_internal": False,
                    "partitions": [dict(part) for part in parts],
                }
                for number in range(topics)
            ],
            "brokers": [],
        }  # fmt: skip

    bodies: list[dict[str, Any]] = []
    monkeypatch.setattr(upstream, "decode_response", lambda *arguments, **more: SimpleNamespace(body=bodies.pop()))
    monkeypatch.setattr(upstream, "send_request", long_answer)
    broker = await net.open_broker()
    async with trio.open_nursery() as nursery, net.serving(net.config(broker.port)) as running:
        nursery.start_soon(broker.obey)
        for topics, partitions in ((20_000, 10), (20, 10_000)):
            picture = ClusterMetadata("main")
            poller = MetadataPoller(running.server.upstreams["main"], picture, 60.0, running.server.log)
            bodies.append(told(topics, partitions))
            gc.collect()
            await is_short(poller.ask, LINES, lambda made=(topics, partitions): bodies.append(told(*made)))
            assert (len(picture.topics), len(picture.by_id)) == (topics, topics)
        nursery.cancel_scope.cancel()


async def long_answer(*arguments: Any) -> bytes:
    """As long as one of 200,000 partitions."""
    return bytes(9 << 20)


async def test_a_name_server_that_hangs_is_asked_once_by_all() -> None:
    """And by a few threads of the cluster's own, so that whatever else needs a thread has one."""
    hanging, asked = threading.Event(), []

    def ask(server: tuple[str, int]) -> list[Any]:
        asked.append(server)
        assert hanging.wait(60)
        if server[0] == "bad":
            raise OSError("no such name")
        return [(2, (server[0], server[1]))]

    resolver = Resolver(ask)
    outcomes: list[Any] = []

    async def look_up(server: tuple[str, int]) -> None:
        try:
            outcomes.append(await resolver.look_up(server))
        except OSError as error:
            outcomes.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(look_up, ("good", 1))
            nursery.start_soon(look_up, ("bad", 1))
        for number in range(100):
            nursery.start_soon(look_up, (f"b{number}", 1))
        await trio.testing.wait_all_tasks_blocked()
        try:
            assert await trio.to_thread.run_sync(lambda: "a thread") == "a thread"
            assert len(asked) <= AT_ONCE
        finally:
            hanging.set()
    assert len(outcomes) == 300
    assert Counter(asked)["good", 1] == Counter(asked)["bad", 1] == 1
    assert sum(isinstance(outcome, OSError) for outcome in outcomes) == 100
