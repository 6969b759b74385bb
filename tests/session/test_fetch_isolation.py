"""Fetch and share sessions as ways around `deny`: whatever its clients send, no record of a denied topic reaches them.

The broker here keeps sessions as Kafka does: for all connections together, known by a number or by group and member,
continued by whoever names the right epoch. Beside the clients behind kproxy there is one that is not, and may read all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kproxy.protocol import decode_request, encode
from kproxy.protocol.codec.message import Message
from kproxy.session import fetch_sessions
from kproxy.session import fetch_sessions as share_sessions
from kproxy.session.partition_session import next_epoch
from kproxy.session.plan import Plan
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
FETCH, METADATA, SHARE_FETCH, SHARE_ACKNOWLEDGE = 1, 3, 78, 79
NOT_FOUND, WRONG_EPOCH, UNKNOWN_ID, TOPIC_ID_ERROR, DENIED = 70, 71, 100, 106, 29
SHARE_NOT_FOUND, SHARE_WRONG_EPOCH = 122, 123
LAST = 2**31 - 1

TOPICS = ("open.y", "open.z", "secret.x", "later.w")
IDS = {name: UUID(int=1000 + number) for number, name in enumerate(TOPICS)}
NAMES = {topic_id: name for name, topic_id in IDS.items()}
NOBODYS = UUID(int=77)
DENY = """rules:
  - {name: fault, kind: error, match: {api: Fetch, topic: open.z}, error: 6, when: {every: 3}}
  - {name: secret, kind: deny, match: {topic: "secret*"}}
  - {name: later, kind: deny, match: {topic: "later*"}}
"""

Part = tuple[str | UUID, int]
Session = tuple[int, dict[Part, None], bool]
"""Its next epoch, its partitions, and whether these are told apart by topic id."""


def topics_of(parts: Sequence[Part], field: str, **more: Any) -> list[dict[str, Any]]:
    """Each partition in an entry of its own, so that topics and partitions may be there twice."""
    return [
        {("topic_id" if isinstance(topic, UUID) else "topic"): topic, "partitions": [{field: number, **more}]}
        for topic, number in parts
    ]


def listed(message: Message, field: str = "partition") -> list[Part]:
    return [
        (topic["topic_id"] if "topic_id" in topic else topic["topic"], part[field])
        for topic in message.body["topics"]
        for part in topic["partitions"]
    ]


def forgotten(message: Message) -> list[Part]:
    return [
        (topic["topic_id"] if "topic_id" in topic else topic["topic"], part)
        for topic in message.body.get("forgotten_topics_data") or ()
        for part in topic["partitions"]
    ]


class Broker:
    """Every partition has a record that is its topic's name."""

    def __init__(self) -> None:
        self.sessions: dict[int, Session] = {}
        self.shared: dict[tuple[str, str], Session] = {}
        self.given = 0

    def answer(self, frame: bytes) -> bytes:
        message = decode_request(frame)
        key, version, number = message.api.key, message.version, message.header["correlation_id"]
        if key == METADATA:
            topics = [{"name": name, "topic_id": topic_id, "partitions": []} for name, topic_id in IDS.items()]
            return response(key, version, number, topics=topics)
        if key == FETCH:
            error, session, parts = self.fetch(message)
            body: dict[str, Any] = {"responses": said(parts)}
            body |= {"session_id": session, "error_code": error} if version >= 7 else {}
            return response(key, version, number, **body)
        error, parts = self.share(message)
        return response(key, version, number, error_code=error, responses=said(parts) if key == SHARE_FETCH else [])

    def fetch(self, message: Message) -> tuple[int, int, list[Part]]:
        body, asked, by_id = message.body, dict.fromkeys(listed(message)), message.version >= 13
        number, epoch = body.get("session_id", 0), body.get("session_epoch", -1)
        if epoch in (0, -1):
            self.sessions.pop(number, None)
            if epoch == -1 or not asked:
                return 0, 0, list(asked)
            self.given += 1
            self.sessions[self.given] = 1, asked, by_id
            return 0, self.given, list(asked)
        if number not in self.sessions:
            return NOT_FOUND, 0, []
        expected, parts, ids = self.sessions[number]
        if epoch != expected:
            return WRONG_EPOCH, 0, []
        if ids != by_id:
            return TOPIC_ID_ERROR, 0, []
        parts.update(asked)
        for part in forgotten(message):
            parts.pop(part, None)
        self.sessions[number] = next_epoch(epoch), parts, ids
        if not parts:
            del self.sessions[number]
        return 0, number if parts else 0, list(parts)

    def share(self, message: Message) -> tuple[int, list[Part]]:
        body, asked = message.body, dict.fromkeys(listed(message, "partition_index"))
        owner, epoch = (body["group_id"], body["member_id"]), body["share_session_epoch"]
        acknowledges = message.api.key == SHARE_ACKNOWLEDGE
        if epoch == 0 and not acknowledges:
            self.shared[owner] = 1, asked, True
            return 0, list(asked)
        if owner not in self.shared:
            return SHARE_NOT_FOUND, []
        expected, parts, _ = self.shared[owner]
        if epoch == -1:
            del self.shared[owner]
            return 0, []
        if epoch != expected:
            return SHARE_WRONG_EPOCH, []
        if not acknowledges:
            parts.update(asked)
            for part in forgotten(message):
                parts.pop(part, None)
        self.shared[owner] = next_epoch(epoch), parts, True
        return 0, list(parts)


