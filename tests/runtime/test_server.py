"""Listeners, limits, time-outs, state and the orderly end of a server."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import trio

from kproxy.base.errors import DocumentError, InternalError
from kproxy.rules.kinds.advertise import Advertise
from kproxy.runtime import connection_view as report
from kproxy.runtime import timeouts
from kproxy.runtime.capacity import ConnectionCounts
from kproxy.runtime.connection import Connection
from kproxy.runtime.drain import Drain, drain_on_signal
from kproxy.runtime.io import scheduler
from kproxy.runtime.listeners.port_pool import read_state
from kproxy.runtime.server import Server
from kproxy.session.commands import CloseBoth
from tests.support.passing_session import PassingSession

pytestmark = pytest.mark.trio


async def closed_with(net: Any, cause: str, limits: dict[str, Any], send: bytes = b"", waiting: bool = False) -> Any:
    """A connection under these limits, to a broker that never answers, ends by itself for this cause."""

    class Waiting(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            if waiting:
                self.waiting_since = now
            return super().from_client(view, n, now)

    broker = await net.open_broker()
    async with net.serving(net.config(broker.port, limits=limits), lambda *args: Waiting()) as running:
        async with await running.client() as client:
            if send:
                await client.send_all(send)
            assert await client.receive_some() == b""
        await running.settled()
        assert running.causes() == {cause: 1}
        return next(entry for entry in running.log if entry["event"] == "connection closed")


async def test_idle_connections_are_closed(net: Any) -> None:
    """After idle_timeout without a byte."""
    line = await closed_with(net, "idle_timeout", {"idle_timeout": 0.05})

    assert line["log_level"] == "info"


async def test_a_header_that_never_ends_is_closed(net: Any) -> None:
    """After header_timeout, by what the session says of it."""
    line = await closed_with(net, "header_timeout", {"header_timeout": 0.05}, b"\0\0", waiting=True)

    assert "0.05 s" in line["reason"]


async def test_who_was_not_read_because_we_were_away_is_not_late(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the process was stopped for longer than header_timeout, what was half sent before it has its time again."""

    class Waiting(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            self.waiting_since = now
            return super().from_client(view, n, now)

    broker = await net.open_broker()
    config = net.config(broker.port, limits={"header_timeout": 100})
    async with net.serving(config, lambda *args: Waiting()) as running, await running.client() as client:
        await client.send_all(b"\0\0")
        await running.until(lambda: running.server.connections and running.server.sweep.planned)
        (connection,) = running.server.connections
        await running.until(lambda: connection.session.waiting_since is not None)
        clock = [monotonic() + 1000.0]
        monkeypatch.setattr(timeouts, "monotonic", lambda: clock[0])
        running.server.sweep.run()
        clock[0] += 0.5
        running.server.sweep.run()
        assert running.causes() == {}
        for _ in range(120):
            clock[0] += running.server.sweep.interval
            running.server.sweep.run()
        await running.settled()

        assert running.causes() == {"header_timeout": 1}


async def test_requests_in_flight_are_not_idle(net: Any) -> None:
    """A consumer that waits for a rebalance is not cut off by the idle time-out."""
    broker = await net.open_broker()
    async with (
        net.serving(net.config(broker.port, limits={"idle_timeout": 0.5})) as running,
        await running.client() as waiting,
    ):
        await waiting.send_all(net.request(1))
        upstream = await broker.accept()
        async with await running.client() as idle:
            assert await idle.receive_some() == b""
        await upstream.send_all(net.response(1))
        assert await net.answer(waiting) == 1


async def test_a_peer_that_takes_nothing_is_cut_off(net: Any) -> None:
    """After write_timeout with output waiting; the log says how much."""
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port, limits={"write_timeout": 0.05})) as running:
        client = await running.client()
        with pytest.raises(trio.BrokenResourceError):
            await client.send_all(bytes(64 << 20))
        await running.settled()

        assert running.causes() == {"write_timeout": 1}


