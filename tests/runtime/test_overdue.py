"""Connections that are closing and whose peers do not help."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.runtime import timeouts
from kproxy.session.commands import CLIENT, CloseBoth, Send
from tests.support.passing_session import PassingSession

pytestmark = pytest.mark.trio


class Closing(PassingSession):
    """Answers the first bytes with `size` bytes and closes."""

    size = 10

    def from_client(self, view: memoryview, n: int, now: float) -> int:
        self.commands += [
            Send(CLIENT, bytes(self.size)),
            CloseBoth("decode", "bytes that nobody understands", "client"),
        ]
        return 0


async def test_a_client_that_does_not_close_its_end(net: Any, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After our FIN it has `LINGER` seconds, in which what it sends is thrown away."""
    monkeypatch.setattr(timeouts, "LINGER", 0.05)
    config = net.config(9, limits={"write_timeout": 0.05})
    async with net.serving(config, lambda *args: Closing(), driver) as running, await running.client() as client:
        await client.send_all(b"x")
        assert len(await net.exactly(client, 10)) == 10
        assert await client.receive_some() == b""
        await client.send_all(bytes(1000))
        await running.settled()

        assert running.causes() == {"decode": 1}


async def test_a_client_that_does_not_take_the_rest(net: Any, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is queued is given up when nothing of it has gone for `FLUSH` seconds."""
    monkeypatch.setattr(timeouts, "FLUSH", 0.05)
    monkeypatch.setattr(Closing, "size", 20_000_000)
    config = net.config(9, limits={"write_timeout": 0.05})
    async with net.serving(config, lambda *args: Closing(), driver) as running, await running.client() as client:
        await client.send_all(b"x")
        await running.until(lambda: running.server.connections)
        await running.settled()

        assert running.causes() == {"decode": 1}
