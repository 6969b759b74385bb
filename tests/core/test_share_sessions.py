"""Share sessions: opened, continued and closed by two APIs together (KIP-932)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kproxy.core import share_sessions
from kproxy.core.counters import Counters
from kproxy.core.partition_session import Key
from kproxy.core.share_sessions import NOT_FOUND, ShareSessions
from kproxy.wire import decode_request, decode_response, encode, schema
from kproxy.wire.message import Message

CAPTURED = Path(__file__).parent / "golden" / "java_share_session.json"
TOPIC = UUID(int=7)
A, B, C = (TOPIC, 0), (TOPIC, 1), (TOPIC, 2)
FETCH, ACKNOWLEDGE = 78, 79
ACKS = [{"first_offset": 3, "last_offset": 4, "acknowledge_types": [1]}]


def share(
    key: int, epoch: int, listed: list[Key], forgotten: Sequence[Key] = (), member: str = "m", acks: list[Any] = ACKS
) -> Message:
    """A ShareFetch or ShareAcknowledge request, as it is read from the wire."""
    topics = [
        {"topic_id": topic, "partitions": [{"partition_index": number, "acknowledgement_batches": acks}]}
        for topic, number in listed
    ]
    body: dict[str, Any] = {"group_id": "g", "member_id": member, "share_session_epoch": epoch, "topics": topics}
    body["is_renew_ack"] = False
    if key == FETCH:
        body |= {"max_wait_ms": 1, "min_bytes": 1, "max_records": 1, "batch_size": 1, "share_acquire_mode": 0}
        body["forgotten_topics_data"] = [{"topic_id": topic, "partitions": [number]} for topic, number in forgotten]
    header = {"request_api_key": key, "request_api_version": 2, "correlation_id": 1, "client_id": "c"}
    return decode_request(encode(Message(schema.load(key), 2, header, body)))


def answer(key: int, error: int = 0) -> Message:
    return Message(schema.load(key), 2, {"correlation_id": 1}, {"error_code": error, "responses": []})


def opened() -> ShareSessions:
    """A session of member m with A and B."""
    sessions = ShareSessions(Counters())
    first = share(FETCH, 0, [A, B])
    assert sessions.request(first) == (A, B)
    assert sessions.forward(first) is None
    sessions.response(first, answer(FETCH))
    return sessions


def test_both_apis_count_the_epochs() -> None:
    """A ShareFetch is about its session, a ShareAcknowledge about what it lists."""
    sessions = opened()

    assert sessions.request(share(FETCH, 1, [])) == (A, B)
    assert sessions.request(share(ACKNOWLEDGE, 2, [B])) == (B,)
    assert sessions.request(share(FETCH, 3, [C], [A])) == (B, C)
    assert sessions.request(share(ACKNOWLEDGE, 3, [B])) is None


def test_records_of_a_forgotten_partition_are_acknowledged() -> None:
    """It is listed and forgotten at once, and still what the request is about."""
    sessions = opened()
    asked = share(FETCH, 1, [A], [A])

    assert sessions.request(asked) == (B, A)
    assert sessions.forward(asked) is None
    assert sessions.request(share(FETCH, 2, [])) == (B,)


@pytest.mark.parametrize("key", [FETCH, ACKNOWLEDGE])
def test_minus_one_closes(key: int) -> None:
    """The request is about what it acknowledges, and the session is gone."""
    sessions = opened()
    last = share(key, -1, [A])

    assert sessions.request(last) == (A,)
    assert sessions.forward(last) is None
    assert not sessions.sessions


def test_members_have_sessions_of_their_own() -> None:
    """They are told apart by group and member."""
    sessions = opened()

    assert sessions.request(share(FETCH, 1, [], member="other")) is None
    assert sessions.absent == "the start of its share session was not seen"
    assert sessions.request(share(FETCH, 0, [C], member="other")) == (C,)
    assert sessions.request(share(FETCH, 1, [])) == (A, B)


@pytest.mark.parametrize(("epoch", "error"), [(1, NOT_FOUND), (1, 123), (0, 133), (0, 29)])
def test_an_error_ends_what_the_broker_does_not_have(epoch: int, error: int) -> None:
    """No session, an epoch out of turn, or a start that was refused."""
    sessions = opened()
    asked = share(FETCH, epoch, [A])
    sessions.request(asked)
    sessions.response(asked, answer(FETCH, error))

    assert not sessions.sessions


def test_what_rules_answer_is_told_later_without_acknowledgements() -> None:
    """Records are acknowledged once only; the partition is named again, and the epochs are the broker's."""
    sessions = opened()
    asked = share(FETCH, 1, [A, C])
    sessions.request(asked)
    body = sessions.forward(asked, {A})
    assert body is not None
    assert [topic["partitions"][0]["partition_index"] for topic in body["topics"]] == [2]
    assert body["topics"][0]["partitions"][0]["acknowledgement_batches"] == ACKS
    assert body["forgotten_topics_data"] == [{"topic_id": TOPIC, "partitions": [0]}]

    sessions.request(share(ACKNOWLEDGE, 2, [B]))  # answered by kproxy
    later = share(FETCH, 3, [])
    assert sessions.request(later) == (A, B, C)
    body = sessions.forward(later)
    assert body is not None
    assert (body["share_session_epoch"], body["forgotten_topics_data"]) == (2, [])
    assert body["topics"] == [
        {"topic_id": TOPIC, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}
    ]
    asked = share(ACKNOWLEDGE, 4, [A, B])
    assert sessions.request(asked) == (A, B)
    body = sessions.forward(asked, {A})
    assert body is not None
    assert (body["share_session_epoch"], len(body["topics"])) == (3, 1)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile client names any number of members and partitions."""
    monkeypatch.setattr(share_sessions, "MOST_SESSIONS", 2)
    monkeypatch.setattr(share_sessions, "MOST_PARTITIONS", 5)
    counters = Counters()
    sessions = ShareSessions(counters)
    for member in "abc":
        sessions.request(share(FETCH, 0, [A], member=member))
    assert [member for _, member in sessions.sessions] == ["b", "c"]

    assert sessions.request(share(FETCH, 1, [(TOPIC, n) for n in range(9)], member="b")) is None
    assert sessions.absent == "more than 5 partitions in share sessions"
    assert sessions.request(share(FETCH, 0, [(TOPIC, n) for n in range(9)], member="d")) is not None
    assert counters.events["fetch_session_too_large"] == 1
    assert [member for _, member in sessions.sessions] == ["c"]


def test_frames_of_a_java_consumer() -> None:
    """A share consumer of Kafka 4.3: opened with three partitions, continued, and closed by a ShareAcknowledge."""
    sessions = ShareSessions(Counters())
    seen = []
    for request_hex, response_hex in json.loads(CAPTURED.read_text()):
        request = decode_request(bytes.fromhex(request_hex))
        about = sessions.request(request)
        assert about is not None
        assert sessions.forward(request) is None
        sessions.response(request, decode_response(bytes.fromhex(response_hex), request.api.key, request.version))
        seen.append(len(about))

    assert seen == [3] * 10 + [0]
    assert not sessions.sessions
