"""Rates of real clients under quotas: one connection, and twenty that share a limit.

`make stretches` runs these tests. tests/isolation/test_quota_reconnects.py checks the same with a clock of its own. All
six kinds of load run at the same time through one proxy, each with its own rule. Amounts are counted in windows of 10
seconds (KPROXY_TEST_ALL=1: 30), after the first bursts. A pause of the machine lowers the rate of one window, and a
burst raises the next one. So one of a few windows must have the right rate, and all together must not exceed it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kproxy.testing.kafka import Kafka
from kproxy.testing.process import Proxy
from tests.support.raw_client import METADATA, RawClient
from tests.support.topics import create_topics

SECONDS = 30 if os.environ.get("KPROXY_TEST_ALL") else 10
WINDOWS = 5
WARM_UP = 4.0
"""Seconds until all clients are connected and the first bursts are paid for."""
BYTES, REQUESTS = 1_000_000, 100
VALUE = b"x" * 1000
RECORD = 1010
"""Bytes of one in a batch: ten for lengths, offsets and times."""
MANY = 20

RULES: list[dict[str, Any]] = [
    {
        "name": f"{what} {count}",
        "kind": "quota",
        "match": {"client_id": f"{what}-{count}"},
        "burst": "500ms",
        what: rate,
    }
    for what, rate in (("produce", "1MB/s"), ("fetch", "1MB/s"), ("requests", "100/s"))
    for count in (1, MANY)
]


class Load:
    """Threads that do something until they are told to stop, and count it."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.threads: list[threading.Thread] = []
        self.failed: list[BaseException] = []
        self.counts: dict[str, int] = {}
        self.lock = threading.Lock()

    def count(self, name: str, amount: int) -> None:
        with self.lock:
            self.counts[name] = self.counts.get(name, 0) + amount

    def run(self, act: Callable[[], None]) -> None:
        """In a thread of its own."""

        def guarded() -> None:
            try:
                act()
            except BaseException as error:  # noqa: BLE001  # seen by the test
                self.failed.append(error)

        self.threads.append(threading.Thread(target=guarded, daemon=True))
        self.threads[-1].start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(60)


def produce(load: Load, name: str, bootstrap: str, topic: str) -> None:
    """As fast as it goes; what is confirmed counts."""
    producer = Producer({
        "bootstrap.servers": bootstrap, "client.id": name, "batch.size": 16_000, "linger.ms": 20, "acks": 1,
        "queue.buffering.max.messages": 200, "max.in.flight": 2, "log_level": 0,
    })  # fmt: skip

    def done(error: Any, message: Any) -> None:
        if error is None:
            load.count(name, RECORD)

    while not load.stopping.is_set():
        try:
            producer.produce(topic, VALUE, on_delivery=done)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    producer.purge()


def fetch(load: Load, name: str, bootstrap: str, topic: str) -> None:
    """From the beginning, again and again. What the client receives counts, batches that are cut off among it."""
    received = 0

    def statistics(text: str) -> None:
        nonlocal received
        total = sum(broker["rxbytes"] for broker in json.loads(text)["brokers"].values())
        load.count(name, total - received)
        received = total

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "client.id": name, "group.id": name, "enable.auto.commit": False,
        "queued.max.messages.kbytes": 1000, "fetch.queue.backoff.ms": 10, "log_level": 0,
        # answers of a megabyte would fall into one window or the next by chance, those of one client that are too short
        # would take turns with a busy machine more often than the rate leaves time for
        "fetch.message.max.bytes": 200_000 if name == "fetch-1" else 50_000,
        "statistics.interval.ms": 100, "stats_cb": statistics,
    })  # fmt: skip
    place = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, 30)
    consumer.assign([place])
    while not load.stopping.is_set():
        for message in consumer.consume(200, 0.1):
            assert message.error() is None, message.error()
            if message.offset() == end - 1:
                consumer.seek(place)
    consumer.close()


def ask(load: Load, name: str, bootstrap: str) -> None:
    """One request after the other, without any regard for what it is told."""
    with RawClient(bootstrap, timeout=60, client_id=name) as client:
        while not load.stopping.is_set():
            client.call(3, 4, METADATA)
            load.count(name, 1)


@pytest.fixture(scope="module")
def topics(kafka: Kafka) -> list[str]:
    """One to write to, and one with some megabytes to read."""
    bootstrap = kafka.bootstrap("DIRECT")
    names = ["quota-write", "quota-read"]
    create_topics(bootstrap, *names)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 16_000, "linger.ms": 20})
    for _ in range(5_000):
        producer.produce("quota-read", VALUE)
    assert producer.flush(30) == 0
    return names


class Windows:
    """What each kind of load did in a second, window after window. Each is measured when it is first asked for."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.samples = [(time.monotonic(), dict(load.counts))]

    def rate(self, name: str, number: int) -> float:
        """In the window of this number, from 0."""
        return self._between(name, number, number + 1)

    def rate_until(self, name: str, number: int) -> float:
        """From the beginning of the first to the end of this one."""
        return self._between(name, 0, number + 1)

    def _between(self, name: str, first: int, last: int) -> float:
        while len(self.samples) <= last:
            time.sleep(SECONDS)
            assert self.load.failed == []
            self.samples.append((time.monotonic(), dict(self.load.counts)))
        (since, before), (until, after) = self.samples[first], self.samples[last]
        return (after.get(name, 0) - before.get(name, 0)) / (until - since)


@pytest.fixture(scope="module")
def windows(kafka: Kafka, topics: list[str]) -> Iterator[Windows]:
    """All kinds of load at work, beyond their first bursts."""
    load = Load()
    writes, reads = topics
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(kafka.bootstrap("PROXIED"), rules=RULES))
        stack.callback(load.stop)
        for count in (1, MANY):
            for _ in range(count):
                load.run(lambda count=count: produce(load, f"produce-{count}", proxy.bootstrap, writes))
                load.run(lambda count=count: fetch(load, f"fetch-{count}", proxy.bootstrap, reads))
                load.run(lambda count=count: ask(load, f"requests-{count}", proxy.bootstrap))
        time.sleep(WARM_UP)
        yield Windows(load)


def settled(windows: Windows, name: str, rate: float) -> bool:
    """Whether one of the windows has this rate, and all until then together do not exceed it."""
    within = pytest.approx(rate, rel=0.05)
    return any(
        windows.rate(name, number) == within
        and (windows.rate_until(name, number) < rate or windows.rate_until(name, number) == within)
        for number in range(WINDOWS)
    )


@pytest.mark.measured
@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize(("what", "rate"), [("produce", BYTES), ("fetch", BYTES), ("requests", REQUESTS)])
def test_clients_get_the_rate_that_was_said(what: str, rate: float, count: int, windows: Windows) -> None:
    """Within 5 %. (Of what is produced the records are counted, about 1 % less than the frames around them.)"""
    name = f"{what}-{count}"

    assert settled(windows, name, rate), [round(windows.rate(name, number)) for number in range(WINDOWS)]
