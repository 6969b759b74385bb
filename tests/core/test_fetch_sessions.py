"""Fetch sessions: a client and a broker after KIP-227, with rules between them that answer for some partitions."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.core import fetch_sessions
from kproxy.core.counters import Counters
from kproxy.core.fetch_sessions import NOT_FOUND, FetchSessions
from kproxy.core.partition_session import LAST_EPOCH, Key, next_epoch
from kproxy.wire import decode_request, decode_response, encode, layout, schema
from kproxy.wire.message import Message

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
CAPTURED = Path(__file__).parent / "golden" / "java_fetch_session.json"


def grouped(partitions: dict[Key, int]) -> list[dict[str, Any]]:
    """Partitions with their fetch offsets as a request lists them, one entry each."""
    return [
        {
            "topic" if isinstance(name, str) else "topic_id": name,
            "partitions": [{"partition": number, "fetch_offset": offset, "partition_max_bytes": 1}],
        }
        for (name, number), offset in partitions.items()
    ]


def fetch(
    correlation: int, session: int, epoch: int, listed: dict[Key, int], forgotten: Sequence[Key] = (), version: int = 12
) -> Message:
    """A Fetch request, as it is read from the wire."""
    body = {
        "max_wait_ms": 1, "min_bytes": 1, "isolation_level": 0, "session_id": session, "session_epoch": epoch,
        "rack_id": "", "topics": grouped(listed),
        "forgotten_topics_data": [
            {"topic" if isinstance(name, str) else "topic_id": name, "partitions": [number]}
            for name, number in forgotten
        ],
    }  # fmt: skip
    header = {
        "request_api_key": 1, "request_api_version": version, "correlation_id": correlation, "client_id": "c",
    }  # fmt: skip
    known = {slot.name for slot in layout.body(1, version, "request").slots}
    body = {name: value for name, value in body.items() if name in known}
    return decode_request(encode(Message(schema.load(1), version, header, body)))


def answer(session: int, error: int = 0, version: int = 12) -> Message:
    body = {"throttle_time_ms": 0, "error_code": error, "session_id": session, "responses": []}
    return Message(schema.load(1), version, {"correlation_id": 0}, body)


A, B, C = ("a", 0), ("a", 1), ("b", 0)


def opened(counters: Counters | None = None) -> FetchSessions:
    """A session 7 with A and B, which the broker knows."""
    sessions = FetchSessions(counters or Counters())
    first = fetch(1, 0, 0, {A: 10, B: 20})
    assert sessions.request(first) == (A, B)
    assert sessions.forward(first) is None
    sessions.response(first, answer(7))
    return sessions


def listed(body: dict[str, Any] | None) -> dict[Key, int]:
    """Partition → fetch offset of a body that goes to the broker."""
    assert body is not None
    return {
        (topic["topic"], partition["partition"]): partition["fetch_offset"]
        for topic in body["topics"]
        for partition in topic["partitions"]
    }


def forgotten(body: dict[str, Any] | None) -> set[Key]:
    assert body is not None
    return {(topic["topic"], number) for topic in body["forgotten_topics_data"] for number in topic["partitions"]}


def test_a_request_is_about_its_whole_session() -> None:
    """What it lists is added or changed in place, what it forgets is gone; the rest stays in order."""
    sessions = opened()

    assert sessions.request(fetch(2, 7, 1, {})) == (A, B)
    assert sessions.request(fetch(3, 7, 2, {C: 5, A: 11})) == (A, B, C)
    assert sessions.request(fetch(4, 7, 3, {}, [A])) == (B, C)
    assert sessions.request(fetch(5, 7, 4, {A: 11})) == (B, C, A)


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_a_request_outside_a_session_is_about_what_it_lists(version: int) -> None:
    """Old versions, and epoch -1, which also ends a session."""
    sessions = opened()
    epoch = -1 if version >= 7 else 0
    message = fetch(2, 7 if version >= 7 else 0, epoch, {C: 0}, version=version)

    assert sessions.request(message) == (C,)
    assert sessions.forward(message) is None
    if version >= 7:
        assert sessions.request(fetch(3, 7, 1, {})) is None


def test_topics_by_id() -> None:
    """From version 13 on partitions are told apart by topic id."""
    sessions = FetchSessions(Counters())
    key = UUID(int=5), 3
    first = fetch(1, 0, 0, {key: 1}, version=17)

    assert sessions.request(first) == (key,)
    sessions.response(first, answer(9, version=17))
    assert sessions.request(fetch(2, 9, 1, {}, version=17)) == (key,)
    assert sessions.request(fetch(3, 9, 2, {}, [key], version=17)) == ()


def test_a_session_that_was_not_seen_is_unknown() -> None:
    """It is counted, and the reason is there; the client's new start is understood."""
    counters = Counters()
    sessions = FetchSessions(counters)

    assert sessions.request(fetch(1, 7, 4, {A: 1})) is None
    assert sessions.absent == "the start of its fetch session was not seen"
    assert counters.events["fetch_session_unknown"] == 1
    assert sessions.request(fetch(2, 0, 0, {A: 1, B: 1})) == (A, B)


