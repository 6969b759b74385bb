"""What passes a client's connection, kept as frames and paired."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kproxy.base.errors import DecodeError
from kproxy.protocol.records import Record, encode_batch
from kproxy.rules.exchange import Facts
from kproxy.testing.exchanges import SeenExchanges, Topics
from kproxy.testing.recorder import Frames, Tape, TapedConnection
from kproxy.testing.rule_arguments import match_of
from kproxy.tools.rehearse.dialogue import request, response

NOW = 7.0
PRODUCE, FETCH, API_VERSIONS = 0, 1, 18


def frame(correlation: int, body: bytes = b"") -> bytes:
    """A request's (api key 0, version 0), size in front."""
    data = b"\0\0\0\0" + correlation.to_bytes(4, "big") + body
    return len(data).to_bytes(4, "big") + data


def answer(correlation: int, body: bytes = b"") -> bytes:
    """A response's, size in front."""
    data = correlation.to_bytes(4, "big") + body
    return len(data).to_bytes(4, "big") + data


@pytest.fixture
def connection() -> TapedConnection:
    """A connection of a tape that keeps 100 bytes or 5 exchanges."""
    session: Any = SimpleNamespace(number=1)
    return TapedConnection(Tape(100, 5), session)


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_frames_however_they_come(chunk: int) -> None:
    """Whole, in pieces, several at once; what is not complete waits."""
    frames, data = Frames(), frame(1, b"abc") + frame(2) + frame(3)[:-1]

    found = [one for at in range(0, len(data), chunk) for one in frames.add(data[at : at + chunk])]

    assert found == [frame(1, b"abc")[4:], frame(2)[4:]]
    assert list(frames.add(frame(3)[-1:])) == [frame(3)[4:]]


@pytest.mark.parametrize("size", [-5, 2**31 - 1])
def test_a_size_that_cannot_be_one(size: int) -> None:
    """What a rule like bad_length makes: no frames can be told apart from there on."""
    frames = Frames()

    assert list(frames.add(frame(1) + size.to_bytes(4, "big", signed=True) + b"rest")) == [frame(1)[4:]]
    assert list(frames.add(frame(2))) == []
    assert frames.cut == size


def test_answers_find_their_requests(connection: TapedConnection) -> None:
    """In whatever order they leave; one that belongs to nothing, and one that leaves twice, change nothing."""
    connection.said(frame(1) + frame(2) + frame(3), NOW)
    connection.heard(answer(2, b"two") + answer(1, b"one"), NOW + 1)
    connection.heard(answer(9) + answer(2, b"again"), NOW + 2)

    assert [(one.response or b"")[4:] for one in connection.tape.taken] == [b"one", b"two", b""]
    assert [(one.came, one.answered) for one in connection.tape.taken] == [(7, 8), (7, 8), (7, None)]


def test_answers_of_one_correlation_id_are_in_order(connection: TapedConnection) -> None:
    """A client sends it three times at once: each request has its own answer, also when the first is forgotten."""
    connection.said(frame(7, b"one") + frame(7, b"two") + frame(7, b"three"), 1.0)
    first, second, third = connection.tape.taken
    connection.heard(answer(7, b"1"), 2.0)
    connection.forget(second)
    connection.heard(answer(7, b"3"), 3.0)
    connection.heard(answer(7, b"4"), 4.0)

    assert [one.answered for one in (first, second, third)] == [2.0, None, 3.0]
    assert not connection.waiting


def test_no_more_is_kept_than_there_may_be(connection: TapedConnection) -> None:
    """The oldest go, counted, whether it is their number or their bytes; late answers to them are not kept either."""
    for number in range(7):
        connection.said(frame(number), NOW)
    assert (len(connection.tape.taken), connection.tape.forgotten, connection.tape.bytes) == (5, 2, 40)

    connection.heard(answer(0, b"late") + answer(6, b"x" * 88), NOW)
    assert [one.correlation[3] for one in connection.tape.taken] == [6]
    assert (connection.tape.forgotten, connection.tape.bytes, set(connection.waiting)) == (6, 100, set())


def test_one_id_for_several(connection: TapedConnection) -> None:
    """Answers leave in the order of the requests, so each finds its own; acks=0 has none."""
    no_answer = frame(1, b"\0\1a" + b"\0\0")  # Produce 0 of client "a" with acks=0
    connection.said(no_answer + frame(1, b"\0\1b\0\1") + frame(1, b"\0\1c\0\1"), NOW)
    connection.heard(answer(1, b"first") + answer(1, b"second"), NOW)

    assert [(one.response or b"")[4:] for one in connection.tape.taken] == [b"", b"first", b"second"]
    assert connection.waiting == {}


def test_what_cannot_be_told_apart_is_on_record(connection: TapedConnection) -> None:
    """By connection and direction, once."""
    connection.said(frame(1) + (-5).to_bytes(4, "big", signed=True) + b"rest", NOW)
    connection.said(frame(2), NOW)

    assert connection.tape.cut == {(1, "request"): -5}
    connection.tape.clear()
    assert connection.tape.cut == {}


