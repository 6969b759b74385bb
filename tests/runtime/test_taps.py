"""Taps: what sinks are told of connections, while there are sinks."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

import pytest
import trio

from kproxy.record.exchange import Depth, ObservedExchange
from kproxy.rules.document.read import parse_rules
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session import Session
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import request, response
from tests.support.tapped_session import Hungry

pytestmark = [pytest.mark.trio, pytest.mark.filterwarnings("error")]
METADATA, HEARTBEAT = 3, 12
SLOW = """
rules:
  - {name: slow, kind: delay, match: {api: Heartbeat}, delay: 50ms}
  - {name: broken, kind: error, match: {api: Heartbeat}, when: {nth: 2}, error: COORDINATOR_NOT_AVAILABLE}
"""


def sessions(rules: str = "", names: bool = False) -> Callable[..., Session]:
    made = parse_rules(rules or "rules: []")
    shared, numbers = ClusterState(), iter(range(1, 100))
    for running in made.live:
        running.restart(monotonic())

    def make(listener: str, facts: Any, node: int | None) -> Session:
        bound = made.bind(facts)
        return Session(
            Plan(ConnectionSettings.of(bound, advertise=False), bound.live), shared, facts, next(numbers), bound
        )

    return make


@dataclass(eq=False)
class Sink(Hungry):
    """Wants all fields of the client's side, and remembers what it is told."""

    broker_side: bool = False
    most: Depth = Depth.SKETCH


async def exchange(net: Any, client: Any, upstream: Any, number: int, key: int = HEARTBEAT, **answer: Any) -> None:
    """One request and its answer, all the way."""
    asked = request(key, 4 if key == HEARTBEAT else 12, number)
    await client.send_all(asked)
    await net.exactly(upstream, len(asked))
    await upstream.send_all(response(key, 4 if key == HEARTBEAT else 12, number, **answer))
    assert await net.answer(client) == number


async def test_a_sink_is_told_of_connections_and_exchanges(net: Any, driver: str) -> None:
    """Open, each exchange, and the end with its cause and totals."""
    broker, sink = await net.open_broker(), Sink()
    async with net.serving(net.config(broker.port), sessions(), driver) as running:
        running.server.taps.fanout.add(sink)
        async with await running.client() as client:
            asked = request(HEARTBEAT, 4, 7)
            await client.send_all(asked)
            upstream = await broker.accept()
            await net.exactly(upstream, len(asked))
            await upstream.send_all(response(HEARTBEAT, 4, 7, error_code=27))
            assert await net.answer(client) == 7
        await running.settled()

    (seen,) = sink.seen
    assert (seen.api, seen.version, seen.correlation_id, seen.outcome, seen.client_id) == (
        "Heartbeat", 4, 7, "answered", "tester",
    )  # fmt: skip
    assert seen.response_body is not None
    assert seen.response_body["error_code"] == 27
    assert seen.request is not None
    assert seen.request.size == len(asked)
    assert seen.depth == "none"
    assert sink.open == sink.over == [seen.who]
    end = seen.who.end  # type: ignore[attr-defined]  # a live connection's
    assert (end.cause, end.requests, end.responses, end.request_bytes) == ("client_closed", 1, 1, len(asked))
    assert seen.who.broker == f"127.0.0.1:{broker.port}"


async def test_waits_and_rules_are_part_of_what_is_seen(net: Any, driver: str) -> None:
    """The first is delayed by a rule; the second answered in the broker's place."""
    broker, sink = await net.open_broker(), Sink()
    async with net.serving(net.config(broker.port), sessions(SLOW), driver) as running:
        running.server.taps.fanout.add(sink)
        async with await running.client() as client:
            await client.send_all(request(HEARTBEAT, 4, 1))
            upstream = await broker.accept()
            await net.exactly(upstream, len(request(HEARTBEAT, 4, 1)))
            await upstream.send_all(response(HEARTBEAT, 4, 1))
            assert await net.answer(client) == 1
            await client.send_all(request(HEARTBEAT, 4, 2))
            assert await net.answer(client) == 2
        await running.settled()

    first, second = sink.seen
    assert (first.rules, first.answered_by_rule) == (["slow"], False)
    assert first.rule_wait[0] >= 0.05
    assert first.rule_wait[1] == 0
    assert (second.rules, second.answered_by_rule) == (["slow", "broken"], True)