def said(parts: Sequence[Part]) -> list[dict[str, Any]]:
    made = []
    for topic, number in parts:
        name = NAMES.get(topic) if isinstance(topic, UUID) else topic
        answer = {"error_code": UNKNOWN_ID} if name is None else {"records": f"<record of {name}>".encode()}
        made += topics_of([(topic, number)], "partition_index", **answer)
    return made


class Line:
    """A client's connection through kproxy, and what of it the broker has seen so far."""

    def __init__(self, number: int) -> None:
        self.talk = Dialogue(DENY, number=number)
        self.rules = list(self.talk.rules.live)
        self.seen = 0

    def use(self, *names: str) -> None:
        live = [one for one in self.rules if one.name in names]
        self.talk.session.use(Plan(self.talk.session.plan.bound, live), self.talk.now)
        self.talk.obey()

    def deliver(self, broker: Broker, most: int, chunk: int) -> None:
        """The broker answers at most so many requests."""
        for _ in range(most):
            waiting = frames(self.talk.to_broker)[self.seen :]
            if not waiting or self.talk.closed is not None:
                return
            self.seen += 1
            self.talk.broker(broker.answer(waiting[0]), chunk)

    def got(self, topic: str) -> bool:
        return f"<record of {topic}>".encode() in self.talk.to_client


def fetch(
    version: int, correlation: int, session: int, epoch: int, parts: Sequence[Part], gone: Sequence[Part] = ()
) -> bytes:
    """A Fetch request; `parts` by topic name."""
    by_id = version >= 13
    key = (lambda part: (IDS.get(str(part[0]), NOBODYS), part[1])) if by_id else (lambda part: part)
    body: dict[str, Any] = {"topics": topics_of([key(part) for part in parts], "partition")}
    if version >= 7:
        left = [{"topic_id" if by_id else "topic": key(part)[0], "partitions": [part[1]]} for part in gone]
        body |= {"session_id": session, "session_epoch": epoch, "forgotten_topics_data": left}
    return request(FETCH, version, correlation, **body)


def share(
    key: int, correlation: int, member: str, epoch: int, parts: Sequence[Part], gone: Sequence[Part] = ()
) -> bytes:
    """A ShareFetch or ShareAcknowledge request."""
    topics = topics_of([(IDS.get(str(name), NOBODYS), number) for name, number in parts], "partition_index")
    body: dict[str, Any] = {"group_id": "g", "member_id": member, "share_session_epoch": epoch, "topics": topics}
    if key == SHARE_FETCH:
        body["forgotten_topics_data"] = [
            {"topic_id": IDS.get(str(name), NOBODYS), "partitions": [number]} for name, number in gone
        ]
    return request(key, 1, correlation, **body)


SECRET, OPEN, OTHER = ("secret.x", 0), ("open.y", 0), ("open.z", 0)


@pytest.mark.parametrize("version", [7, 11, 12])
def test_requests_with_one_correlation_id_have_sessions_of_their_own(version: int) -> None:
    """Two that open sessions are sent together: each session holds what its own request listed, without the denied."""
    line, broker = Line(1), Broker()
    line.talk.client(fetch(version, 5, 0, 0, [SECRET, OPEN]) + fetch(version, 5, 0, 0, [OPEN, OTHER]))
    line.deliver(broker, 2, 0)
    for session in (1, 2):
        line.talk.client(fetch(version, 6, session, 1, []))
        line.deliver(broker, 1, 0)

    assert not line.got("secret.x")
    assert line.got("open.y")
    assert not any("secret.x" in part for _, parts, _ in broker.sessions.values() for part in parts)