def test_clearing(connection: TapedConnection) -> None:
    """Answers that are due from before belong to nothing; numbers begin anew."""
    connection.tape.connections[1] = connection
    connection.said(frame(1), NOW)

    connection.tape.clear()
    connection.heard(answer(1), NOW)
    connection.said(frame(1), NOW)

    assert [one.response for one in connection.tape.taken] == [None]
    assert (connection.tape.forgotten, connection.tape.bytes) == (0, 8)


def produce(correlation: int, value: bytes) -> bytes:
    """A Produce 4 of one record, size in front."""
    records = encode_batch([Record(0, 0, None, value)])
    topic = {"name": "t", "partition_data": [{"index": 3, "records": records}]}
    return request(PRODUCE, 4, correlation, acks=1, timeout_ms=9, topic_data=[topic])


def fetched(correlation: int, value: bytes) -> bytes:
    """A Fetch 4's answer with one record, size in front."""
    part = {"partition_index": 3, "error_code": 6, "records": encode_batch([Record(0, 0, None, value)])}
    return response(FETCH, 4, correlation, responses=[{"topic": "t", "partitions": [part]}])


def test_of_a_full_tape_the_records_go_first() -> None:
    """Of long frames both ways, the oldest first: each exchange keeps its place, sizes, names and errors; the newest
    are whole, and short ones as well."""
    facts = Facts("main", "main", "10.0.0.1")
    session: Any = SimpleNamespace(number=1, facts=facts, identity=None)
    tape = Tape(100_000)
    connection = TapedConnection(tape, session)
    asked, told = [], []
    for number in range(40):
        long = b"v" * (20_000 + number)
        asked += [produce(2 * number, long), request(FETCH, 4, 2 * number + 1)]
        told += [response(PRODUCE, 4, 2 * number), fetched(2 * number + 1, long)]
        for frame in asked[-2:]:
            connection.said(frame, NOW)
        for frame in told[-2:]:
            connection.heard(frame, NOW)
        assert tape.bytes == sum(one.size for one in tape.taken) <= 100_000

    seen = SeenExchanges(list(tape.taken), Topics())
    assert (tape.forgotten, len(seen.all)) == (0, 80)
    assert [one.request_bytes for one in seen.all] == [len(frame) - 4 for frame in asked]
    assert [one.response_bytes for one in seen.all] == [len(frame) - 4 for frame in told]
    assert [str(one) for one in seen.where(match_of({"api": "Produce", "topic": "t"}))] == ["Produce 4 (t)"] * 40
    assert len(seen.where(match_of({"error": "NOT_LEADER_OR_FOLLOWER"}))) == 0  # no Fetch names a topic here
    first, last = seen.all[0], seen.all[-2]
    assert [len(one.value or b"") for one in last.records] == [20_039]
    with pytest.raises(DecodeError, match="records are not kept any more, since the tape was full"):
        assert first.records
    digest = first.request.body["topic_data"][0]["partition_data"][0]["records"]
    assert (digest.records, digest.base_offset) == (1, 0)
    answer = seen.all[1].response
    assert answer is not None and answer.header == {"correlation_id": 1}
    assert answer.body["responses"][0]["partitions"][0]["error_code"] == 6


def test_what_is_forgotten_is_not_let_go_of_twice() -> None:
    """Long frames of exchanges that have gone by their number: what is counted stays what is there."""
    tape = Tape(100_000, 3)
    session: Any = SimpleNamespace(number=1)
    connection = TapedConnection(tape, session)
    for number in range(50):
        connection.said(produce(number, bytes(30_000)), NOW)
        connection.heard(fetched(number, bytes(30_000)), NOW)
        assert tape.bytes == sum(one.size for one in tape.taken)
        assert len(tape.long) <= len(tape.taken) <= 3
    assert tape.forgotten == 47


def test_a_long_frame_that_nobody_can_follow() -> None:
    """Of its beginning the header is kept, and that it was longer is said; the one behind it is whole."""
    facts = Facts("main", "main", "10.0.0.1")
    tape = Tape(20_000)
    session: Any = SimpleNamespace(number=1, facts=facts, identity=None)
    connection = TapedConnection(tape, session)
    broken = request(PRODUCE, 4, 7)[4:14] + b"\xff" * 300_000
    connection.said(len(broken).to_bytes(4, "big") + broken + request(API_VERSIONS, 0, 8), NOW)

    one, other = SeenExchanges(list(tape.taken), Topics()).all
    assert (one.api, one.request_bytes, tape.forgotten) == ("Produce", len(broken), 0)
    with pytest.raises(DecodeError, match="of 300010 bytes only the beginning is kept, since the tape was full"):
        assert one.request
    assert str(one) == "Produce 4 → unanswered"
    assert other.request.api.name == "ApiVersions"
