"""Exchanges that went through are selected as rules select frames, and read when somebody looks."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException

from kproxy.base.errors import DecodeError
from kproxy.protocol.table.api_keys import API_VERSIONS, HEARTBEAT
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.testing.exchanges import SeenExchange, Topics
from kproxy.testing.inject import Kproxy, KproxyWarning
from kproxy.testing.recorder import TapedExchange
from kproxy.tools.rehearse.dialogue import request, response

Produce = Callable[..., None]


def consume(kproxy: Kproxy, topic: str, count: int, group: str = "g") -> list[bytes]:
    """So many values, by a member of a group."""
    settings = {"bootstrap.servers": kproxy.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest",
                "client.id": "reader", "fetch.wait.max.ms": 20}  # fmt: skip
    consumer, values = Consumer(settings), list[bytes]()
    consumer.subscribe([topic])
    while len(values) < count:
        message = consumer.poll(20)
        assert message is not None and message.error() is None
        values.append(message.value())
    consumer.close()
    return values


@pytest.mark.parametrize(
    ("selectors", "found"),
    [
        ({"api": "Produce"}, {"Produce"}),
        ({"api": "*Group", "group": "g"}, {"JoinGroup", "SyncGroup", "LeaveGroup"}),
        ({"api": ["Produce", "Fetch"], "topic": "orders"}, {"Produce", "Fetch"}),
        ({"api": "Produce", "topic": "other"}, set()),
        ({"api": "Produce", "acks": "all"}, {"Produce"}),
        ({"api": "Produce", "acks": 1}, set()),
        ({"api": "Produce", "size": ">1MB"}, set()),
        ({"client_id": "reader", "topic": "orders", "not_": {"api": ["*Offsets", "Offset*", "Metadata"]}}, {"Fetch"}),
        ({"client_id": "reader", "partition": "0-9", "not_": {"partition": ">=0"}}, set()),
        ({"client_software": "confluent-kafka-python/*", "api": "Metadata"}, {"Metadata"}),
        ({"error": "any", "api": ["Produce", "Fetch"]}, set()),
    ],
)  # fmt: skip
def test_selectors_mean_what_they_mean_in_rules(
    kproxy: Kproxy, produce: Produce, selectors: dict[str, Any], found: set[str]
) -> None:
    """By API, names, header, connection, and what is left out."""
    produce(kproxy.bootstrap_servers, "orders", b"1", b"2")
    assert sorted(consume(kproxy, "orders", 2)) == [b"1", b"2"]

    assert {one.api for one in kproxy.exchanges(**selectors)} == found


def test_what_is_in_an_exchange(kproxy: Kproxy, produce: Produce) -> None:
    """Header, bodies, records, and times that lie where a delay puts them."""
    kproxy.inject("delay", delay="80ms", match={"api": "Produce"})
    produce(kproxy.bootstrap_servers, "orders", b"1")

    (write,) = kproxy.exchanges(api="Produce")

    assert (write.api, write.key, write.client_id, write.topics, write.errors) == ("Produce", 0, "rdkafka",
                                                                                 ["orders"], [])  # fmt: skip
    assert write.request.body["topic_data"][0]["name"] == "orders"
    assert write.response is not None
    assert write.response.body["responses"][0]["name"] == "orders"
    assert [record.value for record in write.records] == [b"1"]
    assert write.node in (1, 2, 3)
    assert write.seconds is not None and 0.08 <= write.seconds < 5
    assert repr(write).startswith(f"<Produce {write.version} (orders), ")


def test_what_a_rule_has_made_unreadable(kproxy: Kproxy) -> None:
    """The request can be looked at; the response says why it cannot."""
    kproxy.inject("short_body", match={"api": "Metadata"}, bytes=4)
    consumer = Consumer({"bootstrap.servers": kproxy.bootstrap_servers, "group.id": "g", "log_level": 0})
    with pytest.raises(KafkaException):
        consumer.list_topics(timeout=2)
    consumer.close()

    asked = kproxy.exchanges(api="Metadata")[0]

    assert asked.request.body["topics"] == []
    assert str(asked).startswith("Metadata 8 → cannot be read (Metadata v8 brokers at byte 8: ")
    with pytest.raises(DecodeError):
        _ = asked.response


def test_errors_with_unknown_code_shows_number() -> None:
    """A broker may answer with a code that is newer than the table, in Produce as in ApiVersions."""
    who: Any = SimpleNamespace(number=1, connection=SimpleNamespace(facts=SimpleNamespace(node=1)))

    def exchange(key: int, version: int, **values: Any) -> SeenExchange:
        asked, answer = request(key, version, 7)[4:], response(key, version, 7, **values)[4:]
        one, other = (Frame(len(data) + 4, 0.0, 1.0, data, Form.WHOLE) for data in (asked, answer))
        seen = ObservedExchange(who, 1, key, version, 7, "tester", one, other, "answered")
        return SeenExchange(TapedExchange(seen), Topics())

    beat = exchange(HEARTBEAT, 3, error_code=9999)
    versions = exchange(API_VERSIONS, 0, error_code=-77)
    assert versions.taken.seen.answer is not None
    versions.taken.seen.answer.data = versions.taken.seen.answer.data[:6]

    assert beat.errors == ["9999"]
    assert str(beat) == "Heartbeat 3 → 9999"
    assert str(versions) == "ApiVersions 0 → -77"


def test_names_and_topics_are_those_of_the_client(kproxy: Kproxy, produce: Produce) -> None:
    """Whatever the brokers call them."""
    kproxy.inject("rename_topic", topics={"orders": "prod.orders"})
    produce(kproxy.bootstrap_servers, "orders", b"1")

    assert [one.topics for one in kproxy.exchanges(api="Produce")] == [["orders"]]
    assert kproxy.exchanges(topic="prod.*") == []


def test_exchanges_that_are_not_kept_any_more(kproxy: Kproxy, produce: Produce) -> None:
    """Whoever asks is warned."""
    kproxy.engine.tape.front.most_frames = 2
    produce(kproxy.bootstrap_servers, "orders", b"1", b"2", b"3")

    with pytest.warns(KproxyWarning, match=r"\d+ older exchanges of this test are not kept any more: at most 2"):
        found = kproxy.exchanges()

    assert len(found) == 2
    assert re.search(r"^went through: .*\(and \d+ exchanges before that\)$", kproxy.report(), re.MULTILINE)


def test_an_exchange_is_decoded_once(kproxy: Kproxy, produce: Produce) -> None:
    """Whoever asks twice gets the same objects."""
    produce(kproxy.bootstrap_servers, "orders", b"1")

    first: SeenExchange = kproxy.exchanges(api="Produce")[0]

    assert kproxy.exchanges(api="Produce")[0] is first