@pytest.mark.parametrize("version", [4, 11, 12, 13, 17])
def test_a_broker_never_sees_what_a_rule_refuses(version: int) -> None:
    """The client is told the error for it, gets the rest, and no session; with nothing left the broker is not asked."""
    line, broker = Line(1), Broker()
    line.talk.client(request(METADATA, 12, 0, topics=None))
    line.deliver(broker, 1, 0)
    line.talk.client(fetch(version, 1, 0, 0, [OPEN, SECRET]) + fetch(version, 2, 0, 0, [SECRET]))
    line.deliver(broker, 9, 0)

    _, mixed, denied = line.talk.responses((METADATA, 12), (FETCH, version), (FETCH, version))
    errors = [[topic["partitions"][0]["error_code"] for topic in one.body["responses"]] for one in (mixed, denied)]
    assert errors == [[0, DENIED], [DENIED]]
    assert (mixed.body.get("session_id", 0), denied.body.get("session_id", 0)) == (0, 0)
    assert line.got("open.y")
    assert not line.got("secret.x")
    asked = [message for message in line.talk.requests() if message.api.key == FETCH]
    assert [len(message.body["topics"]) for message in asked] == [1]
    assert asked[0].body["max_wait_ms"] == decode_request(fetch(version, 1, 0, 0, [])[4:]).body["max_wait_ms"]


def test_a_fault_in_front_of_deny_shows_no_broker_what_is_denied() -> None:
    """The fault's error is the first that is decided; the partition stays out of the broker's session all the same."""
    line, broker = Line(1), Broker()
    line.talk = Dialogue(
        "rules:\n  - {name: fault, kind: error, match: {api: Fetch, topic: '*'}, error: 6, when: {nth: 1}}\n"
        "  - {name: secret, kind: deny, match: {topic: 'secret*'}}\n"
    )
    line.talk.client(fetch(12, 1, 0, 0, [OPEN, SECRET]) + fetch(12, 2, 0, 0, [OPEN, SECRET]))
    line.deliver(broker, 9, 0)

    answers = line.talk.responses(*[(FETCH, 12)] * 2)
    errors = [[topic["partitions"][0]["error_code"] for topic in one.body["responses"]] for one in answers]
    assert errors == [[6, 6], [0, DENIED]]
    assert not any("secret.x" in part for message in line.talk.requests() for part in listed(message))


def test_a_session_that_a_denied_partition_comes_to_is_closed() -> None:
    """An incremental request that adds one: the broker's session ends with it, the client begins anew."""
    line, broker = Line(1), Broker()
    line.talk.client(fetch(12, 1, 0, 0, [OPEN]))
    line.deliver(broker, 1, 0)
    line.talk.client(fetch(12, 2, 1, 1, [OTHER, SECRET]))
    line.deliver(broker, 1, 0)
    line.talk.client(fetch(12, 3, 1, 2, []))
    line.deliver(broker, 1, 0)

    answers = line.talk.responses(*[(FETCH, 12)] * 3)
    assert [one.body["session_id"] for one in answers] == [1, 0, 0]
    assert [one.body["error_code"] for one in answers] == [0, 0, NOT_FOUND]
    assert not broker.sessions
    assert not line.got("secret.x")


def test_a_rule_that_comes_later_holds_for_what_a_session_has() -> None:
    """A deny rule is added while a session with the partition is open."""
    line, broker = Line(1), Broker()
    line.use("secret")
    line.talk.client(fetch(12, 1, 0, 0, [OPEN, ("later.w", 0)]))
    line.deliver(broker, 1, 0)
    before = line.talk.to_client.count(b"<record of later.w>")
    line.use("secret", "later")
    line.talk.client(fetch(12, 2, 1, 1, []))
    line.deliver(broker, 1, 0)
    line.talk.client(fetch(12, 3, 1, 2, []) + fetch(12, 4, 0, 0, [OPEN, ("later.w", 0)]))
    line.deliver(broker, 2, 0)

    assert before == 1
    assert line.talk.to_client.count(b"<record of later.w>") == before


def test_a_session_of_another_connection_is_continued_by_nobody() -> None:
    """Brokers would let them: numbers of sessions are known to whoever hears or guesses them."""
    first, second, broker = Line(1), Line(2), Broker()
    broker.sessions[9] = 1, {SECRET: None, OPEN: None}, False
    for epoch in (1, 2):
        second.talk.client(fetch(12, epoch, 9, epoch, []))
        second.deliver(broker, 1, 0)
    first.talk.client(fetch(12, 1, 0, 0, [OPEN]))
    first.deliver(broker, 1, 0)
    # somebody else adds to it, and the client asks twice: the first is refused by the broker, the second would fit
    broker.fetch(decode_request(fetch(12, 1, 1, 1, [SECRET])[4:]))
    first.talk.client(fetch(12, 2, 1, 1, []) + fetch(12, 3, 1, 2, []))
    first.deliver(broker, 2, 0)
    first.talk.client(fetch(12, 4, 1, 2, []))
    first.deliver(broker, 1, 0)

    assert not first.got("secret.x")
    assert not second.got("secret.x")
    assert not second.got("open.y")


