"""Fetch sessions under rules that fail partitions and whole requests: client and broker each keep theirs, and agree."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol import Message, decode_request, decode_response
from kproxy.session.cluster import CORRELATION, VERSION
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response

FETCH, METADATA = 1, 3
TOPICS = ("a", "b", "c")
ROUNDS = 30
Part = tuple[str, int]


def topics_of(parts: list[Part], field: str, **more: Any) -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for topic, number in parts:
        found.setdefault(topic, []).append({field: number, **more})
    return [{"topic": topic, "partitions": listed} for topic, listed in found.items()]


def listed(message: Message) -> list[Part]:
    return [(topic["topic"], part["partition"]) for topic in message.body["topics"] for part in topic["partitions"]]


def forgotten(message: Message) -> list[Part]:
    return [(topic["topic"], part) for topic in message.body["forgotten_topics_data"] for part in topic["partitions"]]


class SessionBroker:
    """Keeps sessions as brokers do, and fails the test on a request that does not fit."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.sessions: dict[int, tuple[int, dict[Part, None]]] = {}  # the epoch that comes next, and the partitions
        self.seen = 0

    def answer(self, talk: Dialogue, version: int) -> None:
        for frame in frames(talk.to_broker)[self.seen :]:
            self.seen += 1
            message = decode_request(frame)
            number, said = self.take(message)
            body = topics_of(said, "partition_index", high_watermark=5, records=b"x")
            correlation = message.header["correlation_id"]
            answer = response(FETCH, version, correlation, session_id=number, responses=body)
            talk.broker(answer, self.random.choice((0, 1, 20)))

    def take(self, message: Message) -> tuple[int, list[Part]]:
        number, epoch = message.body["session_id"], message.body["session_epoch"]
        if epoch == 0:
            number = 100 + len(self.sessions)
            self.sessions[number] = 1, dict.fromkeys(listed(message))
            return number, listed(message)
        expected, parts = self.sessions[number]
        assert epoch == expected
        parts.update(dict.fromkeys(listed(message)))
        for part in forgotten(message):
            parts.pop(part, None)
        assert parts, "brokers close a session that has no partitions"
        self.sessions[number] = expected + 1, parts
        return number, [part for part in parts if self.random.random() < 0.6]


class SessionClient:
    """Lists what has changed since its last request, as clients do."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.number = self.epoch = 0
        self.known: list[Part] = []

    def ask(self, correlation: int, version: int) -> bytes:
        random = self.random
        wanted = [(topic, part) for topic in TOPICS for part in range(2) if random.random() < 0.7] or [("a", 0)]
        if random.random() < 0.05:
            self.number = self.epoch = 0
        known = self.known if self.epoch else []
        new = [part for part in wanted if part not in known or random.random() < 0.2]
        left: dict[str, list[int]] = {}
        for topic, part in known:
            if (topic, part) not in wanted:
                left.setdefault(topic, []).append(part)
        self.known = wanted
        gone = [{"topic": topic, "partitions": parts} for topic, parts in left.items()]
        return request(FETCH, version, correlation, session_id=self.number, session_epoch=self.epoch,
                       topics=topics_of(new, "partition", fetch_offset=correlation),
                       forgotten_topics_data=gone)  # fmt: skip

    def hear(self, body: dict[str, Any]) -> None:
        assert body["error_code"] not in (70, 71)  # its session is never torn
        if body["error_code"]:
            self.number = self.epoch = 0
            return
        said = {
            (topic["topic"], part["partition_index"]) for topic in body["responses"] for part in topic["partitions"]
        }
        assert said <= set(self.known)
        if self.epoch == 0:
            self.number = body["session_id"]
        self.epoch += 1


@pytest.mark.parametrize("version", [7, 11, 12])
def test_sessions_are_never_torn(version: int) -> None:
    """The broker gets the epochs that it expects, and the client only what it asked for, whatever fails."""
    for seed in range(20):
        random = Random(f"{version} {seed}")
        topic, every = random.choice(TOPICS), random.choice((1, 2, 3))
        kinds = [
            f"kind: error, match: {{api: Fetch, topic: {topic}}}, when: {{every: {every}}}, error: 6, at: request",
            f"kind: error, match: {{api: Fetch, topic: {topic}}}, when: {{every: {every}}}, error: 6, at: response",
            "kind: error, match: {api: Fetch}, level: top, when: {every: 3}, error: 6, at: request",
            "kind: error, match: {api: Fetch, topic: b}, when: {probability: 0.4}, error: 9",
            f"kind: error, match: {{api: Fetch}}, when: {{every: {every + 1}}}, error: 6, at: request",
            "kind: throttle_time, match: {api: Fetch}, delay: 1ms",
        ]
        chosen = random.sample(kinds, random.choice((1, 2, 3)))
        talk = Dialogue("rules:\n" + "".join(f"  - {{name: r{place}, {kind}}}\n" for place, kind in enumerate(chosen)))
        client, broker = SessionClient(random), SessionBroker(random)
        for number in range(ROUNDS):
            talk.client(client.ask(number, version))
            broker.answer(talk, version)
            answers = frames(talk.to_client)
            assert len(answers) == number + 1, seed
            client.hear(decode_response(answers[-1], FETCH, version).body)


@pytest.mark.parametrize("version", [13, 17])
def test_a_partition_that_is_listed_twice_is_listed_once_in_a_request_made_anew(version: int) -> None:
    """Ids that have no name while rules go by names: the request leaves without a session. Brokers keep the partitions
    of a request in a map, so what is said last of one counts, in the place where it was named first."""
    talk = Dialogue("rules: [{name: secret, kind: error, match: {api: Fetch, topic: secret}, error: 3}]")
    one, two = UUID(int=1), UUID(int=2)

    def listing(*parts: tuple[UUID, int, int]) -> list[dict[str, Any]]:
        return [{"topic_id": topic, "partitions": [{"partition": number, "fetch_offset": offset}]}
                for topic, number, offset in parts]  # fmt: skip

    listed = listing((one, 0, 10), (one, 2, 20), (two, 0, 30), (one, 0, 40))
    talk.client(request(FETCH, version, 1, session_id=0, session_epoch=0, topics=listed))
    talk.broker(response(METADATA, VERSION, CORRELATION, topics=[]))  # to kproxy's own question for the names
    body = next(one.body for one in map(decode_request, frames(talk.to_broker)) if one.api.key == FETCH)

    assert (body["session_id"], body["session_epoch"]) == (0, -1)
    assert [
        [(topic["topic_id"], one["partition"], one["fetch_offset"]) for one in topic["partitions"]]
        for topic in body["topics"]
    ] == [[(one, 0, 40), (one, 2, 20)], [(two, 0, 30)]]
