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

from kproxy.protocol import decode_request, decode_response, encode
from kproxy.protocol.codec.message import Message
from kproxy.protocol.table import layout
from kproxy.rules.exchange import Facts
from kproxy.session import fetch_sessions
from kproxy.session.counters import Counters
from kproxy.session.fetch_sessions import LISTING, NOT_FOUND, FetchSessions
from kproxy.session.partition_session import (
    CLOSING,
    LAST_EPOCH,
    Key,
    PartitionSession,
    SessionPartitionLimit,
    SessionPartitionShare,
    next_epoch,
)
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.frames import message

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
    known = {slot.name for slot in layout.body(1, version, "request").slots}
    body = {name: value for name, value in body.items() if name in known}
    return decode_request(message(1, version, "request", body, correlation))


A, B, C = ("a", 0), ("a", 1), ("b", 0)


def asked(sessions: FetchSessions, message: Message) -> tuple[Key, ...] | None:
    """The partitions that a request is about; None: it continues a session of which nothing is known."""
    session = sessions.request(message)
    if session is None:
        return tuple(dict(LISTING.listed(message.body)))
    return tuple(session.asked) if isinstance(session, PartitionSession) else None


def goes(
    sessions: FetchSessions, message: Message, error: int = 0, number: int | None = None
) -> tuple[dict[str, Any] | None, tuple[Key, ...]]:
    """A request that is forwarded and answered: (what goes to the broker if not the request, what it is about)."""
    session = sessions.request(message)
    assert isinstance(session, PartitionSession)
    about = tuple(session.asked)
    body = sessions.forward(session, message)
    sessions.response(session, error, message.body["session_id"] if number is None else number)
    return body, about


def opened(counters: Counters | None = None) -> FetchSessions:
    """A session 7 with A and B, which the broker knows."""
    sessions = FetchSessions(counters or Counters())
    assert goes(sessions, fetch(1, 0, 0, {A: 10, B: 20}), number=7) == (None, (A, B))
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

    assert goes(sessions, fetch(2, 7, 1, {})) == (None, (A, B))
    assert goes(sessions, fetch(3, 7, 2, {C: 5, A: 11})) == (None, (A, B, C))
    assert goes(sessions, fetch(4, 7, 3, {}, [A])) == (None, (B, C))
    assert goes(sessions, fetch(5, 7, 4, {A: 11})) == (None, (B, C, A))
    assert sessions.size == 3


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_a_request_outside_a_session_is_about_what_it_lists(version: int) -> None:
    """Old versions, and epoch -1, which also ends a session."""
    sessions = opened()
    epoch = -1 if version >= 7 else 0
    message = fetch(2, 7 if version >= 7 else 0, epoch, {C: 0}, version=version)

    assert asked(sessions, message) == (C,)
    assert sessions.forward(None, message) is None
    if version >= 7:
        assert sessions.size == 0
        assert asked(sessions, fetch(3, 7, 1, {})) is None


def test_topics_by_id() -> None:
    """From version 13 on partitions are told apart by topic id."""
    sessions = FetchSessions(Counters())
    key = UUID(int=5), 3

    assert goes(sessions, fetch(1, 0, 0, {key: 1}, version=17), number=9) == (None, (key,))
    assert goes(sessions, fetch(2, 9, 1, {}, version=17)) == (None, (key,))
    assert goes(sessions, fetch(3, 9, 2, {}, [key], version=17)) == (None, ())


def test_a_session_that_was_not_seen_is_unknown() -> None:
    """It is counted, and the reason is there; the client's new start is understood."""
    counters = Counters()
    sessions = FetchSessions(counters)

    assert asked(sessions, fetch(1, 7, 4, {A: 1})) is None
    assert sessions.absent == "the start of its fetch session was not seen"
    assert counters.events["fetch_session_unknown"] == 1
    assert asked(sessions, fetch(2, 0, 0, {A: 1, B: 1})) == (A, B)


@pytest.mark.parametrize("epoch", [2, 3, LAST_EPOCH, -2, -(2**31)])
def test_an_epoch_out_of_turn_changes_nothing(epoch: int) -> None:
    """The broker would refuse it; what the session holds is not touched."""
    sessions = opened()

    assert asked(sessions, fetch(2, 7, epoch, {C: 1})) is None
    assert f"epoch {epoch} of its fetch session, expected 1" in sessions.absent
    assert asked(sessions, fetch(3, 7, 1, {})) == (A, B)


