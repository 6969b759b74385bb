"""Work that is put aside in the middle finds the bytes that it had read, whatever others have read meanwhile."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from socket import socketpair
from typing import Any

import pytest
import structlog
import trio

from kproxy.base.cooperative import yield_now
from kproxy.runtime.io import scheduler
from kproxy.runtime.io.reactor import IN, Reactor
from kproxy.runtime.io.scheduler import Fiber
from tests.support.passing_session import PassingSession

pytestmark = pytest.mark.filterwarnings("error")
CONNECTIONS, EACH = 6, 3_000_000
ROUNDS = 50


class RestingSession(PassingSession):
    """Session that lets others run in the middle of each read."""

    def from_client(self, view: memoryview, n: int, now: float) -> int:
        yield_now()
        passed = super().from_client(view, n, now)
        yield_now()
        return passed

    def from_broker(self, view: memoryview, n: int, now: float) -> int:
        yield_now()
        passed = super().from_broker(view, n, now)
        yield_now()
        return passed


def frames_of(number: int) -> bytes:
    """Return frames of all sizes, in which every four bytes say where they belong."""
    random, data = Random(number), bytearray()
    while len(data) < EACH:
        size = random.choice((20, 1000, 60_000, 70_000, 140_000, 300_000, 700_000)) & ~3
        start = len(data)
        data += size.to_bytes(4, "big")
        data += b"".join((number << 24 | at).to_bytes(4, "big") for at in range(start + 4, start + 4 + size, 4))
    return bytes(data)


async def echo(stream: trio.SocketStream) -> None:
    while data := await stream.receive_some(1 << 20):
        await stream.send_all(data)


async def exchange(stream: trio.SocketStream, sent: bytes) -> None:
    """Send all, in pieces, and compare what comes back."""

    async def send() -> None:
        at, random = 0, Random(len(sent))
        while at < len(sent):
            step = random.choice((1000, 65_536, 262_144, 500_000))
            await stream.send_all(sent[at : at + step])
            at += step

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        got = 0
        while got < len(sent):
            data = await stream.receive_some(1 << 20)
            assert data, "the connection ended"
            expected = sent[got : got + len(data)]
            if data != expected:  # no assert: pytest would compare megabytes
                wrong = next(i for i, (a, b) in enumerate(zip(data, expected, strict=True)) if a != b)
                raise AssertionError(f"what came differs from byte {got + wrong} on")
            got += len(data)


@pytest.mark.trio
async def test_what_was_read_is_there_when_its_turn_comes(
    net: Any, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every connection is put aside at each place where it may be."""
    monkeypatch.setattr(scheduler, "SLICE", -1.0)
    broker = await net.open_broker()
    async with trio.open_nursery() as nursery:

        async def accept() -> None:
            while True:
                nursery.start_soon(echo, await broker.accept())

        nursery.start_soon(accept)
        async with net.serving(net.config(broker.port), lambda *args: RestingSession(), driver) as running:
            with trio.fail_after(120):
                async with trio.open_nursery() as clients:
                    for number in range(CONNECTIONS):
                        clients.start_soon(exchange, await running.client(), frames_of(number))
            assert running.server.reactor.aside.stops > 100
        nursery.cancel_scope.cancel()


class Party:
    """Party with a socket and a time at which it is called; it is put aside in the middle of each of its calls."""

    def __init__(self, reactor: Reactor, letter: bytes) -> None:
        self.reactor, self.letter = reactor, letter
        self.reading = 0
        self.frozen: Fiber | None = None
        self.found: list[bytes] = []
        self.errors: list[Exception] = []
        self.sock, self.other = socketpair()
        reactor.add(self.sock.fileno(), self.ready, IN)

    @property
    def turns_of(self) -> Party:
        return self

    @property
    def address(self) -> str:
        return self.letter.decode()

    def ready(self, mask: int) -> None:
        """Read, and look at what was read when others have run."""
        self.reading = self.sock.recv_into(scheduler.BUFFER)
        yield_now()
        self.found.append(bytes(scheduler.BUFFER[: self.reading]))

    def tick(self) -> None:
        if self.frozen is None:
            yield_now()

    def freeze(self, turn: Fiber) -> None:
        assert self.frozen is None, f"{self.address} is put aside a second time"
        self.frozen = turn
        self.reactor.remove(self.sock.fileno())

    def thaw(self) -> None:
        self.frozen = None
        self.reactor.add(self.sock.fileno(), self.ready, IN)

    def over(self) -> None:
        """Do nothing: it serves events since it was thawed."""

    def crashed(self, error: Exception) -> None:
        self.errors.append(error)

    def close(self) -> None:
        self.sock.close()
        self.other.close()


def test_who_was_put_aside_serves_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several are called at one time, and all are put aside; meanwhile there is something to read for each. What one
    of them goes on with is its own call, not the others' events, whose bytes nobody would keep for them."""
    monkeypatch.setattr(scheduler, "SLICE", -1.0)
    reactor = Reactor(structlog.get_logger())
    with ExitStack() as stack:
        stack.callback(reactor.close)
        stack.callback(reactor.aside.close)
        parties = [Party(reactor, bytes([letter])) for letter in b"abcdefgh"]
        for number in range(ROUNDS):
            for party in parties[number % 3 :]:
                reactor.call_at(0.0, party.tick)
            for party in parties:
                party.other.send(party.letter * 20)
            reactor.serve(0.0)
        for _ in range(ROUNDS * len(parties) * 4):
            reactor.serve(0.0)
        for party in parties:
            party.close()
    for party in parties:
        assert party.errors == []
        assert b"".join(party.found) == party.letter * 20 * ROUNDS
