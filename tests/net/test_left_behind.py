"""A connection that is over is gone at once, and leaves nothing that refers to itself to the garbage collector."""

from __future__ import annotations

import weakref
from time import monotonic
from typing import Any

import pytest

from kproxy.core.plan import Bound, Plan
from kproxy.core.session import Session, Shared
from kproxy.rules.document import parse_rules
from kproxy.testing.dialogue import request, response
from kproxy.testing.tapped import Hungry
from kproxy.watch.seen import Depth, Seen, Who

pytestmark = [pytest.mark.trio, pytest.mark.filterwarnings("error")]

METADATA = 3
RULES = {
    "none": "rules: []",
    "renamed": "rules: [{name: names, kind: rename_topic, topics: {orders: prod.orders}}]",
    "live": "rules: [{name: slow, kind: delay, delay: 1ms}]",
}


class Forgetful(Hungry):
    """A sink that keeps nothing of what it is told."""

    def take(self, seen: Seen) -> None:
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
    made, shared = parse_rules(RULES[rules]), Shared()
    for running in made.live:
        running.restart(monotonic())
    sessions: list[weakref.ref[Session]] = []

    def session(listener: str, facts: Any, node: int | None) -> Session:
        bound = made.bind(facts)
        one = Session(Plan(Bound(bound.names, advertise=False), bound.live), shared, facts, 1, bound)
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
