"""What a connection does with bytes, ends and stops of either side; each on both drivers."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest
import trio

from kproxy.base.cooperative import yield_point
from kproxy.runtime.io import scheduler, side
from kproxy.runtime.io.scheduler import BUFFER
from kproxy.session.commands import BROKER, CLIENT, CloseBoth, Dial, EnsureNodes, Pause, Resume, Send, Wake
from tests.support.passing_session import PassingSession

pytestmark = [pytest.mark.trio, pytest.mark.filterwarnings("error")]
RST = struct.pack("ii", 1, 0)


def reset(stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
    stream.socket.close()


@pytest.fixture(autouse=True)
def scribble(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each callback the shared buffer is overwritten: whatever still needs it would be wrong in every test."""
    ready = side.Side.ready

    def ready_then_scribble(self: side.Side, mask: int) -> None:
        ready(self, mask)
        side.VIEW[:70000] = b"\xee" * 70000

    monkeypatch.setattr(side.Side, "ready", ready_then_scribble)


async def test_bytes_one_by_one(net: Any, driver: str) -> None:
    """Frames that come byte by byte are answered all the same."""
    broker = await net.open_broker()
    async with trio.open_nursery() as nursery, net.serving(net.config(broker.port), driver=driver) as running:
        nursery.start_soon(broker.obey)
        async with await running.client() as client:
            for byte in net.request(1) + net.request(2):
                await client.send_all(bytes([byte]))

            assert [await net.answer(client) for _ in range(2)] == [1, 2]
        nursery.cancel_scope.cancel()


async def test_two_frames_cut_anywhere(net: Any, driver: str) -> None:
    """Two frames cut at each place of the second one's header, with a pause of the loop between the halves."""
    broker = await net.open_broker()
    async with trio.open_nursery() as nursery, net.serving(net.config(broker.port), driver=driver) as running:
        nursery.start_soon(broker.obey)
        async with await running.client() as client:
            for cut in range(36, 60):
                data = net.request(7) + net.request(8)
                await client.send_all(data[:cut])
                if cut >= 40:
                    assert await net.answer(client) == 7
                await client.send_all(data[cut:])
                assert [await net.answer(client) for _ in range(1 if cut >= 40 else 2)][-1] == 8
        nursery.cancel_scope.cancel()


async def test_many_at_once(net: Any, driver: str) -> None:
    """300 connections that all speak at once are all answered, and none is left over."""
    broker = await net.open_broker()

    async def one(running: Any) -> None:
        async with await running.client() as client:
            await client.send_all(net.request(5))
            assert await net.answer(client) == 5

    async with trio.open_nursery() as nursery, net.serving(net.config(broker.port), driver=driver) as running:
        nursery.start_soon(broker.obey)
        async with trio.open_nursery() as clients:
            for _ in range(300):
                clients.start_soon(one, running)
        await running.settled()

        assert running.causes() == {"client_closed": 300}
        nursery.cancel_scope.cancel()


async def test_half_close_with_requests_in_flight(net: Any, driver: str) -> None:
    """A client that says it is done gets its hundred answers, and then the end."""
    broker = await net.open_broker()
    async with trio.open_nursery() as nursery, net.serving(net.config(broker.port), driver=driver) as running:
        async with await running.client() as client:
            await client.send_all(b"".join(net.request(i) for i in range(100)))
            await client.send_eof()
            upstream = await broker.accept()
            nursery.start_soon(net.obedient, upstream)

            assert [await net.answer(client) for _ in range(100)] == list(range(100))
            assert await client.receive_some() == b""
        await running.settled()
        assert running.causes() == {"client_closed": 1}


async def test_reset_in_the_middle_of_a_header(net: Any, driver: str) -> None:
    """A client that vanishes takes nobody with it."""
    broker = await net.open_broker()
    async with trio.open_nursery() as nursery, net.serving(net.config(broker.port), driver=driver) as running:
        nursery.start_soon(broker.obey)
        victim = await running.client()
        await victim.send_all(net.request(1)[:9])
        await running.until(lambda: broker.connections)
        reset(victim)
        async with await running.client() as client:
            await client.send_all(net.request(2))
            assert await net.answer(client) == 2
        await running.settled()

        assert running.causes() == {"client_reset": 1, "client_closed": 1}
        nursery.cancel_scope.cancel()


async def test_broker_that_dies_flushes_what_it_said(net: Any, driver: str) -> None:
    """What came before a broker's reset still reaches the client; the log says that requests were in flight."""
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port), driver=driver) as running, await running.client() as client:
        await client.send_all(net.request(1) + net.request(2))
        upstream = await broker.accept()
        await net.exactly(upstream, 80)
        await upstream.send_all(net.response(1))
        assert await net.answer(client) == 1
        reset(upstream)

        assert await client.receive_some() == b""
        await client.aclose()
        await running.settled()
        assert running.causes() == {"broker_reset": 1}
        line = next(entry for entry in running.log if entry["event"] == "connection closed")
        assert "requests in flight" in line["reason"]