async def test_too_many_connections(net: Any) -> None:
    """Those above the limit are closed at once, counted and logged; when one ends the next may come."""
    config = net.config(9, limits={"max_connections": 2})
    async with net.serving(config) as running:
        first, second = await running.client(), await running.client()
        await running.until(lambda: len(running.server.connections) == 2)
        async with await running.client() as third:
            assert await third.receive_some() == b""
        assert running.counts.refused == {"max_connections": 1}
        await first.aclose()
        await running.until(lambda: len(running.server.connections) == 1)
        async with await running.client():
            await running.until(lambda: len(running.server.connections) == 2)
        await second.aclose()


def came(running: Any) -> int:
    """Connections that were taken or refused."""
    return sum(running.counts.opened.values()) + sum(running.counts.refused.values())


async def test_server_full_of_one_network_admits_another(net: Any) -> None:
    """Until both have as many: then either is refused."""
    config = net.config(9, limits={"max_connections": 5}, listener={"bind": "0.0.0.0:0"})
    async with net.serving(config) as running:
        many = [await running.client() for _ in range(5)]
        await running.until(lambda: len(running.server.connections) == 5)
        others = []
        for number in range(4):
            other = socket.socket()
            other.bind(("127.0.0.2", 0))
            other.connect(("127.0.0.1", running.port))
            others.append(other)
            await running.until(lambda: len(running.server.connections) == 5)
            await running.until(
                lambda count=number + 1: (
                    sum(running.counts.opened.values()) + sum(running.counts.refused.values()) == 5 + count
                )
            )
        by_network = Counter(each.address for each in running.server.connections)
        assert by_network == {"127.0.0.1": 3, "127.0.0.2": 2}
        assert running.causes() == {"displaced": 2}
        assert running.counts.refused == {"max_connections": 2}
        assert [await client.receive_some() for client in many[:2]] == [b"", b""], "the oldest ones"
        for other in others:
            other.close()


async def test_server_of_a_full_pool_makes_room(net: Any) -> None:
    """Other workers have the places: the client of another network takes one of the largest network here."""
    async with net.serving(net.config(9, listener={"bind": "0.0.0.0:0"})) as running:
        server = running.server
        many = [await running.client() for _ in range(3)]
        await running.until(lambda: len(server.connections) == 3)
        server.crowd(True)
        assert server.refusal(("127.0.0.1", 1)) == ("max_connections", server.capacity.reason)
        assert server.refusal(("127.0.0.2", 1)) is None
        assert running.causes() == {"displaced": 1}
        server.crowd(False)
        assert server.refusal(("127.0.0.1", 1)) is None
        assert [await client.receive_some() for client in many[:1]] == [b""]


async def test_too_many_connections_of_one_address(net: Any) -> None:
    """Another address is still served."""
    config = net.config(9, limits={"max_connections_per_address": 1}, listener={"bind": "0.0.0.0:0"})
    async with net.serving(config) as running:
        async with await running.client():
            async with await running.client() as second:
                assert await second.receive_some() == b""
            other = socket.socket()
            other.bind(("127.0.0.2", 0))
            other.connect(("127.0.0.1", running.port))
            await running.until(lambda: len(running.server.connections) == 2)
            other.close()
        assert running.counts.refused == {"max_connections_per_address": 1}


async def test_out_of_descriptors(net: Any) -> None:
    """Accepting rests and goes on by itself; nobody who waits in the backlog is lost."""

    class Exhausted:
        """The listening socket, when no descriptor is free at first."""

        def __init__(self, sock: socket.socket) -> None:
            self.sock, self.failures = sock, 2

        def _accept(self) -> Any:
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return self.sock._accept()  # type: ignore[attr-defined]

        def close(self) -> None:
            self.sock.close()

    broker = await net.open_broker()
    async with trio.open_nursery() as nursery, net.serving(net.config(broker.port)) as running:
        nursery.start_soon(broker.obey)
        acceptor = running.server.port_service.by_listener["main"].by_port[running.port][0]
        acceptor.sock = Exhausted(acceptor.sock)
        async with await running.client() as client:
            await client.send_all(net.request(1))
            assert await net.answer(client) == 1

        assert acceptor.sock.failures == 0
        assert [entry["event"] for entry in running.log].count("connections cannot be accepted for now") == 1
        nursery.cancel_scope.cancel()


