"""The admin address has a limit to its connections, and says so."""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from itertools import count
from threading import Timer
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.types import Send

from kproxy.admin import http_server
from kproxy.runtime.io import socket_io
from tests.support.dead_peer import vanish

ASK = b"GET /here HTTP/1.1\r\nHost: localhost\r\n\r\n"


ALWAYS = count().__next__
LONG = b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def long(request: Request) -> PlainTextResponse:
    return PlainTextResponse("x" * (8 << 20))


async def here(request: Request) -> PlainTextResponse:
    return PlainTextResponse("yes")


@asynccontextmanager
async def serving(polls: Callable[[], int] = ALWAYS, endless: Any = here) -> AsyncIterator[int]:
    """A small application at a port of its own. `polls`: how often others have had their turn."""
    async with trio.open_nursery() as nursery:
        app = Starlette(
            routes=[Route("/here", here), Route("/long", long), Route("/gone", endless), Route("/slow", endless)]
        )
        url = await nursery.start(http_server.serve_admin, app, "127.0.0.1", 0, structlog.get_logger(), polls)
        yield int(url.rpartition(":")[2])
        nursery.cancel_scope.cancel()


async def said(stream: trio.SocketStream) -> bytes:
    """The whole answer to a request."""
    await stream.send_all(ASK)
    answer = b""
    with trio.fail_after(60):
        while not answer.endswith((b"\r\n\r\nyes", b"}")):
            answer += await stream.receive_some()
    return answer


@pytest.mark.trio
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="socket filters and TCP_INFO are Linux's")
async def test_admin_stream_of_a_vanished_client_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine has lost its network, so no FIN comes. A client that only does not read keeps its stream."""
    monkeypatch.setattr(http_server, "LOST_CHECK", 0.02)
    monkeypatch.setattr(socket_io, "LOST_RETRANSMITS", 2)
    ended = {"/gone": trio.Event(), "/slow": trio.Event()}

    class Endless(StreamingResponse):
        path: str

        async def stream_response(self, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            body = b": alive\n\n" if self.path == "/gone" else bytes(1 << 20)
            try:
                while True:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    await trio.sleep(0.01)
            finally:
                ended[self.path].set()

    async def endless(request: Request) -> StreamingResponse:
        response = Endless(iter(()))
        response.path = request.url.path
        return response

    async with serving(endless=endless) as port:
        streams = {path: await trio.open_tcp_stream("127.0.0.1", port) for path in ended}
        for path, stream in streams.items():
            await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert await stream.receive_some(100)
        await trio.sleep(0.1)  # the window of the slow one is full by now, or a little later
        vanish(streams["/gone"].socket)
        with trio.fail_after(120):
            await ended["/gone"].wait()
        assert not ended["/slow"].is_set()
        for stream in streams.values():
            await stream.aclose()


@pytest.mark.trio
async def test_admin_backlog_holds_a_flood_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that come faster than they are accepted are established by the kernel, not at a repeated SYN."""

    async def accepts_nothing(listener: http_server.AdminListener, sock: socket.socket) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(http_server.AdminListener, "serve", accepts_nothing)
    async with serving() as port:
        with trio.fail_after(60), ExitStack() as stack:
            for _ in range(300):
                stack.enter_context((await trio.open_tcp_stream("127.0.0.1", port)).socket)


@pytest.mark.trio
async def test_admin_place_is_free_once_its_client_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client closes its idle connection, the only one that is allowed: its place does not wait for a timeout."""
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 1)
    monkeypatch.setattr("hypercorn.config.Config.keep_alive_timeout", 1e6)
    async with serving() as port:
        async with await trio.open_tcp_stream("127.0.0.1", port) as first:
            assert (await said(first)).startswith(b"HTTP/1.1 200")
            await trio.testing.wait_all_tasks_blocked(0.01)  # the server has begun to wait for another request
        answer = b""
        with trio.fail_after(60):
            while not answer.startswith(b"HTTP/1.1 200"):
                async with await trio.open_tcp_stream("127.0.0.1", port) as other:
                    answer = await said(other)


@pytest.mark.trio
async def test_connections_beyond_the_limit_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 503 and JSON like all refusals; those that are open go on, and when one ends the next is served."""
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 2)
    async with serving() as port:
        first, second = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(2)]
        assert (await said(first)).startswith(b"HTTP/1.1 200")
        assert (await said(second)).startswith(b"HTTP/1.1 200")

        async with await trio.open_tcp_stream("127.0.0.1", port) as third:
            head, _, body = (await said(third)).partition(b"\r\n\r\n")
            with trio.fail_after(60):
                assert await third.receive_some() == b""
        assert head.startswith(b"HTTP/1.1 503 ")
        assert f"content-length: {len(body)}".encode() in head
        assert json.loads(body)["error"]["code"] == "too_many_connections"

        assert (await said(first)).startswith(b"HTTP/1.1 200")
        await first.aclose()
        with trio.fail_after(60):
            while True:
                async with await trio.open_tcp_stream("127.0.0.1", port) as another:
                    if (await said(another)).startswith(b"HTTP/1.1 200"):
                        break
        await second.aclose()