async def test_a_sink_that_comes_late_is_told_of_connections_that_are_open(net: Any, driver: str) -> None:
    """Of what is in flight then, only the answer is seen; whatever comes later is seen whole."""
    broker, sink = await net.open_broker(), Sink()
    async with net.serving(net.config(broker.port), sessions(), driver) as running, await running.client() as client:
        asked = request(HEARTBEAT, 4, 1)
        await client.send_all(asked)
        upstream = await broker.accept()
        await net.exactly(upstream, len(asked))
        running.server.taps.fanout.add(sink)
        await upstream.send_all(response(HEARTBEAT, 4, 1))
        assert await net.answer(client) == 1
        await exchange(net, client, upstream, 2)

        assert [(one.correlation_id, one.request is not None, one.response is not None) for one in sink.seen] == [
            (1, False, True),
            (2, True, True),
        ]
        assert len(sink.open) == 1


async def test_late_in_the_middle_of_a_frame(net: Any, driver: str) -> None:
    """The frame under way is not seen, and nothing after it is misread."""
    broker, sink = await net.open_broker(), Sink()
    async with net.serving(net.config(broker.port), sessions(), driver) as running, await running.client() as client:
        asked = request(HEARTBEAT, 4, 1)
        await client.send_all(asked[:20])
        upstream = await broker.accept()
        await net.exactly(upstream, 20)
        running.server.taps.fanout.add(sink)
        await client.send_all(asked[20:])
        await net.exactly(upstream, len(asked) - 20)
        await upstream.send_all(response(HEARTBEAT, 4, 1))
        assert await net.answer(client) == 1
        await exchange(net, client, upstream, 2)

        assert [one.correlation_id for one in sink.seen if one.request is not None] == [2]
        assert sink.seen[-1].outcome == "answered"


async def test_the_brokers_side_has_what_names_became(net: Any, driver: str) -> None:
    """A rename: the client's side says orders, the broker's prod.orders."""
    broker, sink = await net.open_broker(), Sink(broker_side=True)
    rename = sessions("rules: [{name: r, kind: rename_topic, topics: {orders: prod.orders}}]")
    async with net.serving(net.config(broker.port), rename, driver) as running, await running.client() as client:
        running.server.taps.fanout.add(sink)
        await client.send_all(request(METADATA, 9, 1, topics=[{"name": "orders"}]))
        upstream = await broker.accept()
        await net.exactly(upstream, len(request(METADATA, 9, 1, topics=[{"name": "prod.orders"}])))
        topic = {"name": "prod.orders", "partitions": []}
        await upstream.send_all(response(METADATA, 9, 1, topics=[topic]))
        assert await net.answer(client) == 1

    front, behind = sink.seen[0], sink.behind[0]
    assert front.request_body is not None and behind.request_body is not None
    assert front.request_body["topics"][0]["name"] == "orders"
    assert behind.request_body["topics"][0]["name"] == "prod.orders"
    assert front.response_body is not None and behind.response_body is not None
    assert front.response_body["topics"][0]["name"] == "orders"
    assert behind.response_body["topics"][0]["name"] == "prod.orders"
    assert front.who.broker_topic("orders") == "prod.orders"
    assert front.who.broker_topic("clicks") is None


async def test_when_the_last_sink_has_gone_nothing_is_watched(net: Any, driver: str) -> None:
    """New connections have no tap, and those of open ones are gone."""
    broker, sink = await net.open_broker(), Sink()
    async with net.serving(net.config(broker.port), sessions(), driver) as running, await running.client() as client:
        taps = running.server.taps
        taps.fanout.add(sink)
        await client.send_all(request(HEARTBEAT, 4, 1))
        upstream = await broker.accept()
        await net.exactly(upstream, len(request(HEARTBEAT, 4, 1)))
        await upstream.send_all(response(HEARTBEAT, 4, 1))
        assert await net.answer(client) == 1
        taps.fanout.remove(sink)
        await exchange(net, client, upstream, 2)
        async with await running.client():
            await running.until(lambda: len(running.server.connections) == 2)
            assert not taps.by_connection

    assert [one.correlation_id for one in sink.seen] == [1]


