"""Requests of real clients that are sent again: the broker takes them, and stores what they write once more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from kproxy.cli.admin_client import Admin
from kproxy.testing.kafka import Kafka
from kproxy.testing.process import Proxy
from tests.support.topics import create_topics
from tests.support.wait import until

TRIES = 10
TRY = 3.0  # seconds: a view that missed a write never shows it


@pytest.fixture
def admin(plain_proxy: Proxy) -> Iterator[Admin]:
    """With somebody who looks."""
    admin = Admin(f"http://{plain_proxy.admin}")
    events = admin.events("/api/view", {})
    while next(events).name != "tick":
        pass
    yield admin
    events.close()  # type: ignore[attr-defined]  # a generator


def kept(admin: Admin, text: str) -> list[dict[str, Any]]:
    found = admin("GET", "/api/exchanges", query={"filter": text})
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def written(kafka: Kafka, proxy: Proxy, admin: Admin) -> str:
    """Write a record to each partition of a topic, and return its name when all of these writes are kept.

    A view has a twenty-fifth of a process' time and misses what passes in its pauses, so another topic may be tried.
    """
    for number in range(TRIES):
        topic = f"sent-again-{number}"
        create_topics(kafka.bootstrap("DIRECT"), topic, partitions=3, replicas=1)
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True})
        for partition in range(3):
            producer.produce(topic, f"value {partition}".encode(), b"key", partition)
        assert producer.flush(30) == 0
        with suppress(AssertionError):
            until(lambda topic=topic: sum(row["records"] for row in kept(admin, writes_to(topic))) == 3, TRY)
            return topic
    raise AssertionError(f"of {TRIES} times three writes, one at least was missed each time")


def writes_to(topic: str) -> str:
    return f"api == Produce and topic == {topic}"


@pytest.mark.deep
def test_an_idempotent_write_is_made_twice(kafka3: Kafka, plain_proxy: Proxy, admin: Admin) -> None:
    """A broker that got the same sequence again would take it for a repetition, and store nothing."""
    topic = written(kafka3, plain_proxy, admin)
    text = writes_to(topic)
    for row in kept(admin, text):
        body = json.dumps({"confirm": "Produce"}).encode()
        sent = admin("POST", f"/api/exchanges/{row['id']}/send", body)
        assert (sent["outcome"], sent["again_of"]) == ("answered", row["id"])
        assert any("without idempotence" in note for note in sent["notes"])
        (again,) = [one for one in kept(admin, text) if one["id"] == sent["id"]]
        assert (again["errors"], again["records"], again["topic"]) == ([], row["records"], topic)
    wanted = [f"value {partition}".encode() for partition in range(3) for _ in range(2)]
    assert sorted(stored(kafka3.bootstrap("DIRECT"), topic, len(wanted))) == wanted


def stored(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Read so many records of the topic past the proxy."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g-again", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        messages = [consumer.poll(30) for _ in range(count)]
        assert all(one is not None and one.error() is None for one in messages)
        return [one.value() for one in messages if one is not None]
    finally:
        consumer.close()