def test_a_session_is_continued_only_when_the_last_answer_is_there() -> None:
    """Else nobody could tell which partitions the broker has in it: the session ends here."""
    sessions = opened()
    first = fetch(2, 7, 1, {})
    session = sessions.request(first)
    assert isinstance(session, PartitionSession)
    assert sessions.forward(session, first) is None

    assert asked(sessions, fetch(3, 7, 2, {})) is None
    assert sessions.absent == "the request before it in its fetch session has not been answered"
    sessions.response(session, 0, 7)
    assert asked(sessions, fetch(4, 7, 2, {})) is None
    assert sessions.size == 0


@pytest.mark.parametrize(
    ("error", "number", "lives"), [(0, 7, True), (0, 0, False), (NOT_FOUND, 0, False), (71, 7, False), (0, 8, False)]
)
def test_the_broker_may_end_a_session(error: int, number: int, lives: bool) -> None:
    """By any error, by giving no id or another one: what it then holds for the session is not known here."""
    sessions = opened()
    goes(sessions, fetch(2, 7, 1, {}), error, number)

    assert (asked(sessions, fetch(3, 7, 2, {})) is not None) == lives
    assert sessions.size == (2 if lives else 0)


def test_no_session_where_the_broker_gave_none() -> None:
    """Its cache is full, or the request was throttled (session id 0)."""
    sessions = FetchSessions(Counters())
    goes(sessions, fetch(1, 0, 0, {A: 1}), number=0)

    assert not sessions.sessions
    assert sessions.size == 0


def test_a_new_start_ends_the_session_before() -> None:
    """A client begins anew with epoch 0 and the old id."""
    sessions = opened()
    assert goes(sessions, fetch(2, 7, 0, {C: 1}), number=8) == (None, (C,))

    assert list(sessions.sessions) == [8]
    assert sessions.size == 1


def test_a_session_belongs_to_the_request_that_opened_it() -> None:
    """Two are opened by requests of the same correlation id before either is answered."""
    sessions = FetchSessions(Counters())
    made = [sessions.request(fetch(5, 0, 0, listing)) for listing in ({A: 1, B: 1}, {C: 1})]
    for number, session in enumerate(made, 7):
        assert isinstance(session, PartitionSession)
        sessions.response(session, 0, number)

    assert asked(sessions, fetch(5, 7, 1, {})) == (A, B)
    assert asked(sessions, fetch(5, 8, 1, {})) == (C,)


def test_epochs_wrap_around_to_one() -> None:
    """0 opens a session and is not come back to."""
    assert next_epoch(LAST_EPOCH) == 1
    sessions = opened()
    session = sessions.sessions[7]
    session.client_epoch = session.broker_epoch = LAST_EPOCH
    assert goes(sessions, fetch(2, 7, LAST_EPOCH, {})) == (None, (A, B))

    assert asked(sessions, fetch(3, 7, 1, {})) == (A, B)


@pytest.mark.parametrize("opens", [True, False])
def test_what_rules_refuse_is_left_out_and_the_session_closed(opens: bool) -> None:
    """The request leaves without the partition, and without a session: the one that there was is closed."""
    sessions = FetchSessions(Counters()) if opens else opened()
    message = fetch(2, 0 if opens else 7, 0 if opens else 1, {C: 5, A: 1}, () if opens else [B])
    session = sessions.request(message)
    assert isinstance(session, PartitionSession)
    body = sessions.forward(session, message, {A})

    assert (listed(body), forgotten(body)) == ({C: 5}, set())
    assert body is not None
    assert (body["session_id"], body["session_epoch"]) == (message.body["session_id"], CLOSING)
    sessions.response(session, 0, 0)
    assert not sessions.sessions
    assert sessions.size == 0


def test_requests_that_the_broker_never_saw() -> None:
    """The next one has the epoch that the broker expects, and all that was in them."""
    sessions = opened()
    sessions.request(fetch(2, 7, 1, {C: 5}, [A]))
    sessions.request(fetch(3, 7, 2, {B: 21}))
    last = fetch(4, 7, 3, {C: 6})
    body, about = goes(sessions, last)
    assert about == (B, C)
    assert body is not None

    assert body["session_epoch"] == 1
    assert (listed(body), forgotten(body)) == ({C: 6, B: 21}, {A})
    assert decode_request(encode(Message(last.api, last.version, last.header, body))).body["topics"]


def test_an_answer_of_kproxy_opens_no_session() -> None:
    """Whatever number the client has named; a session that there is goes on with the next epoch."""
    sessions = opened()
    other = sessions.request(fetch(2, 99, 0, {A: 1}))
    assert isinstance(other, PartitionSession)
    said = {"session_id": 99}
    sessions.own_answer(other, 0, said)
    assert said == {"session_id": 0}
    assert list(sessions.sessions) == [7]

    going = sessions.request(fetch(3, 7, 1, {}))
    assert isinstance(going, PartitionSession)
    said = {"session_id": 7}
    sessions.own_answer(going, 6, said)
    assert said == {"session_id": 7}
    assert asked(sessions, fetch(4, 7, 2, {})) == (A, B)