async def test_ipv6(net: Any) -> None:
    """Clients and brokers on ::1; the address that nodes are given at is ::1 as well."""
    broker = await net.open_broker("::1")
    config = net.config(9, listener={"bind": "[::1]:0"}, cluster={"bootstrap": [f"[::1]:{broker.port}"]})
    async with trio.open_nursery() as nursery, net.serving(config) as running:
        nursery.start_soon(broker.obey)
        async with await running.client("::1") as client:
            await client.send_all(net.request(1))
            assert await net.answer(client) == 1
            connection = next(iter(running.server.connections))
            listener = running.server.listeners[0]

            assert connection.local_host == "::1"
            assert listener.ensure({1: ("b1", 9092)}, connection) == {1: ("::1", running.port + 2)}
            assert report.describe(connection)["client"].startswith("[::1]:")
        nursery.cancel_scope.cancel()


async def test_one_wildcard_listener_serves_both_families(net: Any) -> None:
    """A client over IPv4 is shown as such, and nodes are advertised at the IPv4 address that it came to."""
    async with net.serving(net.config(9, listener={"bind": "[::]:0"})) as running, await running.client():
        await running.until(lambda: running.server.connections)
        connection = next(iter(running.server.connections))

        assert connection.client_address[0] == "127.0.0.1"
        assert connection.local_host == "127.0.0.1"


async def test_drain_answers_what_is_in_flight(net: Any, driver: str) -> None:
    """No new connection, the answer to the old one, then the end of the server."""
    broker = await net.open_broker()
    log, _ = net.make_log()
    reactor = net.reactor_for(driver, log)
    server = Server(reactor, net.config(broker.port), lambda *args: PassingSession(), ConnectionCounts(), log)
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run, driver)
        async with trio.open_nursery() as serving:
            await serving.start(server.serve)
            port = server.listeners[0].port
            client, idle = await trio.open_tcp_stream("127.0.0.1", port), await trio.open_tcp_stream("127.0.0.1", port)
            await client.send_all(net.request(5))
            upstream = await broker.accept()
            server.drain()

            assert await idle.receive_some() == b""
            with pytest.raises(OSError, match=r"refused|all attempts"):
                await trio.open_tcp_stream("127.0.0.1", port)
            await upstream.send_all(net.response(5))
            assert await net.answer(client) == 5
            assert await client.receive_some() == b""
            await client.aclose()
            await idle.aclose()
        assert server.counts.closed == {"drained": 2}
        nursery.cancel_scope.cancel()
    reactor.close()


