"""The fixture in front of a real Kafka, whose newest versions name topics by id and continue fetch sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer

from kproxy.testing.inject import Kproxy
from kproxy.testing.kafka import Kafka
from tests.support.topics import create_topics

pytestmark = pytest.mark.kafka


@pytest.fixture
def kproxy_upstream(kafka: Kafka) -> str:
    """Past no listener that other tests watch."""
    return kafka.bootstrap("DIRECT")


def test_topics_that_are_named_by_id(kproxy: Kproxy, kafka: Kafka, produce: Callable[..., None]) -> None:
    """Rules and `exchanges` select them by name, also in a Fetch that names nothing any more; all can be read."""
    create_topics(kafka.bootstrap("DIRECT"), "by-id")
    slow = kproxy.inject("delay", match={"api": "Fetch", "topic": "by-id"}, delay="1ms")
    settings = {"group.id": "by-id", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
    consumer = Consumer({"bootstrap.servers": kproxy.bootstrap_servers, **settings})
    consumer.subscribe(["by-id"])
    for value in (b"1", b"2"):
        produce(kproxy.bootstrap_servers, "by-id", value)
        message = consumer.poll(30)
        assert message is not None and message.value() == value
    consumer.close()

    fetches = kproxy.exchanges(api="Fetch", topic="by-id")

    assert {record.value for fetch in fetches for record in fetch.records} == {b"1", b"2"}
    assert all(fetch.version >= 13 for fetch in fetches)
    assert slow.matched == len(fetches) == len(kproxy.exchanges(api="Fetch"))
    assert [write.topics for write in kproxy.exchanges(api="Produce")] == [["by-id"], ["by-id"]]
    assert [str(one) for one in kproxy.exchanges() if "unreadable" in str(one)] == []


def test_upstream_kafka_starts_one_for_all_tests(suite: Callable[..., Any]) -> None:
    """An admin API that the mock lacks works; the report of a failed test names no mock."""
    ran = suite(
        """
        import pytest
        from confluent_kafka.admin import AdminClient, NewTopic

        seen = set()

        @pytest.mark.parametrize("topic", ["a", "b"])
        def test_it(kproxy, kproxy_upstream, topic):
            client = AdminClient({"bootstrap.servers": kproxy.bootstrap_servers})
            client.create_topics([NewTopic(topic, 1)])[topic].result(60)
            seen.add(kproxy_upstream)
            assert len(seen) == 1
            assert topic == "a"
        """,
        "--kproxy-upstream=kafka",
    )
    assert ran.counts == {"passed": 1, "failed": 1}, ran.text
    assert "brokers at 127.0.0.1:" in ran.text and "mock" not in ran.text