def test_an_answer_of_kproxy_opens_no_session() -> None:
    """A client names a number in a request that opens a session, and kproxy answers it: the number stands for none."""
    line, broker = Line(1), Broker()
    line.talk.client(fetch(12, 1, 77, 0, [SECRET]))
    line.talk.client(fetch(12, 2, 77, 1, []))

    answers = line.talk.responses(*[(FETCH, 12)] * 2)
    assert [(one.body["session_id"], one.body["error_code"]) for one in answers] == [(0, 0), (0, NOT_FOUND)]
    assert not broker.sessions


@pytest.mark.parametrize("chunk", [0, 1])
def test_a_share_session_is_what_its_last_answer_says(chunk: int) -> None:
    """A second request of a session is refused while the first is unanswered, and an error of the broker ends it."""
    line, broker = Line(1), Broker()
    line.talk.client(request(METADATA, 12, 0, topics=None))
    line.deliver(broker, 1, 0)
    line.talk.client(share(SHARE_FETCH, 1, "m", 0, [OPEN, SECRET]))
    line.deliver(broker, 9, chunk)
    line.talk.client(share(SHARE_ACKNOWLEDGE, 2, "m", 1, [OPEN]))
    line.deliver(broker, 9, chunk)
    line.talk.client(share(SHARE_FETCH, 3, "m", 2, []))
    line.deliver(broker, 9, chunk)
    known = broker.shared["g", "m"]
    broker.shared["g", "m"] = known[0] + 1, {(IDS["secret.x"], 0): None}, True  # somebody else has used it
    line.talk.client(share(SHARE_FETCH, 4, "m", 3, []) + share(SHARE_FETCH, 5, "m", 4, []))
    line.deliver(broker, 9, chunk)
    line.talk.client(share(SHARE_FETCH, 6, "m", 4, []))
    line.deliver(broker, 9, chunk)

    answers = line.talk.responses((METADATA, 12), (SHARE_FETCH, 1), (SHARE_ACKNOWLEDGE, 1), *[(SHARE_FETCH, 1)] * 4)
    assert [one.body["error_code"] for one in answers[1:]] == [
        0, 0, 0, SHARE_WRONG_EPOCH, SHARE_NOT_FOUND, SHARE_NOT_FOUND,
    ]  # fmt: skip
    assert not line.got("secret.x")
    assert line.got("open.y")


# ---- whatever is sent

PARTS = st.lists(st.tuples(st.sampled_from((*TOPICS, "nobody")), st.integers(0, 1)), max_size=4)
CHUNKS = st.sampled_from((0, 0, 1, 7, 40))
CORRELATIONS = st.integers(1, 2)