def test_without_a_session_partitions_are_taken_out() -> None:
    """Listed twice or once."""
    sessions = FetchSessions(Counters())
    message = fetch(1, 0, -1, {A: 1, C: 2})
    message.body["topics"] += grouped({A: 3})
    assert sessions.request(message) is None

    assert listed(sessions.forward(None, message, {A})) == {C: 2}


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions and partitions beyond the limits are not remembered, those used longest ago are forgotten first, and
    none that is forgotten can be continued."""
    monkeypatch.setattr(fetch_sessions, "MOST_SESSIONS", 3)
    monkeypatch.setattr(fetch_sessions, "MOST_PARTITIONS", 10)
    counters = Counters()
    sessions = FetchSessions(counters)
    for number in range(1, 6):
        goes(sessions, fetch(number, 0, 0, {A: 1}), number=number)
    assert list(sessions.sessions) == [3, 4, 5]
    assert asked(sessions, fetch(6, 2, 1, {})) is None

    assert asked(sessions, fetch(6, 3, 1, {("x", n): 1 for n in range(8)})) is None
    assert sessions.absent == "more than 10 partitions in fetch sessions"
    many = fetch(7, 0, 0, {("x", n): 1 for n in range(9)})
    session = sessions.request(many)
    assert isinstance(session, PartitionSession)
    body = sessions.forward(session, many)
    assert body is not None
    assert (len(body["topics"]), body["session_epoch"]) == (1, CLOSING)
    sessions.response(session, 0, 12)
    assert list(sessions.sessions) == [4, 5]
    assert counters.events["fetch_session_too_large"] == 1


def test_sessions_opened_at_once_are_bounded_when_they_are_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would fit when it is asked for."""
    monkeypatch.setattr(fetch_sessions, "MOST_PARTITIONS", 10)
    sessions = FetchSessions(Counters())
    made = [sessions.request(fetch(1, 0, 0, {("x", n): 1 for n in range(6)})) for _ in range(4)]
    for number, session in enumerate(made, 1):
        assert isinstance(session, PartitionSession)
        sessions.response(session, 0, number)

    assert sessions.size == 6
    assert list(sessions.sessions) == [4]


def test_memory_is_bounded_over_all_connections() -> None:
    """A session that finds no room goes on without one, as with a broker that has none; what ends makes room."""
    room, counters = SessionPartitionLimit(10), Counters()
    first, second = (FetchSessions(counters, room) for _ in range(2))
    goes(first, fetch(1, 0, 0, {("x", n): 1 for n in range(6)}), number=7)
    assert room.used == 6

    wide = fetch(1, 0, 0, {("y", n): 1 for n in range(6)})
    session = second.request(wide)
    assert isinstance(session, PartitionSession)
    body = second.forward(session, wide)
    assert body is not None
    assert (len(body["topics"][0]["partitions"]), body["session_epoch"]) == (6, CLOSING)
    second.response(session, 0, 0)
    assert (second.sessions, room.used, counters.events["sessions_without_room"]) == ({}, 6, 1)

    goes(second, fetch(2, 0, 0, {("y", n): 1 for n in range(4)}), number=8)
    assert room.used == 10
    assert second.request(fetch(3, 8, 1, {("y", 5): 1})) == fetch_sessions.NOT_FOUND
    assert second.absent == "no room for its partitions among the 10 of all connections"
    assert room.used == 6

    first.end()
    assert room.used == 0
    goes(second, wide, number=9)
    assert room.used == 6


def test_sessions_of_two_connections_that_open_at_once_share_the_room() -> None:
    """Each would fit when it is asked for; the one that is confirmed last cannot be continued."""
    room, counters = SessionPartitionLimit(10), Counters()
    made = [FetchSessions(counters, room) for _ in range(2)]
    wide = fetch(1, 0, 0, {("x", n): 1 for n in range(6)})
    begun = [sessions.request(wide) for sessions in made]
    for sessions, session in zip(made, begun, strict=True):
        assert isinstance(session, PartitionSession)
        sessions.response(session, 0, 3)
    assert (room.used, [sessions.size for sessions in made]) == (6, [6, 0])


