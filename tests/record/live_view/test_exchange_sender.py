"""Requests that are sent again, in the loop of the test: what is seen of them at full load, and what the loop has of
it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio

from kproxy.admin.exchange_sender import ExchangeSender
from kproxy.admin.kept import KeptExchanges
from kproxy.admin.problem import Problem
from kproxy.record.exchange import Depth
from kproxy.record.fanout import Fanout
from kproxy.record.filters import Filter
from kproxy.record.live_view.masks import ViewerMasks
from kproxy.record.live_view.sink import Viewer
from kproxy.record.live_view.watch import ViewWatch
from kproxy.rules.rule_set import RuleSet
from kproxy.runtime.listeners.listener import OwnClient, secured
from kproxy.tools.rehearse.dialogue import request, response
from tests.runtime import conftest as net_tools
from tests.runtime.test_taps import sessions
from tests.support.certificates import Authority, server_context
from tests.support.stretches import IN_BOTH_UNITS, Unit
from tests.support.tapped_session import Hungry

net = net_tools.net  # a fixture
METADATA, HEARTBEAT = 3, 12
LONGEST = {"lines": 100_000, "seconds": 0.05}
"""Limits of a step of a task."""


class Silence:
    """Traffic of which nobody asks anything."""

    def tallies(self) -> Any:
        return ()

    def under_way(self, before: float) -> Iterator[Any]:
        return iter(())


class Looking:
    """A server that somebody looks at, and a broker; `exchange` has one pass, and kept."""

    def __init__(self, net: Any, running: Any, broker: Any) -> None:
        self.net, self.running, self.broker, self.server = net, running, broker, running.server
        self.watch = ViewWatch(self.server.taps.fanout, self.server.reactor, Silence(), kept=1 << 26)
        self.watch.open(Viewer(Filter(""), 100, 0.0, lambda: None))
        kept = KeptExchanges(self.watch, True, self.server.reactor, ViewerMasks(RuleSet))
        self.sender = ExchangeSender(self.server, kept)

    async def exchange(self, frame: bytes, answer: bytes) -> int:
        async with await self.running.client() as client:
            await client.send_all(frame)
            await self.answer(len(frame), answer)
            await self.net.answer(client)
        return self.watch.ring.next - 1

    async def answer(self, size: int, answer: bytes) -> bytes:
        """Have the broker answer the next request; return that."""
        upstream = await self.broker.accept()
        got = await self.net.exactly(upstream, size)
        await upstream.send_all(answer[:4] + got[8:12] + answer[8:])
        return bytes(got)


@pytest.fixture
def looking(net: Any) -> Any:
    @asynccontextmanager
    async def make() -> AsyncIterator[Looking]:
        broker = await net.open_broker()
        async with net.serving(net.config(broker.port), sessions()) as running:
            yield Looking(net, running, broker)

    return make


BEAT = request(HEARTBEAT, 4, 7, group_id="billing")
BEATEN = response(HEARTBEAT, 4, 7, error_code=27)


@pytest.mark.trio
async def test_it_is_seen_where_there_is_no_time_to_look(looking: Any) -> None:
    """And nothing else is, whatever the load is."""
    async with looking() as place:
        number = await place.exchange(BEAT, BEATEN)
        place.watch.budget.left, place.watch.budget.looking = -1_000.0, False  # so that no tick fills it
        place.watch.turned(False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(place.answer, len(BEAT), BEATEN)
            sent = await place.sender.send(number, "Heartbeat")
        before = len(place.watch.ring)
        await place.exchange(BEAT, BEATEN)

        assert (sent.outcome, sent.again_of) == ("answered", f"0-{number}")
        assert sent.id is not None
        kept = place.watch.ring.get(int(sent.id.removeprefix("0-")))
        assert kept.seen.response_body["error_code"] == 27
        assert kept.again_of == f"0-{number}"
        assert len(place.watch.ring) == before == 2
        assert not place.server.taps.awaited
        assert not place.watch.sink.resent


@IN_BOTH_UNITS
@pytest.mark.trio
async def test_long_exchange_is_sent_again_in_short_steps(looking: Any, unit: Unit) -> None:
    """Request and response have the maximum length of a kept frame. A thread reads them."""
    topics = [{"name": f"t{at}"} for at in range(10_000)]
    asked = request(METADATA, 4, 7, topics=topics, allow_auto_topic_creation=False)
    answered = response(METADATA, 4, 7, topics=[{"name": one["name"]} for one in topics])
    assert len(asked) > 60_000
    async with looking() as place:
        number = await place.exchange(asked, answered)

        async def send() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(place.answer, len(asked), answered)
                sent = await place.sender.send(number, "")
            assert sent.outcome == "answered"

        await unit.check_steps(send, turns=False, longest=LONGEST[unit.name])


@pytest.mark.trio
async def test_who_waits_no_more_leaves_nothing(looking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is closed, and the place is free again; without an answer the wait ends by itself."""
    async with looking() as place:
        number = await place.exchange(BEAT, BEATEN)
        with trio.move_on_after(0.2) as scope:
            await place.sender.send(number, "Heartbeat")
        assert scope.cancelled_caught
        assert place.sender.busy == 0
        await place.running.until(lambda: not place.server.connections)
        assert not place.server.taps.awaited
        assert not place.watch.sink.resent

        monkeypatch.setattr("kproxy.admin.exchange_sender.PATIENCE", 0.2)
        sent = await place.sender.send(number, "Heartbeat")
        assert (sent.outcome, sent.reason) == ("unanswered", "no answer in 0.2 s")
        kept = place.watch.ring.get(int(sent.id.removeprefix("0-")))
        assert (kept.over, kept.seen.outcome) == (True, "unanswered")