def test_an_epoch_out_of_turn_changes_nothing() -> None:
    """The broker will refuse it; what the session holds is not touched."""
    sessions = opened()

    assert sessions.request(fetch(2, 7, 2, {C: 1})) is None
    assert "epoch 2 of its fetch session, expected 1" in sessions.absent
    assert sessions.request(fetch(3, 7, 1, {})) == (A, B)


@pytest.mark.parametrize(
    ("said", "lives"), [(answer(7), True), (answer(0), False), (answer(0, NOT_FOUND), False), (answer(0, 71), True)]
)
def test_the_broker_may_end_a_session(said: Message, lives: bool) -> None:
    """By not knowing it, or by giving no id; other errors leave it to the client to begin anew."""
    sessions = opened()
    asked = fetch(2, 7, 1, {})
    sessions.request(asked)
    sessions.response(asked, said)

    assert (sessions.request(fetch(3, 7, 2, {})) is not None) == lives


def test_no_session_where_the_broker_gave_none() -> None:
    """Its cache is full, or the request was throttled (session id 0)."""
    sessions = FetchSessions(Counters())
    first = fetch(1, 0, 0, {A: 1})
    sessions.request(first)
    sessions.response(first, answer(0))

    assert not sessions.sessions
    assert not sessions.opening


def test_a_new_start_ends_the_session_before() -> None:
    """A client begins anew with epoch 0 and the old id."""
    sessions = opened()
    again = fetch(2, 7, 0, {C: 1})
    assert sessions.request(again) == (C,)
    sessions.response(again, answer(8))

    assert list(sessions.sessions) == [8]


def test_epochs_wrap_around_to_one() -> None:
    """0 opens a session and is not come back to."""
    assert next_epoch(LAST_EPOCH) == 1
    sessions = opened()
    session = sessions.sessions[7]
    session.client_epoch = session.broker_epoch = LAST_EPOCH
    asked = fetch(2, 7, LAST_EPOCH, {})
    assert sessions.request(asked) == (A, B)
    assert sessions.forward(asked) is None

    assert sessions.request(fetch(3, 7, 1, {})) == (A, B)


def test_what_rules_answer_is_taken_out_and_told_later() -> None:
    """A partition that a rule answers for is forgotten at the broker, and named again with the client's last word."""
    sessions = opened()
    asked = fetch(2, 7, 1, {C: 5})
    sessions.request(asked)
    body = sessions.forward(asked, {A, C})
    assert (listed(body), forgotten(body)) == ({}, {A})

    later = fetch(3, 7, 2, {})
    assert sessions.request(later) == (A, B, C)
    body = sessions.forward(later)
    assert (listed(body), forgotten(body)) == ({A: 10, C: 5}, set())
    last = fetch(4, 7, 3, {})
    sessions.request(last)
    assert sessions.forward(last) is None


