"""What Kafka's own Java clients make of frames that are lost or not as they should be."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from kproxy.testing.process import Proxy
from tests.support.java_program import JavaError, JavaProgram

ONCE = {"match": {"api": "Produce"}, "when": {"once": True}}
TAGS = {"api": ["Produce", "Metadata", "Fetch"]}

WRITERS: dict[str, dict[str, Any]] = {
    "trailing": {"kind": "trailing_bytes", "match": {"api": "Produce"}},
    "tags": {"kind": "unknown_tag", "match": TAGS},
    "fin": {"kind": "disconnect", "at": "response", **ONCE},
    "truncate": {"kind": "truncate", **ONCE},
    "drop": {"kind": "drop", **ONCE},
    "correlation": {"kind": "wrong_correlation_id", **ONCE},
    "reorder": {"kind": "reorder_responses", "match": {"api": "Produce"}, "when": {"first": 5}},
    "twice": {"kind": "duplicate_response", **ONCE},
    "short": {"kind": "short_body", **ONCE},
    "length": {"kind": "bad_length", "length": -5, **ONCE},
}
FAULTS = WRITERS | {
    "corrupt": {"kind": "corrupt", "where": "records", "match": {"api": "Fetch"}, "when": {"first": 2}},
    "wrong-port": {"kind": "wrong_address", "port": 1, "match": {"api": "Metadata"}, "when": {"first": 2}},
}


def settings(proxy: Proxy, name: str) -> dict[str, Any]:
    """Of a producer that is not idempotent, sends records one by one and finds out soon."""
    return {
        "bootstrap.servers": proxy.bootstrap, "client.id": name, "enable.idempotence": False, "batch.size": 0,
        "request.timeout.ms": 1500, "delivery.timeout.ms": 4000, "linger.ms": 0, "retry.backoff.ms": 50,
        "reconnect.backoff.ms": 20,
    }  # fmt: skip


@pytest.fixture(scope="module")
def written(java: JavaProgram, faulty: Proxy, clients: Any) -> dict[str, tuple[str, Future[Any]]]:
    """Three records of each client: its topic, and what it was told."""
    return {
        name: (topic, java.start("produce", config=settings(faulty, name), topic=topic, tag="v", count=3))
        for name, topic in zip(WRITERS, clients.topics(len(WRITERS)), strict=True)
    }


@pytest.mark.parametrize("fault", ["trailing", "tags"])
def test_what_is_too_much_is_passed_over(fault: str, written: Any, clients: Any) -> None:
    """Bytes and fields at the end, as newer brokers may send them."""
    topic, told = written[fault]

    assert told.result() == {topic: 3}
    assert clients.stored(topic) == 3


@pytest.mark.parametrize("fault", ["fin", "truncate", "length", "drop"])
def test_a_lost_response_makes_duplicates(fault: str, written: Any, clients: Any) -> None:
    """The connection is closed by somebody, kproxy or the client, and what was in flight is sent again."""
    topic, told = written[fault]

    assert told.result() == {topic: 3}
    assert clients.stored(topic) > 3


@pytest.mark.parametrize("fault", ["correlation", "reorder", "twice", "short"])
def test_an_answer_that_cannot_be_read_loses_its_request(fault: str, written: Any, clients: Any) -> None:
    """The client has taken the request out of its queue, and drops the answer: the record is stored, and fails when
    `delivery.timeout.ms` is over. A second copy of a response is taken for an answer to the next request."""
    topic, told = written[fault]

    with pytest.raises(JavaError, match="TimeoutException: Expiring 1 record"):
        told.result()
    assert clients.stored(topic) >= 3


def test_records_with_a_wrong_checksum_stop_a_consumer(java: JavaProgram, faulty: Proxy, clients: Any) -> None:
    """`poll` throws, and leaves it to the application what to do."""
    (topic,) = clients.topics(1)
    clients.write(clients.direct, topic, 5)
    config = {"bootstrap.servers": faulty.bootstrap, "client.id": "corrupt", "group.id": topic}
    config["auto.offset.reset"] = "earliest"

    with pytest.raises(JavaError, match="Received exception when fetching the next record"):
        java("consume", config=config, topics=[topic], count=5, seconds=20)


def test_a_producer_gets_over_a_wrong_address(java: JavaProgram, faulty: Proxy, clients: Any) -> None:
    """The only broker it knows is not there, and when that has lasted long enough it begins again where it began."""
    (topic,) = clients.topics(1)
    patience = {"delivery.timeout.ms": 30000, "metadata.recovery.rebootstrap.trigger.ms": 500}
    config = settings(faulty, "wrong-port") | patience

    assert java("produce", config=config, topic=topic, tag="v", count=3) == {topic: 3}
    assert faulty.metric("kproxy_rule_applied_total", rule="wrong-port") == 2
    assert clients.stored(topic) == 3


def test_every_fault_has_happened(faulty: Proxy, written: Any) -> None:
    """Each of the rules did something."""
    for _, told in written.values():
        told.exception()

    assert {name for name in WRITERS if not faulty.metric("kproxy_rule_applied_total", rule=name)} == set()