async def test_broker_that_closes_ends_the_connection(net: Any, driver: str) -> None:
    """The client sees the end, after everything that the broker had sent."""
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port), driver=driver) as running, await running.client() as client:
        await client.send_all(net.request(1))
        upstream = await broker.accept()
        await upstream.send_all(net.response(1, 300000))
        await upstream.aclose()

        assert await net.answer(client) == 1
        assert await client.receive_some() == b""


async def test_upstream_that_does_not_read(net: Any, driver: str) -> None:
    """The client is stopped, memory stays at one buffer, and in the end every byte arrives in order."""
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port), driver=driver) as running, await running.client() as client:
        frame = struct.pack(">i", 1 << 20) + bytes(range(256)) * 4096
        sent = 0
        with trio.move_on_after(0.3):
            while True:
                sent += await client.socket.send(frame[sent % len(frame) :])
        connection = next(iter(running.server.connections))

        assert connection.broker.pending <= len(BUFFER)
        upstream, got = await broker.accept(), 0
        while got < sent:
            data = await upstream.receive_some(1 << 20)
            assert data == (frame + frame)[got % len(frame) : got % len(frame) + len(data)]
            got += len(data)
        assert got == sent


async def test_client_that_does_not_read(net: Any, driver: str) -> None:
    """The broker is stopped, memory stays at one buffer, and in the end every byte arrives in order."""
    broker = await net.open_broker()
    async with net.serving(net.config(broker.port), driver=driver) as running, await running.client() as client:
        await client.send_all(b"".join(net.request(i) for i in range(100)))
        upstream = await broker.accept()
        frame = net.response(3, 1 << 20)
        sent = 0
        with trio.move_on_after(0.3):
            while sent < 100 << 20:
                sent += await upstream.socket.send(frame[sent % len(frame) :])
        connection = next(iter(running.server.connections))

        assert connection.client.pending <= len(BUFFER)
        got = 0
        while got < sent:
            got += len(await client.receive_some(1 << 20))
        assert got == sent