def test_requests_that_the_broker_never_saw() -> None:
    """The next one has the epoch that the broker expects, and all that was in them."""
    sessions = opened()
    sessions.request(fetch(2, 7, 1, {C: 5}, [A]))
    sessions.request(fetch(3, 7, 2, {B: 21}))
    asked = fetch(4, 7, 3, {C: 6})
    assert sessions.request(asked) == (B, C)
    body = sessions.forward(asked)
    assert body is not None

    assert body["session_epoch"] == 1
    assert (listed(body), forgotten(body)) == ({C: 6, B: 21}, {A})
    assert decode_request(encode(Message(asked.api, asked.version, asked.header, body))).body["topics"]


def test_a_start_without_some_partitions() -> None:
    """They are left out of the first request, and named with the next."""
    sessions = FetchSessions(Counters())
    first = fetch(1, 0, 0, {A: 1, C: 2})
    assert sessions.request(first) == (A, C)
    assert listed(sessions.forward(first, {A})) == {C: 2}
    sessions.response(first, answer(3))
    second = fetch(2, 3, 1, {})
    sessions.request(second)
    assert listed(sessions.forward(second)) == {A: 1}


def test_without_a_session_partitions_are_taken_out() -> None:
    """Nothing is owed to anybody."""
    sessions = FetchSessions(Counters())
    message = fetch(1, 0, -1, {A: 1, C: 2})
    sessions.request(message)

    assert listed(sessions.forward(message, {A})) == {C: 2}
    assert sessions.forward(message, {B}) is None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions and partitions beyond the limits are not remembered, and those used longest ago are forgotten first."""
    monkeypatch.setattr(fetch_sessions, "MOST_SESSIONS", 3)
    monkeypatch.setattr(fetch_sessions, "MOST_PARTITIONS", 10)
    counters = Counters()
    sessions = FetchSessions(counters)
    for number in range(1, 6):
        first = fetch(number, 0, 0, {A: 1})
        sessions.request(first)
        sessions.response(first, answer(number))
    assert list(sessions.sessions) == [3, 4, 5]

    assert sessions.request(fetch(6, 3, 1, {("x", n): 1 for n in range(8)})) is None
    assert sessions.absent == "more than 10 partitions in fetch sessions"
    many = fetch(7, 0, 0, {("x", n): 1 for n in range(9)})
    assert len(sessions.request(many) or ()) == 9
    assert not sessions.opening
    assert counters.events["fetch_session_too_large"] == 1
    for number in range(10, 20):
        sessions.request(fetch(number, 0, 0, {A: 1}))
    assert len(sessions.opening) == 3


# ---- against a model


class Broker:
    """Fetch sessions as KIP-227 has them: epochs in turn, partitions with what was last said; none is empty."""

    def __init__(self) -> None:
        self.sessions: dict[int, tuple[int, dict[Key, int]]] = {}
        self.given = 0

    def fetch(self, body: dict[str, Any]) -> tuple[int, int, dict[Key, int]]:
        """(error, session id, partitions)."""
        number, epoch = body["session_id"], body["session_epoch"]
        if epoch <= 0:
            self.sessions.pop(number, None)
            if epoch < 0:
                return 0, 0, listed(body)
            if not listed(body):
                return 0, 0, {}
            self.given += 1
            self.sessions[self.given] = 1, listed(body)
            return 0, self.given, dict(listed(body))
        if number not in self.sessions:
            return NOT_FOUND, 0, {}
        expected, partitions = self.sessions[number]
        if expected != epoch:
            return 71, 0, {}
        partitions.update(listed(body))
        for key in forgotten(body):
            partitions.pop(key, None)
        self.sessions[number] = next_epoch(epoch), partitions
        if not partitions:
            del self.sessions[number]
        return 0, number if partitions else 0, dict(partitions)


class Client:
    """What Kafka's FetchSessionHandler does: full requests, then differences."""

    def __init__(self) -> None:
        self.session, self.epoch, self.said = 0, 0, dict[Key, int]()

    def request(self, correlation: int, wanted: dict[Key, int], version: int = 12) -> Message:
        if self.epoch == 0:
            self.said = dict(wanted)
            return fetch(correlation, self.session, 0, wanted)
        changed = {key: offset for key, offset in wanted.items() if self.said.get(key) != offset}
        gone = [key for key in self.said if key not in wanted]
        for key in gone:
            del self.said[key]
        self.said.update(changed)
        return fetch(correlation, self.session, self.epoch, changed, gone)

    def response(self, error: int, session: int) -> None:
        if error:
            self.session, self.epoch = (0 if error == NOT_FOUND else self.session), 0
        elif not session:
            self.session, self.epoch = 0, 0
        else:
            self.session, self.epoch = session, next_epoch(self.epoch)