async def test_a_sink_that_raises_stops_nothing(net: Any, driver: str) -> None:
    """Traffic and other sinks go on; it is logged once."""

    class Broken(Sink):
        def take(self, seen: ObservedExchange) -> None:
            raise RuntimeError("a mistake")

    broker, sink = await net.open_broker(), Sink()
    async with net.serving(net.config(broker.port), sessions(), driver) as running, await running.client() as client:
        running.server.taps.fanout.add(Broken())
        running.server.taps.fanout.add(sink)
        await client.send_all(request(HEARTBEAT, 4, 1))
        upstream = await broker.accept()
        await net.exactly(upstream, len(request(HEARTBEAT, 4, 1)))
        await upstream.send_all(response(HEARTBEAT, 4, 1))
        assert await net.answer(client) == 1
        await exchange(net, client, upstream, 2)

        assert len(sink.seen) == 2
        assert [entry["event"] for entry in running.log if entry["log_level"] == "error"] == [
            "bug in kproxy, a sink raised"
        ]


async def test_while_taps_are_shut_no_client_is_read(net: Any, driver: str) -> None:
    """What is in flight is answered, and reading goes on afterwards, on connections that came meanwhile, too."""
    broker, sink = await net.open_broker(), Sink()
    async with net.serving(net.config(broker.port), sessions(), driver) as running, await running.client() as client:
        taps = running.server.taps
        taps.fanout.add(sink)
        asked = request(HEARTBEAT, 4, 1)
        await client.send_all(asked)
        upstream = await broker.accept()
        await net.exactly(upstream, len(asked))
        taps.stop_reading()
        await upstream.send_all(response(HEARTBEAT, 4, 1))
        assert await net.answer(client) == 1
        await client.send_all(request(HEARTBEAT, 4, 2))
        async with await running.client() as other:
            await other.send_all(request(HEARTBEAT, 4, 3))
            with trio.move_on_after(0.1) as patience:
                await upstream.receive_some()
            assert patience.cancelled_caught
            assert broker.connections == 1

            taps.read_again()
            await net.exactly(upstream, len(asked))
            second = await broker.accept()
            await net.exactly(second, len(asked))


async def test_what_kproxy_cuts_off_is_closed_and_what_a_client_leaves_is_unanswered(net: Any, driver: str) -> None:
    """Of two requests without an answer the audit tells who was to blame."""
    broker, sink = await net.open_broker(), Sink()
    async with net.serving(net.config(broker.port), sessions(), driver) as running:
        running.server.taps.fanout.add(sink)
        for number in (1, 2):
            client = await running.client()
            await client.send_all(request(HEARTBEAT, 4, number))
            await broker.accept()
            await running.until(
                lambda: (
                    running.server.connections
                    and any(connection.session.awaited for connection in running.server.connections)
                )
            )
            if number == 1:
                running.server.give_up("shutdown", "at once")
            else:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.socket.close()
            await running.settled()

    assert [seen.outcome for seen in sink.seen] == ["closed", "unanswered"]


async def test_what_a_client_sends_after_the_end_stays_unseen(net: Any, driver: str) -> None:
    """The broker has closed, the client has its FIN and still sends: that is thrown away, also when sinks have come
    or gone since, and neither the session nor a sink is told of it."""
    broker, first, second = await net.open_broker(), Sink(), Sink()
    async with net.serving(net.config(broker.port), sessions(), driver) as running:
        fanout = running.server.taps.fanout
        fanout.add(first)
        async with await running.client() as client:
            await client.send_all(request(HEARTBEAT, 4, 1))
            upstream = await broker.accept()
            await net.exactly(upstream, len(request(HEARTBEAT, 4, 1)))
            await upstream.send_all(response(HEARTBEAT, 4, 1))
            assert await net.answer(client) == 1
            await upstream.aclose()
            assert await client.receive_some(1) == b""
            fanout.add(second)
            await client.send_all(request(HEARTBEAT, 4, 2))
        await running.settled()

    assert [seen.correlation_id for seen in first.seen] == [1]
    assert second.seen == []
    assert first.over[0].end.requests == 1  # type: ignore[attr-defined]  # a live connection's
