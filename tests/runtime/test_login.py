"""kproxy's own login at brokers that refuse, hang, close, or speak something else; and callers that go away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from kproxy.protocol import decode_request, decode_response
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session import Session
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import request, response

pytestmark = pytest.mark.trio
HANDSHAKE, VERSIONS, AUTHENTICATE, HEARTBEAT = 17, 18, 36, 12
SECRET = "open-sesame"
PLAIN = {"mechanism": "PLAIN", "username": "kproxy", "password": SECRET}
OFFERED = [{"api_key": key, "min_version": 0, "max_version": 2} for key in (HANDSHAKE, AUTHENTICATE)]

Speak = Callable[[trio.SocketStream], Awaitable[None]]


def session(name: str, facts: Any, node: int | None) -> Session:
    return Session(Plan(ConnectionSettings(advertise=False, ends_sasl=True)), ClusterState(), facts)


def answers(net: Any, **refusal: Any) -> Speak:
    """A broker that takes part in the login, and then answers whatever comes."""

    async def speak(stream: trio.SocketStream) -> None:
        while True:
            frame = await net.exactly(stream, int.from_bytes(await net.exactly(stream, 4), "big"))
            asked = decode_request(frame)
            key, version, correlation = asked.api.key, asked.version, asked.header["correlation_id"]
            said = {
                VERSIONS: {"api_keys": OFFERED},
                HANDSHAKE: {"mechanisms": ["PLAIN"]},
                AUTHENTICATE: {"auth_bytes": b"", **refusal},
            }
            await stream.send_all(response(key, version, correlation, **said.get(key, {})))

    return speak


def says(*data: bytes) -> Speak:
    """A broker that says this, whatever it is asked, and closes."""

    async def speak(stream: trio.SocketStream) -> None:
        await stream.receive_some(65536)
        for one in data:
            await stream.send_all(one)
        await stream.aclose()

    return speak


async def serve(broker: Any, speak: Speak) -> None:
    async with trio.open_nursery() as nursery:
        while True:
            nursery.start_soon(guarded, speak, await broker.accept())


async def guarded(speak: Speak, stream: trio.SocketStream) -> None:
    try:
        await speak(stream)
    except (EOFError, trio.BrokenResourceError):
        await stream.aclose()


async def test_nothing_of_the_client_goes_out_before(net: Any, driver: str) -> None:
    """What a client sends waits for the login, and its answers are its own."""
    broker = await net.open_broker()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, broker, answers(net))
        async with net.serving(net.config(broker.port, cluster={"sasl": PLAIN}), session, driver) as running:
            async with await running.client() as client:
                await client.send_all(request(HEARTBEAT, 4, 7) + request(HEARTBEAT, 4, 8))
                for correlation in (7, 8):
                    frame = await net.exactly(client, int.from_bytes(await net.exactly(client, 4), "big"))
                    assert decode_response(frame, HEARTBEAT, 4).header["correlation_id"] == correlation
            await running.settled()
            assert running.counts.logins == {"main": 1}
        nursery.cancel_scope.cancel()


async def test_a_refusal_is_told_to_the_client(net: Any) -> None:
    """Error 58 to ApiVersions, one line with the broker's words but not our password, counted; then the next."""
    broker = await net.open_broker()
    async with trio.open_nursery() as nursery:
        said = f"no {SECRET}\nfor you"
        nursery.start_soon(serve, broker, answers(net, error_code=58, error_message=said))
        async with net.serving(net.config(broker.port, cluster={"sasl": PLAIN}), session) as running:
            for _ in range(2):
                async with await running.client() as client:
                    await client.send_all(
                        request(VERSIONS, 3, 1, client_software_name="a", client_software_version="b")
                    )
                    frame = await net.exactly(client, int.from_bytes(await net.exactly(client, 4), "big"))
                    assert decode_response(frame, VERSIONS, 3).body["error_code"] == 58
                    assert await client.receive_some() == b""
                await running.settled()
            (line,) = [one for one in running.log if one["event"] == "broker refuses kproxy's login"]
            assert line["reason"] == "error 58: no … for you"
            assert running.counts.logins_refused == {"main": 2}
            assert running.causes() == {"broker_login": 2}
            assert SECRET not in repr(running.log)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ((), "the broker closed the connection during the login"),
        ((b"\0\0",), "the broker closed the connection during the login"),
        ((b"\x15\x03\x03\0\x02\x02\x50",), "the broker requires TLS, and its cluster has no tls in the config"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "an answer of 1213486160 bytes, expected 4 to 65536"),
        ((b"\xff\xff\xff\xff",), "an answer of -1 bytes, expected 4 to 65536"),
        ((b"\0\0\0\x06\0\0\0\1\0\0",), "the broker's answer cannot be read"),
    ],
    ids=["nothing", "cut", "TLS", "HTTP", "negative", "strange"],
)
async def test_brokers_that_do_not_take_part(net: Any, data: tuple[bytes, ...], reason: str) -> None:
    """The connection ends, the line says why, and it is counted."""
    broker = await net.open_broker()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, broker, says(*data))
        async with net.serving(net.config(broker.port, cluster={"sasl": PLAIN}), session) as running:
            async with await running.client() as client:
                await client.send_all(request(HEARTBEAT, 4, 1))
                assert await client.receive_some() == b""
            await running.settled()
            (line,) = [one for one in running.log if one["event"] == "kproxy's login at a broker failed"]
            assert line["reason"].startswith(reason)
            assert running.counts.logins_refused == {"main": 1}
            assert running.causes() == {"unreachable": 1}
        nursery.cancel_scope.cancel()


async def test_a_broker_that_hangs(net: Any) -> None:
    """The login has as long as a handshake; a client that has gone before is not waited for."""
    broker = await net.open_broker()

    async def hang(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, broker, hang)
        config = net.config(broker.port, cluster={"sasl": PLAIN}, limits={"handshake_timeout": 0.2})
        async with net.serving(config, session) as running:
            async with await running.client() as client:
                await client.send_all(request(HEARTBEAT, 4, 1))
                assert await client.receive_some() == b""
            await running.settled()
            assert [one["reason"] for one in running.log if "login" in one["event"]] == ["no login in 0.2 s"]
        config = net.config(broker.port, cluster={"sasl": PLAIN})
        async with net.serving(config, session) as running:
            before = broker.connections
            client = await running.client()
            await client.send_all(request(HEARTBEAT, 4, 1))
            await running.until(lambda: broker.connections > before)
            (connection,) = running.server.connections
            connection.end("admin", "closed by a test")
            await running.settled()
            assert running.counts.logins_refused == {}
        nursery.cancel_scope.cancel()