@pytest.mark.trio
async def test_limits_hold_for_it(looking: Any) -> None:
    """As for clients."""
    async with looking() as place:
        number = await place.exchange(BEAT, BEATEN)
        place.server.draining = True
        with pytest.raises(Problem, match="kproxy is shutting down") as refused:
            await place.sender.send(number, "Heartbeat")
        assert refused.value.code == "not_let_in"
        place.server.draining = False
        assert place.sender.busy == 0


# ---- parts of it


def test_all_sinks_are_steady_for_some() -> None:
    """Those that come and go later, too."""
    fanout, steady, sampler = Fanout(structlog.get_logger()), Hungry(), Hungry(most=Depth.SKETCH)
    fanout.add_sampler(sampler, lambda seconds: None)
    certain = fanout.unsampled()
    fanout.set_sampling(False)
    assert (fanout.sinks, certain.sinks, certain.steady) == ((), (sampler,), (sampler,))
    fanout.add(steady)
    assert (fanout.sinks, certain.sinks) == ((steady,), (steady, sampler))
    assert certain.picture("main") is fanout.picture("main")
    fanout.remove(sampler)
    assert certain.sinks == (steady,)
    assert certain is fanout.unsampled()


def test_only_its_own_certificate_is_believed(tmp_path: Path) -> None:
    """Not another one of the same authority."""
    authority = Authority(tmp_path)
    own, other = authority.issue("127.0.0.1", file="own.pem"), authority.issue("127.0.0.1", file="other.pem")
    for shown, good in ((own, True), (other, False)):
        client = OwnClient()

        def serve(shown: Path = shown, client: OwnClient = client) -> None:
            with suppress(OSError), server_context(shown).wrap_socket(client.far, server_side=True) as sock:
                sock.recv(1)  # fails if the client rejected the certificate

        thread = threading.Thread(target=serve)
        thread.start()
        config: Any = type("Tls", (), {"cert": str(own)})
        if good:
            secured(client.sock, config, None).close()
        else:
            with pytest.raises(OSError, match="another certificate"):
                secured(client.sock, config, None)
        thread.join(60)
        client.sock.close()
