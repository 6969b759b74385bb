"""Share sessions: opened, continued and closed by two APIs together (KIP-932)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.codec.message import Message
from kproxy.protocol.table.api_keys import SHARE_FETCH
from kproxy.session import fetch_sessions
from kproxy.session.counters import Counters
from kproxy.session.fetch_sessions import LIMIT_REACHED, SHARE_LISTING, SHARE_NOT_FOUND, ShareSessions
from kproxy.session.partition_session import Key, PartitionSession, SessionPartitionLimit
from tests.support.frames import message

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
    return decode_request(message(key, 2, "request", body, 1))


def asked(sessions: ShareSessions, message: Message) -> tuple[Key, ...] | None:
    """The partitions that a request is about; None: it continues a session of which nothing is known."""
    session = sessions.request(message)
    if session == SHARE_NOT_FOUND:
        return None
    inside = session.asked if isinstance(session, PartitionSession) and message.api.key == SHARE_FETCH else ()
    return tuple(dict.fromkeys((*inside, *dict(SHARE_LISTING.listed(message.body)))))


def goes(
    sessions: ShareSessions, message: Message, removed: Sequence[Key] = (), error: int = 0
) -> dict[str, Any] | None:
    """A request that is forwarded and answered: what goes to the broker if not the request."""
    session = sessions.request(message)
    assert isinstance(session, PartitionSession)
    body = sessions.forward(session, message, removed)
    sessions.response(session, message, error)
    return body


def opened() -> ShareSessions:
    """A session of member m with A and B."""
    sessions = ShareSessions(Counters())
    assert goes(sessions, share(FETCH, 0, [A, B])) is None
    return sessions


def test_both_apis_count_the_epochs() -> None:
    """A ShareFetch is about its session, a ShareAcknowledge about what it lists."""
    sessions = opened()

    assert asked(sessions, share(FETCH, 1, [])) == (A, B)
    assert asked(sessions, share(ACKNOWLEDGE, 2, [B])) == (B,)
    assert asked(sessions, share(FETCH, 3, [C], [A])) == (B, C)
    assert asked(sessions, share(ACKNOWLEDGE, 3, [B])) is None


def test_records_of_a_forgotten_partition_are_acknowledged() -> None:
    """It is listed and forgotten at once, and still what the request is about."""
    sessions = opened()
    assert asked(sessions, share(FETCH, 1, [A], [A])) == (B, A)
    assert asked(sessions, share(FETCH, 2, [])) == (B,)

    assert goes(opened(), share(FETCH, 1, [A], [A])) is None


@pytest.mark.parametrize("key", [FETCH, ACKNOWLEDGE])
def test_minus_one_closes(key: int) -> None:
    """The request is about what it acknowledges, and the session is gone."""
    sessions = opened()
    last = share(key, -1, [A])

    assert asked(sessions, last) == (A,)
    assert sessions.forward(None, last) is None
    assert not sessions.sessions
    assert sessions.size == 0


def test_members_have_sessions_of_their_own() -> None:
    """They are told apart by group and member."""
    sessions = opened()

    assert asked(sessions, share(FETCH, 1, [], member="other")) is None
    assert sessions.absent == "the start of its share session was not seen"
    assert asked(sessions, share(FETCH, 0, [C], member="other")) == (C,)
    assert asked(sessions, share(FETCH, 1, [])) == (A, B)


@pytest.mark.parametrize(("epoch", "error"), [(1, SHARE_NOT_FOUND), (1, 123), (0, 133), (0, 29)])
def test_an_error_ends_what_the_broker_does_not_have(epoch: int, error: int) -> None:
    """No session, an epoch out of turn, or a start that was refused."""
    sessions = opened()
    goes(sessions, share(FETCH, epoch, [A]), error=error)

    assert not sessions.sessions
    assert sessions.size == 0


def test_a_session_is_continued_only_when_the_last_answer_is_there() -> None:
    """Of either API; the answer that comes then is not for the session that the member opens anew."""
    sessions = opened()
    first = share(FETCH, 1, [])
    old = sessions.request(first)
    assert isinstance(old, PartitionSession)
    sessions.forward(old, first)

    assert asked(sessions, share(ACKNOWLEDGE, 2, [B])) is None
    assert asked(sessions, share(FETCH, 0, [C])) == (C,)
    sessions.response(old, first, SHARE_NOT_FOUND)
    assert asked(sessions, share(FETCH, 1, [])) == (C,)


def test_a_request_opens_nothing_with_an_acknowledgement() -> None:
    """Epoch 0 of a ShareAcknowledge is refused by the broker: what there is stays."""
    sessions = opened()

    assert asked(sessions, share(ACKNOWLEDGE, 0, [C])) == (C,)
    assert asked(sessions, share(FETCH, 1, [])) == (A, B)


def test_what_rules_answer_is_told_later_without_acknowledgements() -> None:
    """Records are acknowledged once only; the partition is named again, and the epochs are the broker's."""
    sessions = opened()
    body = goes(sessions, share(FETCH, 1, [A, C]), [A])
    assert body is not None
    assert [topic["partitions"][0]["partition_index"] for topic in body["topics"]] == [2]
    assert body["topics"][0]["partitions"][0]["acknowledgement_batches"] == ACKS
    assert body["forgotten_topics_data"] == [{"topic_id": TOPIC, "partitions": [0]}]

    asked(sessions, share(ACKNOWLEDGE, 2, [B]))  # answered by kproxy
    body = goes(sessions, share(FETCH, 3, []))
    assert body is not None
    assert (body["share_session_epoch"], body["forgotten_topics_data"]) == (2, [])
    assert body["topics"] == [
        {"topic_id": TOPIC, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}
    ]
    body = goes(sessions, share(ACKNOWLEDGE, 4, [A, B]), [A])
    assert body is not None
    assert (body["share_session_epoch"], len(body["topics"])) == (3, 1)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile client names any number of members and partitions."""
    monkeypatch.setattr(fetch_sessions, "MOST_SESSIONS", 2)
    monkeypatch.setattr(fetch_sessions, "MOST_PARTITIONS", 5)
    counters = Counters()
    sessions = ShareSessions(counters)
    for member in "abc":
        asked(sessions, share(FETCH, 0, [A], member=member))
    assert [member for _, member in sessions.sessions] == ["b", "c"]

    assert asked(sessions, share(FETCH, 1, [(TOPIC, n) for n in range(9)], member="b")) is None
    assert sessions.absent == "more than 5 partitions in share sessions"
    assert sessions.request(share(FETCH, 0, [(TOPIC, n) for n in range(9)], member="d")) == LIMIT_REACHED
    assert counters.events["fetch_session_too_large"] == 1
    assert [member for _, member in sessions.sessions] == ["c"]


def test_memory_is_bounded_over_all_connections() -> None:
    """One that finds no room is told what brokers say that have none; what ends makes room."""
    room, counters = SessionPartitionLimit(5), Counters()
    first, second = (ShareSessions(counters, room) for _ in range(2))
    assert asked(first, share(FETCH, 0, [(TOPIC, n) for n in range(3)])) is not None
    wide = share(FETCH, 0, [(TOPIC, n) for n in range(3)], member="b")
    assert (second.request(wide), room.used) == (LIMIT_REACHED, 3)
    assert counters.events["sessions_without_room"] == 1

    assert asked(second, share(FETCH, 0, [A, B], member="c")) is not None
    grown = share(FETCH, 1, [(TOPIC, n) for n in range(50, 59)], member="c")
    assert (second.request(grown), second.size, room.used) == (SHARE_NOT_FOUND, 0, 3)
    first.end()
    assert room.used == 0
    assert isinstance(second.request(wide), PartitionSession)


def test_frames_of_a_java_consumer() -> None:
    """A share consumer of Kafka 4.3: opened with three partitions, continued, and closed by a ShareAcknowledge."""
    sessions = ShareSessions(Counters())
    seen = []
    for request_hex, response_hex in json.loads(CAPTURED.read_text()):
        request = decode_request(bytes.fromhex(request_hex))
        session = sessions.request(request)
        assert not isinstance(session, int)
        inside = session.asked if session is not None and request.api.key == SHARE_FETCH else ()
        assert sessions.forward(session, request) is None
        said = decode_response(bytes.fromhex(response_hex), request.api.key, request.version)
        if session is not None:
            sessions.response(session, request, said.body["error_code"])
        seen.append(len({*inside, *dict(SHARE_LISTING.listed(request.body))}))

    assert seen == [3] * 10 + [0]
    assert not sessions.sessions
