"""What becomes of a fetch session before a real broker, when rules answer for some partitions or for whole requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Producer

from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.codec.message import Message
from kproxy.session.counters import Counters
from kproxy.session.fetch_sessions import FetchSessions
from kproxy.session.partition_session import Key, PartitionSession
from kproxy.testing.kafka import Kafka
from tests.support.raw_client import RawClient
from tests.support.topics import create_topics

FETCH, VERSION = 1, 12


class Between:
    """A client's Fetch requests, as they reach a broker through `FetchSessions`."""

    def __init__(self, client: RawClient) -> None:
        self.client, self.sessions = client, FetchSessions(Counters())
        self.session, self.epoch = 0, 0

    def asked(self, offsets: Mapping[Key, int], forgotten: Sequence[Key]) -> Message:
        """The client's next request."""
        body = {
            "max_wait_ms": 100, "min_bytes": 1, "isolation_level": 0, "rack_id": "",
            "session_id": self.session, "session_epoch": self.epoch,
            "topics": [
                {"topic": name, "partitions": [{"partition": number, "fetch_offset": offset,
                                                "partition_max_bytes": 1000}]}
                for (name, number), offset in offsets.items()
            ],
            "forgotten_topics_data": [{"topic": name, "partitions": [number]} for name, number in forgotten],
        }  # fmt: skip
        self.epoch += 1
        return decode_request(self.client.request(FETCH, VERSION, body)[4:])

    def unseen(self, offsets: Mapping[Key, int], forgotten: Sequence[Key] = ()) -> tuple[Key, ...]:
        """A request that a rule answers as a whole."""
        session = self.sessions.request(self.asked(offsets, forgotten))
        assert isinstance(session, PartitionSession)
        return tuple(session.asked)

    def fetch(
        self, offsets: Mapping[Key, int], removed: Sequence[Key] = (), forgotten: Sequence[Key] = ()
    ) -> tuple[set[Key], set[Key]]:
        """(what the request is about, partitions of which records came), with rules that refuse `removed`."""
        message = self.asked(offsets, forgotten)
        session = self.sessions.request(message)
        assert isinstance(session, PartitionSession)
        about = set(session.asked)
        body = self.sessions.forward(session, message, removed)
        self.client.send(self.client.request(FETCH, VERSION, message.body if body is None else body))
        response = decode_response(self.client.frame(), FETCH, VERSION)
        assert response.body["error_code"] == 0
        self.sessions.response(session, 0, response.body["session_id"])
        self.session = response.body["session_id"]
        assert (self.session == 0) == bool(removed)
        if removed:
            self.epoch = 0
        return about, {key for key, found in partitions(response.body) if found["records"]}


def partitions(body: dict[str, Any]) -> list[tuple[Key, dict[str, Any]]]:
    return [
        ((topic["topic"], partition["partition_index"]), partition)
        for topic in body["responses"]
        for partition in topic["partitions"]
    ]


def test_a_real_broker_is_told_what_it_missed(kafka: Kafka) -> None:
    """Epochs are in turn for it; what a rule refused is fetched again when none does, what was forgotten is not."""
    topic = "fetch-session"
    create_topics(kafka.bootstrap("DIRECT"), topic, partitions=3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap("DIRECT")})
    producer.produce(topic, "v", partition=0)
    assert producer.flush(30) == 0
    a: Key = (topic, 0)
    with RawClient(kafka.bootstrap("DIRECT")) as client:
        others: dict[Key, int] = {(topic, 1): 0, (topic, 2): 0}
        between = Between(client)
        offsets = {a: 0, **others}

        assert between.fetch(offsets, removed=[a]) == (set(offsets), set())
        assert between.fetch(offsets) == (set(offsets), {a})
        assert between.fetch({a: 0}, removed=[a]) == (set(offsets), set())
        assert between.fetch(offsets) == (set(offsets), {a})
        assert between.unseen({a: 1}) == tuple(offsets)
        assert between.unseen({}) == tuple(offsets)
        assert between.fetch({}) == (set(offsets), set())
        assert between.unseen({a: 0}) == tuple(offsets)
        assert between.fetch({}) == (set(offsets), {a})
        assert between.unseen({}, forgotten=[a]) == tuple(others)
        assert between.fetch({}) == (set(others), set())
        assert between.fetch({a: 0}) == (set(offsets), {a})
