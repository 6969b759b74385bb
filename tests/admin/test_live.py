"""The admin address has a limit to its connections, and says so."""

from __future__ import annotations

import json
import os
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest
import structlog
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from kproxy.admin import live

ASK = b"GET /here HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def here(request: Request) -> PlainTextResponse:
    return PlainTextResponse("yes")


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """A small application at a port of its own."""
    async with trio.open_nursery() as nursery:
        url = await nursery.start(
            live.serve_admin, Starlette(routes=[Route("/here", here)]), "127.0.0.1", 0, structlog.get_logger()
        )
        yield int(url.rpartition(":")[2])
        nursery.cancel_scope.cancel()


async def said(stream: trio.SocketStream) -> bytes:
    """The whole answer to a request."""
    await stream.send_all(ASK)
    answer = b""
    with trio.fail_after(30):
        while not answer.endswith((b"\r\n\r\nyes", b"}")):
            answer += await stream.receive_some()
    return answer


@pytest.mark.trio
async def test_connections_beyond_the_limit_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 503 and JSON like all refusals; those that are open go on, and when one ends the next is served."""
    monkeypatch.setattr(live, "MOST_CONNECTIONS", 2)
    async with serving() as port:
        first, second = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(2)]
        assert (await said(first)).startswith(b"HTTP/1.1 200")
        assert (await said(second)).startswith(b"HTTP/1.1 200")

        async with await trio.open_tcp_stream("127.0.0.1", port) as third:
            head, _, body = (await said(third)).partition(b"\r\n\r\n")
            with trio.fail_after(30):
                assert await third.receive_some() == b""
        assert head.startswith(b"HTTP/1.1 503 ")
        assert f"content-length: {len(body)}".encode() in head
        assert json.loads(body)["error"]["code"] == "too_many_connections"

        assert (await said(first)).startswith(b"HTTP/1.1 200")
        await first.aclose()
        with trio.fail_after(30):
            while True:
                async with await trio.open_tcp_stream("127.0.0.1", port) as another:
                    if (await said(another)).startswith(b"HTTP/1.1 200"):
                        break
        await second.aclose()


@pytest.mark.trio
async def test_a_client_that_is_refused_and_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is closed after a while, and no more than a few are waited for at the same moment."""
    monkeypatch.setattr(live, "MOST_CONNECTIONS", 0)
    monkeypatch.setattr(live, "MOST_REFUSED", 1)
    async with serving() as port:
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(3)]
        for stream in silent:
            with trio.fail_after(30):
                assert await stream.receive_some() == b""
            await stream.aclose()


@pytest.mark.trio
async def test_it_answers_when_all_descriptors_are_used_up() -> None:
    """A few are kept for it; once they are used up, too, nobody is accepted until one is free."""
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving() as port:
        with ExitStack() as stack:
            clients = [
                stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(live.SPARES + 1)
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
