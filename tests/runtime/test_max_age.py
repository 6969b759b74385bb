"""Connections that reach their greatest age: when, how many at a time, and that no answer is lost by it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kproxy.runtime import timeouts
from kproxy.runtime.protocols import ConnectionPhase
from kproxy.runtime.timeouts import MOST, MaxAges, drain
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session import Session
from kproxy.session.shared import ClusterState
from tests.support.certificates import Authority, client_context

pytestmark = [pytest.mark.trio, pytest.mark.filterwarnings("error")]
ROUNDS = 40 if os.environ.get("KPROXY_TEST_ALL") else 3
"""Ends of a connection that each client sees."""


class Aging:
    """Stands for a connection, as far as its age is concerned."""

    def __init__(self, since: float = 0.0) -> None:
        self.listener = SimpleNamespace(name="main")
        self.since, self.drain_at = since, inf
        self.phase, self.leaving, self.turn = ConnectionPhase.OPEN, None, None
        self.said: tuple[object, ...] = ()

    def drain(self, now: float, cause: str, message: str) -> None:
        """Note what is drained, and why."""
        self.leaving = self.said = (now, cause, message)


def ages(net: Any, workers: int = 1, listener: dict[str, Any] | None = None, **limits: Any) -> MaxAges:
    """The ages of a config with these limits."""
    config = net.config(9, limits=limits, listener=listener or {})
    return MaxAges(config.model_copy(update={"workers": workers}))


def grown_up(found: MaxAges, count: int) -> list[Any]:
    """So many connections that have all begun at second 0."""
    connections = [Aging() for _ in range(count)]
    for connection in connections:
        found.began(connection)
    return connections


async def test_ages_lie_all_over_the_jitter(net: Any) -> None:
    """What has begun at once ends within a fifth of the age, some in each hundredth, and no time has many more."""
    found = ages(net, max_connection_age="1h", max_connection_age_jitter=0.1)

    ends = [connection.drain_at for connection in grown_up(found, 2000)]

    assert min(ends) >= 3240
    assert max(ends) <= 3960
    parts = Counter(int((end - 3240) / 36) for end in ends)
    assert len(parts) == 20
    assert max(parts.values()) < 200


@pytest.mark.parametrize(
    ("limits", "listener", "expected"),
    [
        ({}, {}, (inf, inf)),
        ({"max_connection_age": "1h", "max_connection_age_jitter": 0}, {}, (3600, 3600)),
        ({"max_connection_age": "1h"}, {"max_connection_age": "0s"}, (inf, inf)),
        ({"max_connection_age": "1h"}, {"max_connection_age": "10s", "max_connection_age_jitter": 0.5}, (5, 15)),
        ({}, {"max_connection_age": "10s"}, (9, 11)),
    ],
)
async def test_a_listener_may_have_its_own_age(
    net: Any, limits: Any, listener: Any, expected: tuple[float, float]
) -> None:
    """What it leaves out is that of the limits; 0 is never."""
    found = ages(net, listener=listener, **limits)

    (connection,) = grown_up(found, 1)

    assert expected[0] <= connection.drain_at <= expected[1]


@pytest.mark.parametrize("workers", [1, 4, 200])
@pytest.mark.parametrize("interval", [1.0, 0.25])
async def test_fifty_begin_in_a_second_in_all_workers(net: Any, workers: int, interval: float) -> None:
    """Of a thousand that are due none is forgotten, the oldest go first, and no pause is made up for."""
    found = ages(net, workers, max_connection_age="10s", max_connection_age_jitter=0.5)
    waiting = grown_up(found, 1000 // workers)
    begun: list[tuple[float, float]] = []
    now = 3600.0
    taken = found.take(waiting, now, interval)  # after an hour without a look
    while taken or len(begun) < 1000 // workers:
        begun += [(now, connection.drain_at) for connection in taken]
        for connection in taken:
            drain(connection, now)
        now += interval
        taken = found.take(waiting, now, interval)

    most = max(sum(1 for when, _ in begun if since <= when < since + 1) for since, _ in begun)
    assert most <= max(1, MOST / workers) + 1
    assert len(begun) / (now - 3600) == pytest.approx(MOST / workers, rel=0.1)
    assert [due for _, due in begun] == sorted(due for _, due in begun)
    assert {connection.said[1] for connection in waiting} == {"max_age"}


async def test_what_ends_anyway_is_left_alone(net: Any) -> None:
    """A connection that closes, drains or has work put aside is not drained for its age."""
    found = ages(net, max_connection_age="10s")
    closing, leaving, busy, young, old = connections = grown_up(found, 5)
    closing.phase, leaving.leaving, busy.turn = ConnectionPhase.LINGERING, (), object()
    young.drain_at = 5000.0

    assert found.take(connections, 1000.0, 1.0) == [old]


async def test_no_age_costs_no_look(net: Any) -> None:
    """Without an age the connections are not even gone over."""
    assert ages(net).take(None, 1000.0, 1.0) == []


# ---- on sockets


def plain_sessions() -> Callable[..., Session]:
    """Makes sessions without rules."""
    shared = ClusterState()
    return lambda listener, facts, node: Session(Plan(ConnectionSettings(advertise=False)), shared, facts, 1)


class FalseClock:
    """Clock of the sweep, which begins far from all time-outs."""

    def __init__(self, running: Any, patch: pytest.MonkeyPatch) -> None:
        self.sweep, self.now = running.server.sweep, monotonic() + 1
        patch.setattr(timeouts, "monotonic", lambda: self.now)
        self.sweep.last = self.now

    def look(self, seconds: float) -> None:
        """Look at all connections after that time."""
        self.now += seconds
        self.sweep.run()


AGED = {"max_connection_age": "1h", "max_connection_age_jitter": 0, "idle_timeout": "10h"}


async def test_an_old_connection_ends_between_two_exchanges(
    net: Any, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle one gets FIN at once; one whose Fetch waits gets its answer first, and the request behind that is not
    taken. It is counted, and no line of the log."""
    broker = await net.open_broker()
    config = net.config(broker.port, limits=AGED)
    async with net.serving(config, plain_sessions(), driver) as running:
        waiting, idle = await running.client(), await running.client()
        await waiting.send_all(net.request(1))
        upstream = await broker.accept()
        await net.exactly(upstream, 40)
        await running.until(lambda: len(running.server.connections) == 2)
        clock = FalseClock(running, monkeypatch)
        clock.look(3500)
        assert running.causes() == {}
        clock.look(200)
        assert await idle.receive_some() == b""
        await idle.aclose()
        await waiting.send_all(net.request(2))
        clock.look(1000)
        await upstream.send_all(net.response(1))

        assert await net.answer(waiting) == 1
        assert await waiting.receive_some() == b""
        assert await upstream.receive_some() == b""
        await waiting.aclose()
        await running.settled()
        assert running.causes() == {"max_age": 2}
        ends = [entry for entry in running.log if entry["event"] == "connection closed"]
        assert {entry["log_level"] for entry in ends} == {"debug"}
        assert all(entry["reason"].startswith("the connection was 37") for entry in ends)