KEYS = st.tuples(st.sampled_from("abc"), st.integers(0, 2))
WANTED = st.dictionaries(KEYS, st.integers(0, 3), max_size=9)
STEP = st.tuples(
    WANTED, st.sets(KEYS, max_size=4), st.sampled_from(["forward", "forward", "forward", "answer", "fail", "evict"])
)


@settings(deadline=None, max_examples=2000 if EVERYTHING else 150)
@given(st.lists(STEP, max_size=20), st.booleans())
def test_client_and_broker_agree_whatever_rules_answer(
    steps: list[tuple[dict[Key, int], set[Key], str]], late: bool
) -> None:
    """A request is about all that the client wants; the broker fetches that without what rules have taken, with the
    offsets that the client said last; and it never sees an epoch out of turn."""
    broker, client, sessions = Broker(), Client(), FetchSessions(Counters())
    for correlation, (wanted, taken, what) in enumerate(steps):
        message = client.request(correlation, wanted)
        if what == "evict" and late:
            broker.sessions.clear()
        about = sessions.request(message)
        assert about is not None
        assert set(about) == set(wanted)
        assert set(about) == set(client.said)
        removed = taken & set(about)
        if what == "answer" or (
            removed and removed == set(about)
        ):  # all of it by kproxy, which gives the session's id or none
            error, number = 0, message.body["session_id"] if message.body["session_epoch"] > 0 else 0
        elif what == "fail":
            error, number = 6, 0
        else:
            body = sessions.forward(message, removed)
            error, number, fetched = broker.fetch(body or message.body)
            assert error in (0, NOT_FOUND)
            if not error:
                assert fetched == {key: offset for key, offset in client.said.items() if key not in removed}
        sessions.response(message, answer(number, error))
        client.response(error, number)


def test_frames_of_a_java_consumer() -> None:
    """What a consumer of Kafka 4.3 and a broker said: every request is about what the consumer had assigned then, and
    every partition of an answer is one of them."""
    sessions = FetchSessions(Counters())
    seen: list[int] = []
    for request_hex, response_hex in json.loads(CAPTURED.read_text()):
        request = decode_request(bytes.fromhex(request_hex))
        response = decode_response(bytes.fromhex(response_hex), 1, request.version)
        about = sessions.request(request)
        assert about is not None
        assert sessions.forward(request) is None
        sessions.response(request, response)
        answered = {
            (topic["topic_id"], partition["partition_index"])
            for topic in response.body["responses"]
            for partition in topic["partitions"]
        }
        assert answered <= set(about)
        seen.append(len(about))
    assert seen[0] == EXPECTED[0]
    assert [count for index, count in enumerate(seen) if index == 0 or seen[index - 1] != count] == EXPECTED


EXPECTED = [5]
"""Two topics of three and two partitions. The second was deleted in the end, which a consumer learns by errors."""
