"""Waiting for a rule from tests with an event loop, which goes on meanwhile."""

from __future__ import annotations

import asyncio

import pytest
import trio
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from kproxy.testing.inject import Kproxy

WRITES = {"api": "Produce", "topic": "orders"}


@pytest.mark.asyncio
async def test_asyncio(kproxy: Kproxy) -> None:
    """A client of the same loop is held, and let go when the test has seen that."""
    async with AIOKafkaProducer(bootstrap_servers=kproxy.bootstrap_servers, metadata_max_age_ms=500) as producer:
        with kproxy.hold(match=WRITES, when={"once": True}) as hold:
            sending = asyncio.create_task(producer.send_and_wait("orders", b"1"))
            await hold.until()
            assert not sending.done()
            hold.resume()
            await sending

    assert hold.applied == 1
    assert [record.value for write in kproxy.exchanges(**WRITES) for record in write.records] == [b"1"]


@pytest.mark.trio
async def test_trio(kproxy: Kproxy) -> None:
    """The same in trio, with a client that has threads of its own."""
    producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, "log_level": 0})
    with kproxy.hold(match=WRITES, when={"once": True}) as hold:
        producer.produce("orders", b"1")
        with trio.fail_after(60):
            await hold.until()
            await kproxy.until(hold, count="matched")
        assert hold.counters == (1, 1, 0)
        hold.resume()
        assert await trio.to_thread.run_sync(producer.flush, 20) == 0

    assert hold.applied == 1


@pytest.mark.trio
async def test_a_wait_in_trio_can_be_cancelled(kproxy: Kproxy) -> None:
    """And one that is over without a hit says what there was."""
    rule = kproxy.inject("delay", delay=0)
    with trio.move_on_after(0.01) as scope:
        await rule.until(timeout=60)
    assert scope.cancelled_caught

    with pytest.raises(AssertionError, match='"delay 1" has not fired 2 times within 0 s'):
        await rule.until(hits=2, timeout=0)


@pytest.mark.asyncio
async def test_calls_that_stop_the_loop_do_not_stop_the_proxy(kproxy: Kproxy) -> None:
    """A blocking client in an asynchronous test is still served, and its rule counted."""
    producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, "log_level": 0})
    rule = kproxy.inject("delay", delay="5ms", match=WRITES)
    producer.produce("orders", b"1")

    assert producer.flush(20) == 0
    assert rule.wait().applied == 1


def test_a_rule_that_is_removed_while_somebody_waits(kproxy: Kproxy) -> None:
    """Whoever waits is told that it is gone."""
    rule = kproxy.inject("delay", delay=0)
    waiting = kproxy.engine.reached(rule.name, 1, "fired", 60)

    rule.remove()

    with pytest.raises(Exception, match='unknown rule "delay 1"'):
        waiting.result(60)
    with pytest.raises(AssertionError, match="has not fired once within"):
        rule.wait(timeout=0)


def test_renamed_method_of_a_rule_names_the_new_one(kproxy: Kproxy) -> None:
    rule = kproxy.inject("delay", delay=0)

    with pytest.raises(AttributeError, match=r'has no attribute \'release\' \(renamed to "resume"\)'):
        rule.release()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        rule.nothing  # type: ignore[attr-defined]  # noqa: B018