async def test_an_answer_that_never_comes_is_waited_for_as_long_as_for_traffic(
    net: Any, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is not read any more, so nobody sees that it has gone: idle_timeout ends the connection."""
    broker = await net.open_broker()
    config = net.config(broker.port, limits=AGED | {"idle_timeout": "100s"})
    async with net.serving(config, plain_sessions(), driver) as running:
        client = await running.client()
        await client.send_all(net.request(1))
        await net.exactly(await broker.accept(), 40)
        (connection,) = running.server.connections
        clock = FalseClock(running, monkeypatch)
        clock.look(3700)
        assert connection.leaving is not None
        await client.aclose()
        clock.look(90)
        assert running.causes() == {}
        clock.look(20)
        await running.settled()

        assert running.causes() == {"idle_timeout": 1}


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
async def test_no_answer_is_lost(net: Any, driver: str, secured: bool, tmp_path: Path) -> None:
    """Clients that keep four requests in flight see connections end again and again: the broker has seen no request on
    them whose answer they have not, and each of them reads on to an end in order."""
    seen: list[int] = []
    answered: list[int] = []
    authority = Authority(tmp_path)
    listener = {"tls": {"cert": str(authority.issue("localhost"))}} if secured else {}
    context = client_context(authority.file)
    limits = {"max_connection_age": 0.08, "max_connection_age_jitter": 0.5}

    async def note(stream: Any) -> None:
        async with stream:
            with suppress(EOFError):
                while True:
                    number = int.from_bytes((await net.exactly(stream, 40))[8:12], "big")
                    seen.append(number)
                    await stream.send_all(net.response(number))

    broker = await net.open_broker()

    async def accept(nursery: trio.Nursery) -> None:
        while True:
            nursery.start_soon(note, await broker.accept())

    async def use(running: Any, first: int) -> None:
        for turn in range(first, first + 1_000_000 * ROUNDS, 1_000_000):
            stream: Any = await running.client()
            if secured:
                stream = trio.SSLStream(stream, context, server_hostname="localhost", https_compatible=True)
            async with stream:
                await ask_until_the_end(stream, turn)

    async def ask_until_the_end(stream: Any, number: int) -> None:
        with suppress(EOFError):  # an end in order: a reset would be another error
            await stream.send_all(b"".join(net.request(number + ahead) for ahead in range(4)))
            while True:
                answered.append(await net.answer(stream))
                number += 1
                await stream.send_all(net.request(number + 3))

    config = net.config(broker.port, limits=limits, listener=listener)
    async with net.serving(config, plain_sessions(), driver) as running, trio.open_nursery() as nursery:
        nursery.start_soon(accept, nursery)
        async with trio.open_nursery() as clients:
            for client in range(6):
                clients.start_soon(use, running, client * 100_000_000)
        await running.settled()
        nursery.cancel_scope.cancel()

        assert running.causes() == {"max_age": 6 * ROUNDS}
    assert len(answered) > 6 * ROUNDS
    assert sorted(seen) == sorted(answered)