async def test_client_that_asks_and_never_reads(net: Any, driver: str) -> None:
    """Answers of kproxy's own do not pile up: a client that does not take them is not read any more."""

    class Answering(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            self.commands.append(Send(CLIENT, bytes(n)))
            return 0

    async with (
        net.serving(net.config(9), lambda *args: Answering(), driver) as running,
        await running.client() as client,
    ):
        with trio.move_on_after(0.3):
            while True:
                await client.socket.send(bytes(65536))
        connection = next(iter(running.server.connections))

        assert connection.client.pending <= side.ANSWERS + len(BUFFER)


async def test_no_broker_there(net: Any, driver: str) -> None:
    """The client is closed, and the log says which address refused and why."""
    async with net.serving(net.config(1), driver=driver) as running, await running.client() as client:
        await client.send_all(net.request(1))

        assert await client.receive_some() == b""
        line = next(entry for entry in running.log if entry["event"] == "no broker could be reached")
        assert line["tried"] == {"127.0.0.1:1": "connection refused"}
        assert running.counts.unreachable == {"main": 1}


async def test_commands_are_obeyed_in_order(net: Any, driver: str) -> None:
    """What passes goes first, then the commands; bytes sent before the broker is there wait for it."""

    class Scripted(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            self.commands += [Dial(), Send(BROKER, b"-second"), Send(CLIENT, b"own answer"), Send(BROKER, b"-third")]
            return n

    broker = await net.open_broker()
    async with (
        net.serving(net.config(broker.port), lambda *args: Scripted(), driver) as running,
        await running.client() as client,
    ):
        await client.send_all(b"first")
        upstream = await broker.accept()

        assert await net.exactly(upstream, 18) == b"first-second-third"
        assert await net.exactly(client, 10) == b"own answer"


async def test_a_session_that_closes_is_flushed_first(net: Any, driver: str) -> None:
    """Half a megabyte given before Close arrives whole, though the client has sent more that nobody reads."""

    class Closing(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            self.commands += [
                Send(CLIENT, bytes(500000)),
                CloseBoth("decode", "bytes that nobody understands", "client"),
            ]
            return 0

    async with net.serving(net.config(9), lambda *args: Closing(), driver) as running:
        async with await running.client() as client:
            await client.send_all(net.request(1))
            await client.send_all(net.request(2, 100000))

            assert len(await net.exactly(client, 500000)) == 500000
            assert await client.receive_some() == b""
        await running.settled()
        line = next(entry for entry in running.log if entry["event"] == "connection closed")
        assert (line["cause"], line["log_level"]) == ("decode", "warning")
        assert (line["reason"], line["blame"]) == ("bytes that nobody understands", "client")


async def test_a_paused_side_is_not_read(net: Any, driver: str) -> None:
    """After Pause nothing more is taken until Resume."""

    class Pausing(PassingSession):
        taken = 0

        def from_client(self, view: memoryview, n: int, now: float) -> int:
            self.taken += n
            self.commands.append(Pause(CLIENT))
            return 0

    session, other = Pausing(), Pausing()
    sessions = iter((session, other))
    async with (
        net.serving(net.config(9), lambda *args: next(sessions), driver) as running,
        await running.client() as client,
        await running.client() as witness,
    ):
        await client.send_all(b"one")
        await running.until(lambda: session.taken == 3)
        await client.send_all(b"two")
        await witness.send_all(b"later")
        await running.until(lambda: other.taken == 5)
        assert session.taken == 3
        session.commands.append(Resume(CLIENT))
        session.owner.obey(0.0)
        await running.until(lambda: session.taken == 6)


async def test_a_session_that_raises_ends_its_connection_only(net: Any, driver: str) -> None:
    """A bug shows as one closed connection and a traceback in the log."""

    class Broken(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            raise RuntimeError("a bug")

    sessions = iter((Broken(), PassingSession()))
    broker = await net.open_broker()
    async with trio.open_nursery() as nursery:
        async with net.serving(net.config(broker.port), lambda *args: next(sessions), driver) as running:
            nursery.start_soon(broker.obey)
            first, second = await running.client(), await running.client()
            await first.send_all(b"x")
            assert await first.receive_some() == b""
            await second.send_all(net.request(1))
            assert await net.answer(second) == 1

            assert running.causes() == {"crashed": 1}
            assert any(entry["event"] == "a callback raised" for entry in running.log)
            await first.aclose()
            await second.aclose()
        nursery.cancel_scope.cancel()


async def test_nodes_get_ports_on_demand(net: Any, driver: str) -> None:
    """EnsureNodes is answered with ports of this listener, on the address that the client's connection came to."""

    class Asking(PassingSession):
        nodes: Any = None

        def from_client(self, view: memoryview, n: int, now: float) -> int:
            self.commands.append(EnsureNodes({4: ("127.0.0.1", 9), 5: ("127.0.0.1", 9)}))
            return 0

        def nodes_ready(self, nodes: Any, now: float) -> None:
            self.nodes = nodes
            self.commands.append(Send(CLIENT, b"!"))

    session = Asking()
    async with (
        net.serving(net.config(9), lambda *args: session, driver) as running,
        await running.client() as client,
    ):
        await client.send_all(b"x")
        assert await net.exactly(client, 1) == b"!"
        ports = {node: address[1] for node, address in session.nodes.items()}

        assert set(session.nodes) == {4, 5}
        assert {address[0] for address in session.nodes.values()} == {"127.0.0.1"}
        async with await trio.open_tcp_stream("127.0.0.1", ports[5]):
            await running.until(lambda: len(running.server.connections) == 2)


async def test_sent_is_told_and_sleepers_are_woken(net: Any, driver: str) -> None:
    """A token is reported once the kernel has everything before it; a Wake reaches the other session."""

    class Sleeper(PassingSession):
        def granted(self, now: float) -> None:
            self.commands.append(Send(CLIENT, b"woken"))

    sleeper = Sleeper()

    class Waker(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            self.commands += [Send(CLIENT, bytes(3000000)), Send(CLIENT, b"", token=7)]
            return 0

        def sent(self, token: int, now: float) -> None:
            assert token == 7
            self.commands.append(Wake((sleeper,)))

    sessions = iter((sleeper, Waker()))
    async with (
        net.serving(net.config(9), lambda *args: next(sessions), driver) as running,
        await running.client() as asleep,
    ):
        await running.until(lambda: running.server.connections)
        async with await running.client() as client:
            await client.send_all(b"x")
            await net.exactly(client, 3000000)
            assert await net.exactly(asleep, 5) == b"woken"


async def test_sleepers_are_woken_though_their_waker_has_nothing_else_to_do(net: Any, driver: str) -> None:
    """Memory comes back when a slow client has read at last, and nothing may follow on that connection for long."""

    class Sleeper(PassingSession):
        def granted(self, now: float) -> None:
            self.commands.append(Send(CLIENT, b"woken"))

    class Waker(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            self.commands += [Send(CLIENT, bytes(40_000_000)), Send(CLIENT, b"", token=7)]
            return 0

        def sent(self, token: int, now: float) -> None:
            self.commands.append(Wake((sleeper,)))

    sleeper = Sleeper()
    sessions = iter((sleeper, Waker()))
    async with (
        net.serving(net.config(9), lambda *args: next(sessions), driver) as running,
        await running.client() as asleep,
    ):
        await running.until(lambda: running.server.connections)
        async with await running.client() as client:
            await client.send_all(b"x")
            await net.exactly(client, 40_000_000)
            assert await net.exactly(asleep, 5) == b"woken"


async def test_one_that_cannot_be_woken_does_not_keep_the_others_asleep(net: Any, driver: str) -> None:
    """A session that raises when it gets its memory ends its own connection; those behind it still get their turn."""

    class Broken(PassingSession):
        def granted(self, now: float) -> None:
            raise RuntimeError("broken")

    class Sleeper(PassingSession):
        def granted(self, now: float) -> None:
            self.commands.append(Send(CLIENT, b"woken"))

    class Waker(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            self.commands.append(Wake((broken, sleeper)))
            return 0

    broken, sleeper = Broken(), Sleeper()
    sessions = iter((broken, sleeper, Waker()))
    async with (
        net.serving(net.config(9), lambda *args: next(sessions), driver) as running,
        await running.client() as first,
    ):
        await running.until(lambda: len(running.server.connections) == 1)
        async with await running.client() as second:
            await running.until(lambda: len(running.server.connections) == 2)
            async with await running.client() as waker:
                await waker.send_all(b"x")
                assert await net.exactly(second, 5) == b"woken"
                assert await first.receive_some(1) == b""


@pytest.mark.parametrize("lost", ["after_close", "after_failed_send", "before_end"])
async def test_wake_of_a_connection_that_ends_is_not_lost(
    net: Any, driver: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """The other session waits for memory or for a quota, and nothing else wakes it."""

    class Sleeper(PassingSession):
        def granted(self, now: float) -> None:
            self.commands.append(Send(CLIENT, b"woken"))

    class Waker(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            if lost == "after_close":
                self.commands.append(CloseBoth("weary", "it has had enough", reset=True))
            self.commands.append(Wake((sleeper,)))
            if lost == "before_end":
                self.owner.end("weary", "it has had enough")
            return n if lost == "after_failed_send" else 0

    def fail(data: object) -> int:
        raise BrokenPipeError

    if lost == "after_failed_send":
        monkeypatch.setattr(side, "not_connected", fail)
    sleeper = Sleeper()
    sessions = iter((sleeper, Waker()))
    async with (
        net.serving(net.config(9), lambda *args: next(sessions), driver) as running,
        await running.client() as asleep,
    ):
        await running.until(lambda: running.server.connections)
        async with await running.client() as client:
            await client.send_all(b"x")
            assert await net.exactly(asleep, 5) == b"woken"


async def test_many_woken_sessions_run_in_slices(net: Any, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one wakes the next, as in the line of a quota. Other callbacks run in between."""
    clock = [0.0]
    monkeypatch.setattr(scheduler, "thread_time", lambda: clock[0])
    order: list[str] = []
    many = 100

    class Sleeper(PassingSession):
        def granted(self, now: float) -> None:
            clock[0] += scheduler.SLICE / 5
            order.append("session")
            if len(order) == 1:
                running.server.reactor.soon(lambda: order.append("callback"))
            if order.count("session") < many:
                running.server.wake([Sleeper()])

    async with net.serving(net.config(9), lambda *args: PassingSession(), driver) as running:
        running.server.wake([Sleeper()])
        await running.until(lambda: order.count("session") == many)
    assert order.index("callback") <= 10


async def test_wake_does_not_wait_for_the_work_of_its_waker(net: Any, driver: str) -> None:
    """The session that is woken first is the waker's own, and its work is put aside."""
    woken: list[str] = []

    class Sleeper(PassingSession):
        def granted(self, now: float) -> None:
            woken.append("other")

    class Waker(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            self.commands.append(Wake((self, Sleeper())))
            return 0

        def granted(self, now: float) -> None:
            while not woken:
                yield_point()
            woken.append("self")

    async with (
        net.serving(net.config(9), lambda *args: Waker(), driver) as running,
        await running.client() as client,
    ):
        await client.send_all(b"x")
        await running.until(lambda: len(woken) >= 2)
    assert woken[:2] == ["other", "self"]


async def test_connection_put_aside_leaves_its_line(net: Any, driver: str) -> None:
    """The next session in the line of a quota is woken at once, and the connection itself when its work is done."""
    woken: list[str] = []

    class Sleeper(PassingSession):
        def granted(self, now: float) -> None:
            woken.append("next in line")

    class Worker(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            while not woken:
                yield_point()
            return 0

        def step_aside(self) -> tuple[Any, ...]:
            return () if woken else (Sleeper(),)

        def granted(self, now: float) -> None:
            woken.append("worker")

    async with (
        net.serving(net.config(9), lambda *args: Worker(), driver) as running,
        await running.client() as client,
    ):
        await client.send_all(b"x")
        await running.until(lambda: len(woken) >= 2)
    assert woken[:2] == ["next in line", "worker"]
