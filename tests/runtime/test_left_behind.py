"""A connection that is over is gone at once, whatever is under way, and leaves nothing to the garbage collector."""

from __future__ import annotations

import weakref
from time import monotonic
from typing import Any

import pytest

from kproxy.record.exchange import Depth, ObservedExchange, Who
from kproxy.rules.document.read import parse_rules
from kproxy.runtime import timeouts
from kproxy.session.commands import BROKER, CloseBoth, Dial, Send, Wake
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session import Session
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import request, response
from tests.support.passing_session import PassingSession
from tests.support.tapped_session import Hungry

pytestmark = [pytest.mark.trio, pytest.mark.filterwarnings("error")]
METADATA = 3
RULES = {
    "none": "rules: []",
    "renamed": "rules: [{name: names, kind: rename_topic, topics: {orders: prod.orders}}]",
    "live": "rules: [{name: slow, kind: delay, delay: 1ms}]",
    "waiting": "rules: [{name: slow, kind: delay, delay: 1ms, when: {every: 100}}]",
    "for others": "rules: [{name: slow, kind: delay, delay: 1ms, match: {topic: others}}]",
}


class Forgetful(Hungry):
    """A sink that keeps nothing of what it is told."""

    def take(self, seen: ObservedExchange) -> None:
        pass

    take_behind = take

    def opened(self, who: Who, now: float) -> None:
        pass

    closed = opened


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("rules", RULES)
async def test_a_closed_connection_is_gone(rules: str, watched: bool, net: Any, driver: str) -> None:
    """Without a garbage collection, whether rules and watchers looked at it or not."""
    broker = await net.open_broker()
    made, shared = parse_rules(RULES[rules]), ClusterState()
    for running in made.live:
        running.restart(monotonic())
    sessions: list[weakref.ref[Session]] = []

    def session(listener: str, facts: Any, node: int | None) -> Session:
        bound = made.bind(facts)
        one = Session(Plan(ConnectionSettings.of(bound, advertise=False), bound.live), shared, facts, 1, bound)
        sessions.append(weakref.ref(one))
        return one

    async with net.serving(net.config(broker.port), session, driver) as running:
        if watched:
            running.server.taps.fanout.add(Forgetful(most=Depth.SKETCH))
        async with await running.client() as client:
            asked = request(METADATA, 12, 7)
            await client.send_all(asked)
            upstream = await broker.accept()
            await net.exactly(upstream, len(asked))
            await upstream.send_all(response(METADATA, 12, 7))
            assert await net.answer(client) == 7
            (connection,) = (weakref.ref(one) for one in running.server.connections)
            whole = [connection, *map(weakref.ref, (connection().client, connection().broker))]
            whole += [weakref.ref(lane) for lane in (sessions[0]().requests, sessions[0]().responses)]
            assert all(one() is not None for one in whole)
        await running.settled()

        assert [one() for one in [*whole, *sessions]] == [None] * (len(whole) + 1)


async def test_an_end_while_the_first_bytes_leave(net: Any, driver: str) -> None:
    """What waited for the broker is sent, which wakes the very session, and that wants a reset: all within one call."""

    class Weary(PassingSession):
        def from_client(self, view: memoryview, n: int, now: float) -> int:
            self.commands += [Send(BROKER, b"x" * n, token=7), Dial()]
            return 0

        def sent(self, token: int, now: float) -> None:
            self.commands.append(Wake((self,)))

        def granted(self, now: float) -> None:
            self.commands.append(CloseBoth("weary", "it has had enough", reset=True))

    broker = await net.open_broker()
    config = net.config(broker.port, cluster={"bootstrap": [f"localhost:{broker.port}"]})  # a name: the dial takes time
    async with net.serving(config, lambda *args: Weary(), driver) as running, await running.client() as client:
        await client.send_all(b"0123456789")
        await running.settled()

        assert running.causes() == {"weary": 1}
        assert [line for line in running.log if line["log_level"] == "error"] == []


async def test_an_end_that_ends_another_one(net: Any, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within one look at all connections: the second is over when its turn comes."""
    monkeypatch.setattr(timeouts, "LINGER", 0.05)
    sessions: list[PassingSession] = []

    class Attached(PassingSession):
        def end(self, now: float) -> None:
            self.commands.append(Wake(tuple(one for one in sessions if one is not self)))

        def granted(self, now: float) -> None:
            self.commands.append(CloseBoth("bereft", "the other one has gone", reset=True))

    def session(*args: Any) -> PassingSession:
        sessions.append(Attached())
        return sessions[-1]

    config = net.config(9, limits={"idle_timeout": "100ms"})
    async with net.serving(config, session, driver) as running, await running.client(), await running.client():
        await running.until(lambda: len(running.server.connections) == 2)
        await running.settled()

        assert running.causes() == {"idle_timeout": 2}  # what was said first about why stands
        assert [line for line in running.log if line["log_level"] == "error"] == []