class Machine(RuleBasedStateMachine):
    """Two clients that are denied two topics, one of them from some moment on, and one that nobody stands before."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker()
        self.lines = [Line(1), Line(2)]
        self.unanswered = [b"", b""]
        self.denied = ["secret.x"]
        self.later = [0, 0]

    @initialize(known=st.booleans(), small=st.booleans())
    def begin(self, known: bool, small: bool) -> None:
        """kproxy may know the names of topic ids already, and have little memory."""
        self.limits = fetch_sessions.MOST_SESSIONS, fetch_sessions.MOST_PARTITIONS
        if small:
            for module in (fetch_sessions, share_sessions):
                module.MOST_SESSIONS, module.MOST_PARTITIONS = 2, 5  # type: ignore[attr-defined]
        for line in self.lines:
            line.use("fault", "secret")
            if known:
                line.talk.client(request(METADATA, 12, 0, topics=None))
                line.deliver(self.broker, 1, 0)

    def teardown(self) -> None:
        for module in (fetch_sessions, share_sessions):
            module.MOST_SESSIONS, module.MOST_PARTITIONS = self.limits  # type: ignore[attr-defined]

    @rule(
        who=st.integers(0, 1), version=st.sampled_from((4, 7, 12, 12, 13, 17)), correlation=CORRELATIONS,
        session=st.integers(0, 8), epoch=st.sampled_from((0, 0, 0, -1, 1, 1, 2, 3, 4, -2, LAST)), parts=PARTS,
        gone=PARTS, chunk=CHUNKS,
    )  # fmt: skip
    def fetch(self, who: int, version: int, correlation: int, session: int, epoch: int, parts: list[Part],
              gone: list[Part], chunk: int) -> None:  # fmt: skip
        """Any Fetch at all; sessions have small numbers here, as if they were guessed."""
        self.send(who, fetch(version, correlation, session, epoch, parts, gone), chunk)

    @rule(who=st.integers(0, 1), parts=PARTS, gone=PARTS, correlation=CORRELATIONS, chunk=CHUNKS, data=st.data())
    def continue_one(self, who: int, parts: list[Part], gone: list[Part], correlation: int, chunk: int,
                     data: st.DataObject) -> None:  # fmt: skip
        """With the epoch that the broker expects, or one of the next."""
        if self.broker.sessions:
            number = data.draw(st.sampled_from(sorted(self.broker.sessions)))
            epoch, _, by_id = self.broker.sessions[number]
            epoch += data.draw(st.integers(0, 2))
            self.send(who, fetch(17 if by_id else 12, correlation, number, epoch, parts, gone), chunk)

    @rule(
        who=st.integers(0, 1), key=st.sampled_from((SHARE_FETCH, SHARE_FETCH, SHARE_ACKNOWLEDGE)),
        correlation=CORRELATIONS, member=st.sampled_from("mn"), epoch=st.sampled_from((0, 0, -1, 1, 2, 3, 4, LAST)),
        parts=PARTS, gone=PARTS, chunk=CHUNKS,
    )  # fmt: skip
    def share(self, who: int, key: int, correlation: int, member: str, epoch: int, parts: list[Part],
              gone: list[Part], chunk: int) -> None:  # fmt: skip
        """Any ShareFetch or ShareAcknowledge; members are known to all."""
        self.send(who, share(key, correlation, member, epoch, parts, gone), chunk)

    @rule(data=st.data(), parts=PARTS, gone=PARTS)
    def somebody_else(self, data: st.DataObject, parts: list[Part], gone: list[Part]) -> None:
        """A client that is not behind kproxy continues a session, with whatever partitions it likes."""
        if self.broker.sessions and data.draw(st.booleans()):
            number = data.draw(st.sampled_from(sorted(self.broker.sessions)))
            epoch, _, by_id = self.broker.sessions[number]
            self.broker.answer(fetch(17 if by_id else 12, 1, number, epoch, parts, gone)[4:])
        elif self.broker.shared:
            group, member = data.draw(st.sampled_from(sorted(self.broker.shared)))
            epoch = self.broker.shared[group, member][0]
            self.broker.answer(share(SHARE_FETCH, 1, member, epoch, parts, gone)[4:])

    @rule(who=st.integers(0, 1), most=st.integers(1, 3), chunk=CHUNKS)
    def answer(self, who: int, most: int, chunk: int) -> None:
        """The broker gets to the next requests."""
        self.lines[who].deliver(self.broker, most, chunk)
        self.look()

    @rule(kept=st.sampled_from(([], ["secret"], ["fault", "secret"])))
    def deny_more(self, kept: list[str]) -> None:
        """The other rule comes; from now on what it denies is denied in sessions that are open, too."""
        for who, line in enumerate(self.lines):
            line.deliver(self.broker, 99, 0)
            if "later.w" not in self.denied:
                self.later[who] = line.talk.to_client.count(b"<record of later.w>")
            line.use("secret", "later", *kept)
        self.denied = ["secret.x", "later.w"]

    def send(self, who: int, data: bytes, chunk: int) -> None:
        line = self.lines[who]
        if line.talk.closed is None:
            line.talk.client(data, chunk)
        self.look()

    def look(self) -> None:
        for who, line in enumerate(self.lines):
            assert not line.got("secret.x")
            if "later.w" in self.denied:
                assert line.talk.to_client.count(b"<record of later.w>") == self.later[who]
            for frame in frames(line.talk.to_broker):
                message = decode_request(frame)
                if message.api.key == FETCH:
                    names = {
                        NAMES.get(topic, topic) if isinstance(topic, UUID) else topic for topic, _ in listed(message)
                    }
                    assert "secret.x" not in names


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    deadline=None, max_examples=1500 if EVERYTHING else 25, stateful_step_count=40 if EVERYTHING else 25
)


def test_frames_are_what_they_are_called() -> None:
    """The requests here are read as they were meant."""
    message = decode_request(fetch(17, 3, 4, 5, [SECRET, SECRET], [OPEN])[4:])
    assert listed(message) == [(IDS["secret.x"], 0)] * 2
    assert forgotten(message) == [(IDS["open.y"], 0)]
    assert encode(message) == fetch(17, 3, 4, 5, [SECRET, SECRET], [OPEN])[4:]
