"""Sessions with live rules on real sockets: waiting frames, ends of either side, drains and time-outs."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import trio

from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import TrafficShape
from kproxy.rules.rule_set import RuleSet
from kproxy.runtime.connection import Connection
from kproxy.session.commands import CLIENT, CloseBoth, Reshape, Send, Shut, WakeAt
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session import Session
from kproxy.session.shared import ClusterState
from tests.support.certificates import Authority, client_context
from tests.support.passing_session import PassingSession

pytestmark = [pytest.mark.trio, pytest.mark.filterwarnings("error")]


def sessions(rules: RuleSet) -> Callable[..., Session]:
    """Makes sessions with these live rules, which are at work from now on."""
    shared = ClusterState()
    for running in rules.live:
        running.restart(monotonic())

    def make(listener: str, facts: Any, node: int | None) -> Session:
        return Session(Plan(ConnectionSettings(advertise=False), rules.live), shared, facts, 1)

    return make


DELAY = "rules: [{name: slow, kind: delay, delay: 50ms, at: AT}]"
HELD = "rules: [{name: wait, kind: delay, delay: 0ms, at: request, when: {hold: true}}]"


async def test_a_delayed_answer_outlives_its_broker(net: Any, driver: str) -> None:
    """The broker answers and closes at once; the client gets the answer, and then the end."""
    broker = await net.open_broker()
    rules = parse_rules(DELAY.replace("AT", "response"))
    async with (
        net.serving(net.config(broker.port), sessions(rules), driver) as running,
        await running.client() as client,
    ):
        await client.send_all(net.request(1))
        upstream = await broker.accept()
        await net.exactly(upstream, 40)
        await upstream.send_all(net.response(1))
        upstream.socket.close()

        assert await net.answer(client) == 1
        assert await client.receive_some() == b""
        await running.settled()
        assert running.causes() == {"broker_closed": 1}


async def test_a_delayed_request_outlives_the_end_of_what_its_client_says(net: Any, driver: str) -> None:
    """The client sends FIN behind a delayed request; the broker gets the request before any end, and the client its
    answer."""
    broker = await net.open_broker()
    rules = parse_rules(DELAY.replace("AT", "request"))
    async with (
        net.serving(net.config(broker.port), sessions(rules), driver) as running,
        await running.client() as client,
    ):
        await client.send_all(net.request(1))
        await client.send_eof()
        upstream = await broker.accept()
        assert len(await net.exactly(upstream, 40)) == 40
        await upstream.send_all(net.response(1))

        assert await net.answer(client) == 1
        await running.settled()
        assert running.causes() == {"client_closed": 1}


async def test_a_drain_ends_connections_with_held_requests(net: Any, driver: str) -> None:
    """A rule holds a request that nobody will release: the drain does not wait for it."""
    broker = await net.open_broker()
    rules = parse_rules(HELD)
    async with (
        net.serving(net.config(broker.port), sessions(rules), driver) as running,
        await running.client() as client,
    ):
        await client.send_all(net.request(1))
        await running.until(lambda: rules.live[0].held)
        running.server.drain()
        assert await client.receive_some() == b""
        await running.settled()

        assert running.causes() == {"drained": 1}
        assert not rules.live[0].held


async def test_a_client_that_is_not_read_is_not_idle(net: Any, driver: str) -> None:
    """A muted connection outlives idle and header time-outs: its times begin anew when it is read again."""
    broker = await net.open_broker()
    rules = parse_rules("rules: [{name: w, kind: throttle_time, delay: 400ms, mute: true}]")
    config = net.config(broker.port, limits={"idle_timeout": 0.2, "header_timeout": 0.2})
    async with trio.open_nursery() as nursery, net.serving(config, sessions(rules), driver) as running:
        nursery.start_soon(broker.obey)
        async with await running.client() as client:
            before = monotonic()
            await client.send_all(net.request(1))
            assert await net.answer(client) == 1
            await client.send_all(net.request(2)[:9])
            await client.send_all(net.request(2)[9:])
            assert await net.answer(client) == 2
            assert monotonic() - before > 0.4
        nursery.cancel_scope.cancel()


class Shutting(PassingSession):
    """At the first bytes it sends `size` bytes and its FIN, and stays open."""

    size = 5_000_000

    def from_client(self, view: memoryview, n: int, now: float) -> int:
        if not self.dialled:
            self.dialled = True
            self.commands += [Send(CLIENT, bytes(self.size)), Shut(CLIENT)]
        return 0

    def eof(self, side: int, now: float) -> None:
        self.commands.append(CloseBoth("stalled", "its client has gone"))


async def test_a_half_close_comes_behind_what_is_queued(net: Any, driver: str) -> None:
    """The client reads slowly: all bytes come, then the FIN, and what it sends is still taken."""
    async with net.serving(net.config(9), lambda *args: Shutting(), driver) as running:
        async with await running.client() as client:
            await client.send_all(b"x")
            got = 0
            while more := await client.receive_some(100_000):
                got += len(more)
            assert got == Shutting.size
            await client.send_all(bytes(1000))
            assert running.server.connections
        await running.settled()
        assert running.causes() == {"stalled": 1}


async def test_a_half_close_under_tls_says_so(net: Any, driver: str, tmp_path: Path) -> None:
    """close_notify and FIN come behind what is queued, and what the client sends afterwards is thrown away."""
    authority = Authority(tmp_path)
    listener = {"tls": {"cert": str(authority.issue("127.0.0.1"))}}
    async with net.serving(net.config(9, listener=listener), lambda *args: Shutting(), driver) as running:
        client = trio.SSLStream(await running.client(), client_context(authority.file), server_hostname="127.0.0.1",
                                https_compatible=False)  # fmt: skip
        await client.send_all(b"x")
        got = 0
        while more := await client.receive_some(100_000):
            got += len(more)
        assert got == Shutting.size
        assert running.server.connections
        await client.transport_stream.send_all(bytes(2000))
        client.transport_stream.socket.close()
        await running.settled()
        assert running.causes() == {"stalled": 1}


async def test_a_reset_under_tls_is_one(net: Any, driver: str, tmp_path: Path) -> None:
    """RST without a close_notify: the client sees a broken connection, not an end."""

    class Resetting(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            self.commands.append(CloseBoth("rule", "cut", reset=True))
            return 0

    authority = Authority(tmp_path)
    listener = {"tls": {"cert": str(authority.issue("127.0.0.1"))}}
    async with net.serving(net.config(9, listener=listener), lambda *args: Resetting(), driver) as running:
        client = trio.SSLStream(await running.client(), client_context(authority.file), server_hostname="127.0.0.1")
        await client.send_all(b"x")
        with pytest.raises((trio.BrokenResourceError, ssl.SSLError)):
            await client.receive_some()
        await running.settled()
        assert running.causes() == {"rule": 1}


class Waiting(PassingSession):
    """Wants to be called in an hour, and its line cut after ten bytes and in an hour."""

    def begin(self, now: float) -> None:
        self.commands += [WakeAt(now + 3600), Reshape((TrafficShape(max_bytes=10, age=3600.0),))]

    def from_client(self, view: memoryview, n: int, now: float) -> int:
        self.commands.append(Send(CLIENT, bytes(10)))
        return 0


async def test_an_ended_connection_leaves_no_timers(net: Any, driver: str) -> None:
    """What it wanted done in an hour does not keep it in memory until then; the limit of bytes is met to the byte."""
    async with net.serving(net.config(9), lambda *args: Waiting(), driver) as running:
        timers = running.server.reactor._deadlines
        async with await running.client() as client:
            await client.send_all(b"x")
            assert await net.exactly(client, 10) == bytes(10)
            assert await client.receive_some() == b""
        await running.settled()
        await running.until(
            lambda: not any(one.call is not None for when, _, one in timers._heap if when > 3000 + monotonic())
        )
        assert running.causes() == {"rule": 1}


async def test_calls_after_the_end_do_nothing(net: Any, driver: str) -> None:
    """Timers, releases and cuts may come when the connection is closed already."""
    seen: list[Connection] = []

    class Remembered(PassingSession):
        def begin(self, now: float) -> None:
            seen.append(self.owner)

    async with net.serving(net.config(9), lambda *args: Remembered(), driver) as running:
        async with await running.client():
            await running.until(lambda: seen)
        await running.settled()
        (connection,) = seen
        before = running.causes()
        for call in (connection.tick, connection.released, lambda: connection.cut("fin", "late"),
                     lambda: connection.cut("rst", "late"), lambda: connection.drain(0.0)):  # fmt: skip
            call()
        assert running.causes() == before
        assert connection.closed