def test_room_one_network_leaves_a_quarter_to_others() -> None:
    """The process has one share per network and, with several clusters, one per cluster."""
    room = SessionPartitionLimit(1000)
    shares = {
        (network, cluster): SessionPartitionShare(room, Facts("l", cluster, network))
        for network in "abc"
        for cluster in "xy"
    }
    first, second, third = shares["a", "x"], shares["b", "x"], shares["c", "y"]
    assert first.holds(750)
    assert not first.holds(751)
    first.take(750)
    assert not shares["a", "y"].holds(1), "it is the same network"
    assert second.holds(187)
    assert not second.holds(188)

    room.several = True
    assert not second.holds(1), "its cluster has its share"
    assert third.holds(187)
    third.take(187)
    for share, used in ((first, 750), (third, 187)):
        share.take(-used)
    assert (room.used, room.used_by) == (0, {})


def test_room_is_shared_by_connections_of_a_network() -> None:
    """The session of another network is remembered, the second one of the same network is not."""
    shared = ClusterState(room=SessionPartitionLimit(10))
    rules = "rules: [{name: r, kind: error, error: NOT_LEADER_OR_FOLLOWER, match: {topic: x, partition: 99}}]"
    topics = [{"topic": "x", "partitions": [{"partition": number} for number in range(6)]}]
    epochs = []
    for number, (network, count) in enumerate((("10.0.0.1", 6), ("10.0.0.1", 2), ("10.0.0.2", 2))):
        talk = Dialogue(rules, shared=shared, number=number, facts=Facts("main", "main", network))
        opened = [{"topic": "x", "partitions": topics[0]["partitions"][:count]}]
        talk.client(request(1, 12, 1, session_epoch=0, topics=opened)).broker(response(1, 12, 1, session_id=7))
        epochs.append(talk.requests()[0].body["session_epoch"])
    assert epochs == [0, CLOSING, 0]


def test_a_connection_that_ends_makes_room() -> None:
    """Whatever sessions it had: the room is that of all connections."""
    shared = ClusterState(room=SessionPartitionLimit(4))
    rules = "rules: [{name: r, kind: error, error: NOT_LEADER_OR_FOLLOWER, match: {topic: x, partition: 99}}]"
    talks = [Dialogue(rules, shared=shared, number=number) for number in (1, 2)]
    topics = [{"topic": "x", "partitions": [{"partition": number} for number in (1, 2)]}]
    for talk in talks:
        talk.client(request(1, 12, 1, session_epoch=0, topics=topics)).broker(response(1, 12, 1, session_id=7))
    epochs = [talk.requests()[0].body["session_epoch"] for talk in talks]
    assert (epochs, shared.room.used) == ([0, CLOSING], 2)
    for talk in talks:
        talk.session.end(0.0)
    assert shared.room.used == 0


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
        session = sessions.request(message)
        assert isinstance(session, PartitionSession)
        assert set(session.asked) == set(wanted)
        assert set(session.asked) == set(client.said)
        removed = taken & set(session.asked) if what != "answer" else set()
        if what in ("answer", "fail") or (removed and removed >= set(listed(message.body))):  # by kproxy
            error = 6 if what == "fail" else 0
            if removed:
                sessions.forget(session)
            said = {"session_id": message.body["session_id"]}
            sessions.own_answer(session, error, said)
            number = said["session_id"]
        else:
            body = sessions.forward(session, message, removed)
            error, number, fetched = broker.fetch(body or message.body)
            assert error in (0, NOT_FOUND)
            if not error:
                expected = dict(listed(message.body)) if removed else client.said
                assert fetched == {key: offset for key, offset in expected.items() if key not in removed}
            sessions.response(session, error, number)
        client.response(error, number)
    assert sessions.size == sum(len(one.asked) for one in sessions.sessions.values())


def test_frames_of_a_java_consumer() -> None:
    """What a consumer of Kafka 4.3 and a broker said: every request is about what the consumer had assigned then, and
    every partition of an answer is one of them."""
    sessions = FetchSessions(Counters())
    seen: list[int] = []
    for request_hex, response_hex in json.loads(CAPTURED.read_text()):
        request = decode_request(bytes.fromhex(request_hex))
        response = decode_response(bytes.fromhex(response_hex), 1, request.version)
        session = sessions.request(request)
        assert isinstance(session, PartitionSession)
        about = set(session.asked)
        assert sessions.forward(session, request) is None
        sessions.response(session, response.body["error_code"], response.body["session_id"])
        answered = {
            (topic["topic_id"], partition["partition_index"])
            for topic in response.body["responses"]
            for partition in topic["partitions"]
        }
        assert answered <= about
        seen.append(len(about))
    assert seen[0] == EXPECTED[0]
    assert [count for index, count in enumerate(seen) if index == 0 or seen[index - 1] != count] == EXPECTED


EXPECTED = [5]
"""Two topics of three and two partitions. The second was deleted in the end, which a consumer learns by errors."""