@pytest.mark.parametrize("ends", ["drain", "give_up", "end_reads", "sweep"])
async def test_server_ends_many_connections_in_slices(net: Any, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    """Other callbacks run after each connection if each takes a slice of time. One that fails stops no others."""
    broker = await net.open_broker()
    config = net.config(broker.port, limits={"idle_timeout": 1000, "drain_timeout": 1000})
    async with net.serving(config) as running:
        server = running.server
        clients = [await running.client() for _ in range(10)]
        await running.until(lambda: len(server.connections) == 10)
        opened = list(server.connections)
        clock = iter(range(10_000))
        monkeypatch.setattr(scheduler, "thread_time", lambda: next(clock))
        monkeypatch.setattr(timeouts, "monotonic", lambda: monotonic() + 2000 * (ends == "sweep"))
        if ends == "end_reads":
            monkeypatch.setattr(PassingSession, "cut_off", True, raising=False)
        soon, sliced, failed, before = server.reactor.soon, [], [], Connection.end

        def end(connection: Connection, *args: Any, **named: Any) -> None:
            if not failed:
                failed.append(connection)
                raise RuntimeError("once")
            before(connection, *args, **named)

        monkeypatch.setattr(Connection, "end", end)
        monkeypatch.setattr(server.reactor, "soon", lambda call: (sliced.append(call), soon(call)))
        if ends == "sweep":
            for connection in opened:
                connection.unread = connection.active = 0.0
            server.sweep.run()
        elif ends == "end_reads":
            Drain(server).end_reads()
        else:
            server.drain() if ends == "drain" else server.give_up("shutdown", "at once")
        assert not all(connection.closed for connection in opened)
        await running.until(lambda: all(connection.closed for connection in opened))
        assert len(sliced) >= 9
        assert len(failed) == 1
        assert sum(running.causes().values()) == 10
        for client in clients:
            await client.aclose()


async def test_signals_drain_and_then_hurry(net: Any, driver: str) -> None:
    """The first SIGTERM waits for answers, the second one does not."""
    broker = await net.open_broker()
    async with trio.open_nursery() as nursery, net.serving(net.config(broker.port), driver=driver) as running:
        await nursery.start(drain_on_signal, running.server)
        async with await running.client() as client:
            await client.send_all(net.request(5))
            await broker.accept()
            os.kill(os.getpid(), signal.SIGTERM)
            await running.until(lambda: running.server.draining)
            assert not running.server.finished.is_set()
            os.kill(os.getpid(), signal.SIGTERM)
            await running.server.finished.wait()
        nursery.cancel_scope.cancel()


async def test_drain_gives_up_in_time(net: Any) -> None:
    """A request that is never answered does not keep the process alive."""
    broker = await net.open_broker()
    async with (
        net.serving(net.config(broker.port, limits={"drain_timeout": 0.05})) as running,
        await running.client() as client,
    ):
        await client.send_all(net.request(5))
        await broker.accept()
        running.server.drain()
        await running.server.finished.wait()

        assert running.causes() == {"drain_timeout": 1}


async def test_ports_and_nodes_survive_a_restart(net: Any, tmp_path: Path) -> None:
    """The state file brings the ports back before any client asks, and connections there reach the node."""
    broker = await net.open_broker()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    config = net.config(9, listener={"bind": f"127.0.0.1:{port}"}, state=str(tmp_path / "state.json"))
    async with net.serving(config) as running, await running.client():
        await running.until(lambda: running.server.connections)
        connection = next(iter(running.server.connections))
        places = running.server.listeners[0].ensure({3: ("127.0.0.1", broker.port)}, connection)
        await running.until((tmp_path / "state.json").exists)
    assert places == {3: ("127.0.0.1", port + 4)}

    async with trio.open_nursery() as nursery, net.serving(config) as running:
        nursery.start_soon(broker.obey)
        async with await trio.open_tcp_stream("127.0.0.1", port + 4) as client:
            await client.send_all(net.request(1))
            assert await net.answer(client) == 1
            assert next(iter(running.server.connections)).node == 3
        nursery.cancel_scope.cancel()


async def test_ports_of_ranges_that_are_gone_stay_closed(net: Any, tmp_path: Path) -> None:
    """Only ranges that the listener or a rule still has are opened from the state file."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ranges = {f"main {first}-{first}": {"1": first} for first in (port, port + 1)}
    (tmp_path / "state.json").write_text(json.dumps({"version": 1, "ports": ranges, "nodes": {}}))
    rule = Advertise.model_validate({"ports": f"{port}-{port}"})
    async with net.serving(net.config(9, state=str(tmp_path / "state.json")), rules=[rule]) as running:
        assert set(running.server.port_service.by_listener["main"].by_port) == {running.port, port}


async def test_the_log_is_not_filled_by_bad_clients(net: Any) -> None:
    """The same cause from the same address has one line in a while."""

    class Closing(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            self.commands.append(CloseBoth("not_kafka", "client speaks TLS to a listener of plain Kafka", "client"))
            return 0

    async with net.serving(net.config(9), lambda *args: Closing()) as running:
        for _ in range(5):
            async with await running.client() as client:
                await client.send_all(b"\x16\x03\x01")
                assert await client.receive_some() == b""
        await running.settled()

        assert running.causes() == {"not_kafka": 5}
        assert [entry["event"] for entry in running.log].count("connection closed") == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2}', '{"version": 1, "ports": {"a": 1}, "nodes": {}}'])
async def test_a_state_file_that_cannot_be_read_stops_the_start(net: Any, tmp_path: Path, text: str) -> None:
    """It is named, and not overwritten."""
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.RaisesGroup(pytest.RaisesExc(DocumentError, match=str(path)), flatten_subgroups=True):
        async with net.serving(net.config(9, state=str(path))):
            pass

    assert path.read_text() == text


async def test_a_listener_that_cannot_bind_stops_the_start(net: Any) -> None:
    """The message names listener and address."""
    broker = await net.open_broker()
    config = net.config(9, listener={"bind": f"127.0.0.1:{broker.port}"})
    wanted = pytest.RaisesExc(InternalError, match=f"main cannot bind 127.0.0.1.*{broker.port}")
    with pytest.RaisesGroup(wanted, flatten_subgroups=True):
        async with net.serving(config):
            pass


async def test_fixed_addresses_of_nodes(net: Any) -> None:
    """`nodes`: kproxy listens on those ports, gives those addresses, and hides the other nodes."""
    broker = await net.open_broker()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    config = net.config(broker.port, listener={"advertise": {"nodes": {1: f"b1.example.com:{port}"}}})
    async with net.serving(config) as running, await trio.open_tcp_stream("127.0.0.1", port):
        await running.until(lambda: running.server.connections)
        connection = next(iter(running.server.connections))

        assert connection.node == 1
        assert connection.listener.ensure({1: ("x", 9), 2: ("y", 9)}, connection) == {
            1: ("b1.example.com", port),
            2: None,
        }
        assert not any("cannot be given an address" in entry["event"] for entry in running.log)


async def test_fixed_addresses_of_a_rule_are_open_from_the_start(net: Any) -> None:
    """Clients may know them since before a restart; a port that nodes share leads to none of them in particular."""
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            ports.append(probe.getsockname()[1])
    nodes = {1: f"b1.example.com:{ports[0]}", 2: f"b2.example.com:{ports[1]}", 3: f"b3.example.com:{ports[1]}"}
    rule = Advertise.model_validate({"nodes": nodes})
    async with net.serving(net.config(9), rules=[rule]) as running:
        for port, node in zip(ports, (1, None), strict=True):
            async with await trio.open_tcp_stream("127.0.0.1", port):
                await running.until(lambda: running.server.connections)
                assert next(iter(running.server.connections)).node == node
            await running.settled()


async def test_a_state_file_with_an_odd_range_is_read(net: Any, tmp_path: Path) -> None:
    """What is no range of a listener is left out like ranges that are gone."""
    (tmp_path / "state.json").write_text(json.dumps({"version": 1, "ports": {"main": {"1": 2}}, "nodes": {}}))
    async with net.serving(net.config(9, state=str(tmp_path / "state.json"))) as running:
        assert set(running.server.port_service.by_listener["main"].by_port) == {running.port}


async def test_a_rule_may_decide_what_is_advertised(net: Any) -> None:
    """`advertise` is asked for each connection and goes before the listener's own."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    rule = Advertise.model_validate({"host": "kafka.example.com", "ports": f"{port}-{port}"})
    async with (
        net.serving(net.config(9), advertise=lambda listener, facts, bound: rule) as running,
        await running.client(),
    ):
        await running.until(lambda: running.server.connections)
        connection = next(iter(running.server.connections))
        places = connection.listener.ensure({70: ("x", 9), 71: ("y", 9)}, connection)

        assert places == {70: ("kafka.example.com", port), 71: None}
        assert any(
            entry["event"] == "node cannot be given an address, clients will not see it" for entry in running.log
        )


async def test_state_is_replaced_atomically(net: Any, tmp_path: Path) -> None:
    """What is on disk is always a whole document."""
    path = tmp_path / "state.json"
    async with net.serving(net.config(9, state=str(path))) as running, await running.client():
        await running.until(lambda: running.server.connections)
        connection = next(iter(running.server.connections))
        for node in range(5):
            connection.listener.ensure({node: ("b", 9)}, connection)
        await running.until(lambda: path.exists() and len(json.loads(path.read_text())["nodes"]["main"]) == 5)

        assert not path.with_name("state.json.new").exists()


@pytest.mark.parametrize("path", ["/dev/full", "/dev/zero"])
async def test_a_state_file_without_an_end_is_refused(path: str) -> None:
    """Reading it would never end; the start stops with a message instead."""
    with pytest.raises(DocumentError, match="a device is no regular file"):
        read_state(Path(path))
