"""What a worker asks the supervisor for, and tells it, over a channel in one loop."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kproxy.admin.problem import Problem
from kproxy.app.workers import supervisor_client as module
from kproxy.app.workers.messages import (
    ClusterNodes,
    ListenerPlace,
    NetworkSettings,
    SupervisorCalls,
    WorkerCalls,
    unpack_advertise,
)
from kproxy.app.workers.pool_members import RemoteMember
from kproxy.app.workers.supervisor_client import RemotePorts, Reporter
from kproxy.rules.kinds.advertise import Advertise, AdvertiseRule
from kproxy.runtime.io.channel import Channel, Unanswered, remote
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.listeners.port_service import AddressRequest
from kproxy.runtime.upstreams.dialler import Topology

pytestmark = pytest.mark.trio


class Both:
    """A worker's port_service, and the supervisor's end of its channel."""

    def __init__(self, reactor: Reactor, log: Any) -> None:
        here, there = socket.socketpair()
        self.reactor = reactor
        self.worker = Channel(here, reactor, log, lambda reason: None)
        self.supervisor = Channel(there, reactor, log, lambda reason: None)
        self.port_service = RemotePorts(self.worker, terms(0, 1, 5))
        self.topology = Topology()
        self.port_service.set_topologies({"c": self.topology})
        self.asked: list[SimpleNamespace] = []
        self.supervisor.on(SupervisorCalls.find_addresses, self.ensure)

    def ensure(self, *given: Any) -> dict[int, Any]:
        names = ("listener", "nodes", "advertise", "local_host", "ports", "topology")
        self.asked.append(SimpleNamespace(**dict(zip(names, given, strict=True))))
        return {node: None if node == 9 else ("k", 9100 + node) for node in given[1]}

    async def places(self, asked: AddressRequest) -> Any:
        """What is known of them, at once or later."""
        told = trio.Event()
        found: list[Any] = []

        def then(places: Any) -> None:
            found.append(places)
            self.reactor.notify(told)

        at_once = self.port_service.ensure(asked, then)
        if at_once is not None:
            return at_once
        await told.wait()
        return found[0]


def terms(number: int, ports: int, topology: int, nodes: Any = None) -> NetworkSettings:
    """Terms of a config with one listener and one cluster."""
    return NetworkSettings(number, {"main": ListenerPlace(ports, 9092)}, {"c": ClusterNodes(topology, nodes or {})})


@asynccontextmanager
async def both(log: Any) -> AsyncIterator[Both]:
    reactor = Reactor(log)
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run)
        made = Both(reactor, log)
        yield made
        made.worker.close()
        made.supervisor.close()
        nursery.cancel_scope.cancel()
    reactor.close()


async def test_places_are_asked_for_once(quiet_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Again for another way of advertising, for a node that has moved, and after a while: a port may be another's."""
    plain = Advertise()
    rule = AdvertiseRule.model_validate({"name": "r", "kind": "advertise", "host": "k", "match": {"sni": "/a+/"}})
    one, moved = {1: ("b1", 9092), 9: ("b9", 9092)}, {1: ("b2", 9092)}
    async with both(quiet_log) as ends:
        for _ in range(2):
            assert await ends.places(AddressRequest("main", one, plain, "h", ends.topology)) == {
                1: ("k", 9101),
                9: None,
            }
        assert len(ends.asked) == 1
        assert ends.topology.nodes == one
        assert await ends.places(AddressRequest("main", one, rule, "h", ends.topology)) == {1: ("k", 9101), 9: None}
        assert unpack_advertise(ends.asked[1].advertise).host == "k"
        assert await ends.places(AddressRequest("main", moved, plain, "h", ends.topology)) == {1: ("k", 9101)}
        assert (ends.asked[2].listener, ends.asked[2].nodes, ends.asked[2].local_host) == ("main", moved, "h")
        monkeypatch.setattr(module, "monotonic", lambda: 1e9)
        assert await ends.places(AddressRequest("main", moved, plain, "h", ends.topology)) == {1: ("k", 9101)}
        assert len(ends.asked) == 4
        ends.supervisor.send(WorkerCalls.learn, "c", 5, {5: ("b5", 1)})
        assert await ends.places(AddressRequest("main", {7: ("b7", 1)}, plain, "h", ends.topology)) == {7: ("k", 9107)}
        assert ends.topology.nodes[5] == ("b5", 1)


