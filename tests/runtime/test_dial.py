"""Finding a broker that answers: fail-over, names, other addresses, and what is said when there is none."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from kproxy.runtime.readiness import Probe
from kproxy.runtime.upstreams.resolve import Resolver

pytestmark = pytest.mark.trio


@pytest.fixture
def silent() -> Iterator[int]:
    """A port whose connects hang: its backlog is full, so the kernel drops what comes."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
        for sock in waiting:
            sock.close()


async def exchange(net: Any, running: Any) -> None:
    async with await running.client() as client:
        await client.send_all(net.request(1))
        assert await net.answer(client) == 1


async def test_dead_bootstrap_servers_are_survived(net: Any, driver: str, silent: int) -> None:
    """The client's first connection reaches the one server that lives, past one that refuses and one that is silent."""
    broker = await net.open_broker()
    config = net.config([1, silent, broker.port, silent, 1])
    async with trio.open_nursery() as nursery, net.serving(config, driver=driver) as running:
        nursery.start_soon(broker.obey)
        for _ in range(5):
            await exchange(net, running)

        assert running.counts.unreachable == {}
        nursery.cancel_scope.cancel()


async def test_a_silent_server_ends_in_the_connect_timeout(net: Any, driver: str, silent: int) -> None:
    """The log says who was tried and that no answer came."""
    config = net.config(silent, limits={"connect_timeout": 0.05})
    async with net.serving(config, driver=driver) as running, await running.client() as client:
        await client.send_all(net.request(1))

        assert await client.receive_some() == b""
        line = next(entry for entry in running.log if entry["event"] == "no broker could be reached")
        assert line["tried"] == {f"127.0.0.1:{silent}": "no answer in 0.05 s"}


@pytest.mark.parametrize("driver", ["task", "nested"])  # only epoll tells of a socket that nobody reads
async def test_a_client_that_leaves_while_we_connect(net: Any, driver: str, silent: int) -> None:
    """Its reset ends the attempt; nothing is left behind."""
    async with net.serving(net.config(silent), driver=driver) as running:
        client = await running.client()
        await client.send_all(net.request(1))
        await running.until(lambda: any(each.race for each in running.server.connections))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.socket.close()
        await running.settled()

        assert running.causes() == {"client_reset": 1}


async def test_dial_overrides_where_to_go(net: Any, driver: str) -> None:
    """`dial` replaces what brokers advertise and bootstrap addresses, before any name is looked up."""
    broker = await net.open_broker()
    dial = {"no-such-name.invalid:9092": f"127.0.0.1:{broker.port}"}
    config = net.config(9, cluster={"bootstrap": ["no-such-name.invalid:9092"], "dial": dial})
    async with trio.open_nursery() as nursery, net.serving(config, driver=driver) as running:
        nursery.start_soon(broker.obey)
        await exchange(net, running)
        nursery.cancel_scope.cancel()


async def test_names_are_looked_up_and_a_bad_one_is_named(net: Any, driver: str) -> None:
    """`localhost` works; a name that does not exist is in the log with the resolver's reason."""
    broker = await net.open_broker()
    config = net.config(9, cluster={"bootstrap": ["no-such-name.invalid:9092", f"localhost:{broker.port}"]})
    async with trio.open_nursery() as nursery, net.serving(config, driver=driver) as running:
        nursery.start_soon(broker.obey)
        await exchange(net, running)
        nursery.cancel_scope.cancel()

    config = net.config(9, cluster={"bootstrap": ["no-such-name.invalid:9092"]})
    async with net.serving(config, driver=driver) as running, await running.client() as client:
        await client.send_all(net.request(1))
        assert await client.receive_some() == b""
        line = next(entry for entry in running.log if entry["event"] == "no broker could be reached")
        assert list(line["tried"]) == ["no-such-name.invalid:9092"]


@pytest.mark.parametrize("host", ["a" * 70, "b\udcff"], ids=["long label", "no utf-8"])
async def test_names_that_no_host_has_are_not_found(host: str) -> None:
    """Brokers may name any bytes: it is the same as a name that does not exist, and raises nothing else."""
    resolver = Resolver()

    assert resolver.known((host, 9092)) is None
    with pytest.raises(OSError, match="no name of a host"):
        await resolver.look_up((host, 9092))


async def test_the_resolver_keeps_the_last_good_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is used for 30 s; after that a failing look-up falls back to it."""
    now, broken, asked = 100.0, False, 0

    def ask(server: Any) -> Any:
        nonlocal asked
        asked += 1
        if broken:
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        return [(socket.AF_INET, ("10.0.0.1", server[1]))]

    monkeypatch.setattr("kproxy.runtime.upstreams.resolve.monotonic", lambda: now)
    resolver = Resolver(ask)
    server = ("b1.example.com", 9092)
    assert resolver.known(server) is None
    good = await resolver.look_up(server)
    now += 29
    assert resolver.known(server) == good
    now += 2
    assert resolver.known(server) is None
    broken = True
    assert await resolver.look_up(server) == good
    assert asked == 2
    with pytest.raises(socket.gaierror):
        await resolver.look_up(("b2.example.com", 9092))
    assert resolver.known(("10.0.0.7", 1)) == [(socket.AF_INET, ("10.0.0.7", 1))]


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_brokers_are_told_whose_connection_it_is(net: Any, driver: str, version: str) -> None:
    """The header comes first and is exactly as published; the client's own bytes follow."""
    broker = await net.open_broker()
    config = net.config(broker.port, cluster={"proxy_protocol": version})
    async with net.serving(config, driver=driver) as running, await running.client() as client:
        await client.send_all(net.request(1))
        stream = await broker.accept()
        (host, port), target = client.socket.getsockname(), running.port
        assert host == "127.0.0.1"
        if version == "v1":
            header = f"PROXY TCP4 127.0.0.1 127.0.0.1 {port} {target}\r\n".encode()
        else:
            head = bytes.fromhex("0d0a0d0a000d0a515549540a 2111 000c 7f000001 7f000001")
            header = head + port.to_bytes(2, "big") + target.to_bytes(2, "big")

        assert await net.exactly(stream, len(header) + 40) == header + net.request(1)


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_what_kproxy_itself_asks_is_its_own(net: Any, version: str) -> None:
    """A probe says LOCAL, or in version 1, which has no word for that, the ends of its own connection."""
    broker = await net.open_broker()
    config = net.config(broker.port, cluster={"proxy_protocol": version})
    async with net.serving(config) as running, trio.open_nursery() as nursery:
        nursery.start_soon(Probe(running.server.upstreams["main"]).ask)
        stream = await broker.accept()
        port = stream.socket.getpeername()[1]
        line = f"PROXY TCP4 127.0.0.1 127.0.0.1 {port} {broker.port}\r\n".encode()
        header = line if version == "v1" else bytes.fromhex("0d0a0d0a000d0a515549540a 2000 0000")

        assert await net.exactly(stream, len(header) + 4) == header + bytes.fromhex("00000010")
        nursery.cancel_scope.cancel()