@pytest.mark.trio
async def test_a_client_that_is_refused_and_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is closed after a while, and no more than a few are waited for at the same moment."""
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 0)
    monkeypatch.setattr(http_server, "MOST_REFUSED", 1)
    async with serving() as port:
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(3)]
        for stream in silent:
            with trio.fail_after(60):
                assert await stream.receive_some() == b""
            await stream.aclose()


@pytest.mark.trio
async def test_it_answers_when_all_descriptors_are_used_up() -> None:
    """A few are kept for it; once they are used up, too, nobody is accepted until one is free."""
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving() as port:
        with ExitStack() as stack:
            clients = [
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                for _ in range(http_server.SPARES + 1)
            ]
            top = max(int(name) for name in os.listdir("/proc/self/fd"))
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (usual, most))
            resource.setrlimit(resource.RLIMIT_NOFILE, (top + 1, most))
            try:
                while True:
                    stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            except OSError:
                pass
            streams = [trio.SocketStream(trio.socket.from_stdlib_socket(client)) for client in clients]
            for stream in streams[:-1]:
                assert (await said(stream)).startswith(b"HTTP/1.1 200")
            await streams[0].aclose()
            assert (await said(streams[-1])).startswith(b"HTTP/1.1 200")


@pytest.mark.trio
async def test_clients_that_do_not_read_do_not_keep_the_process() -> None:
    """It ends a moment after it was told to: nobody can put off the end by asking for something long."""
    async with serving() as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(LONG * 20)
        with trio.fail_after(60):
            await stream.socket.recv(1, socket.MSG_PEEK)  # the answer has begun
        cut: list[bool] = []
        last_resort = Timer(60, lambda: (cut.append(True), stream.socket.close()))  # for work that cannot be cancelled
        last_resort.start()
    last_resort.cancel()
    await stream.aclose()
    assert not cut


@pytest.mark.trio
async def test_a_client_that_does_not_read_makes_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """If there is no other place, and not before it has had some time."""
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 1)
    async with serving() as port:
        idle = await trio.open_tcp_stream("127.0.0.1", port)
        await idle.send_all(LONG)
        with trio.fail_after(60):
            await idle.socket.recv(1, socket.MSG_PEEK)
        async with await trio.open_tcp_stream("127.0.0.1", port) as early:
            assert (await said(early)).startswith(b"HTTP/1.1 503")
        monkeypatch.setattr(http_server, "LONGEST_STUCK", 0.0)
        async with await trio.open_tcp_stream("127.0.0.1", port) as late:
            assert (await said(late)).startswith(b"HTTP/1.1 200")
        await idle.aclose()


@pytest.mark.trio
async def test_one_who_has_all_connections_makes_room_for_another_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its quietest connection goes; one more of its own is refused."""
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 3)
    async with serving() as port:
        held = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(3)]
        for stream in (held[1], held[0], held[2]):
            assert (await said(stream)).startswith(b"HTTP/1.1 200")
        async with await trio.open_tcp_stream("127.0.0.1", port) as more:
            assert (await said(more)).startswith(b"HTTP/1.1 503")
        async with await trio.open_tcp_stream("127.0.0.1", port, local_address="127.0.0.2") as other:
            assert (await said(other)).startswith(b"HTTP/1.1 200")
            with trio.fail_after(60):
                assert await held[1].receive_some() == b""
            assert (await said(held[0])).startswith(b"HTTP/1.1 200")
        for stream in held:
            await stream.aclose()


@pytest.mark.trio
async def test_whether_it_lives_is_told_to_more_than_may_be_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds all connections must not have the process ended by those who look after it."""
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 0)
    async with serving() as port, await trio.open_tcp_stream("127.0.0.1", port) as probe:
        await probe.send_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with trio.fail_after(60):
            answer = await probe.receive_some()
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"\r\n\r\nok\n")


@pytest.mark.trio
async def test_requests_one_behind_the_other_leave_time_to_others() -> None:
    """The reactor has its turn while no task can run: there are such moments, however much is asked for at once."""
    moments = 0

    async def look() -> None:
        nonlocal moments
        while True:
            await trio.testing.wait_all_tasks_blocked()
            moments += 1

    async with serving(lambda: moments) as port, trio.open_nursery() as nursery:
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        for client in clients:
            client.sendall(ASK * 100)
        nursery.start_soon(look)
        with trio.fail_after(60):
            for client in clients:
                await trio.to_thread.run_sync(read_answers, client, 100)
        nursery.cancel_scope.cancel()
    for client in clients:
        client.close()
    assert moments >= 8 * 100 / 4  # three pieces of an answer, four pieces without a moment of rest


def read_answers(client: socket.socket, count: int) -> None:
    """So many, and no more."""
    data = b""
    while data.count(b"\r\n\r\nyes") < count:
        data += client.recv(65536)