async def test_with_another_config_what_was_known_is_asked_for_again(quiet_log: Any) -> None:
    """By the numbers of that config; nodes of a topology that is forgotten are not taken for its own, and clients of
    ports that are left are answered by these."""
    one = {1: ("b1", 9092)}
    async with both(quiet_log) as ends:
        pruned: list[tuple[str, int]] = []
        ends.supervisor.on(SupervisorCalls.pruned, lambda *given: pruned.append(given))
        service, old = ends.port_service, AddressRequest("main", one, Advertise(), "h", ends.topology)
        await ends.places(old)
        change = service.prepare(None, {})
        change.terms = terms(1, 2, 6, {7: ("b7", 1)})
        change.commit()
        service.set_topologies({"c": Topology()})
        new = service.topologies["c"]
        assert (change.left, new.nodes, new.number) == ({"main": 1}, {7: ("b7", 1)}, 6)
        await ends.places(AddressRequest("main", one, Advertise(), "h", new))
        await ends.places(AddressRequest("main", one, Advertise(), "h", ends.topology, change.left["main"]))
        assert [(asked.ports, asked.topology) for asked in ends.asked] == [(1, 5), (2, 6), (1, 5)]
        ends.supervisor.send(WorkerCalls.learn, "c", 5, {2: ("b2", 1)})
        ends.supervisor.send(WorkerCalls.learn, "gone", 9, {2: ("b2", 1)})
        ends.supervisor.send(WorkerCalls.learn, "c", 6, {3: ("b3", 1)})
        await until(lambda: 3 in new.nodes)
        assert 2 not in new.nodes
        service.prune("main")
        await until(lambda: pruned)
        assert pruned == [("main", 1)]


class Server:
    """What the reporter looks at."""

    def __init__(self) -> None:
        self.connections: set[str] = {"x", "y"}
        self.handshaking = 1
        self.per_address = Counter({"a": 2})


async def test_the_load_is_told_when_it_changes(quiet_log: Any) -> None:
    """Several changes at once, with the addresses that have changed; and now and then as a sign of life."""
    told: list[tuple[int, int, Any]] = []
    async with both(quiet_log) as ends:
        ends.supervisor.on(SupervisorCalls.load, lambda *given: told.append(given))
        reporter = Reporter(ends.worker, ends.reactor, Server(), lambda: 7)
        for host in ("a", "b", None):
            reporter.changed(host)
        await until(lambda: told)
        assert told == [(7, 3, {"a": 2, "b": 0})]
        reporter.beat()
        await until(lambda: len(told) == 2)
        assert told[1] == (7, 3, {})


class Count:
    @remote()
    async def connections(self) -> int:
        return 3


async def test_who_is_answered_knows_the_load(quiet_log: Any) -> None:
    """Limits go by what the supervisor was told: what it shows must not be newer than that. Once is enough."""
    told: list[tuple[int, int, Any]] = []
    async with both(quiet_log) as ends:
        ends.supervisor.on(SupervisorCalls.load, lambda *given: told.append(given))
        ends.worker.serve(Count())
        reporter = Reporter(ends.worker, ends.reactor, Server(), lambda: 7)
        for _ in range(100):
            reporter.changed("a")
            told.clear()
            assert await ends.supervisor.call(Count.connections) == 3
            assert told == [(7, 3, {"a": 2})]
        told.clear()
        await trio.sleep(2 * module.SOON)
        assert told == []


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (Unanswered("no answer to held within 10 s"), 503, "worker_gone"),
        (Unanswered("boom", {}), 500, "internal"),
        (Unanswered("no", {"status": 404, "code": "no_such_held"}), 404, "no_such_held"),
        (None, 503, "worker_gone"),
    ],
)
async def test_remote_member_without_result_reports_the_reason(
    failure: Unanswered | None, status: int, code: str
) -> None:
    """A worker that has ended or hangs is not an error of kproxy. None: the worker has no channel."""

    async def result(*call: Any) -> None:
        assert failure is not None
        raise failure

    channel = None if failure is None else SimpleNamespace(closed=False, result=result)
    worker: Any = SimpleNamespace(index=0, ready=True, channel=channel)
    with pytest.raises(Problem) as raised:
        await RemoteMember(worker).held()

    assert (raised.value.status, raised.value.code) == (status, code)


async def until(condition: Callable[[], Any]) -> None:
    """The test's own time-out is the limit."""
    while not condition():
        await trio.lowlevel.checkpoint()
