"""The tape of a test's proxy: exchanges of observers, evictions, invalid lengths."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kproxy.base.errors import DecodeError, InternalError
from kproxy.protocol.framing import framed
from kproxy.protocol.records import Record, encode_batch
from kproxy.record.exchange import Depth
from kproxy.record.fanout import Fanout, TailSink
from kproxy.record.filters import Filter
from kproxy.record.observer.observer import ConnectionObserver
from kproxy.rules.exchange import Facts
from kproxy.testing.exchanges import SeenExchanges, Topics
from kproxy.testing.recorder import FRONT, LARGEST, Tape
from kproxy.testing.rule_arguments import match_of
from kproxy.tools.rehearse.dialogue import request, response

NOW = 7.0
PRODUCE, FETCH, HEARTBEAT, SASL_AUTHENTICATE, API_VERSIONS = 0, 1, 12, 36, 18


class Watched:
    """Connection of a test's client and its tap, which feeds a tape."""

    def __init__(self, tape: Tape) -> None:
        session = SimpleNamespace(number=1, identity=None)
        connection = SimpleNamespace(facts=Facts("test", "main", "10.0.0.1"), session=session)
        self.who: Any = SimpleNamespace(number=1, listener="test", invalid=({}, {}), end=None, connection=connection)
        self.tape, self.client_left = tape, False
        self.observer = ConnectionObserver(self.who, tape.depth, tape.take, most=LARGEST)
        self.behind, self.connection = None, self
        tap: Any = self
        tape.taps = lambda: (tap,)

    @property
    def invalid(self) -> Any:
        return self.observer.invalid, {}

    def said(self, data: bytes, now: float = NOW) -> None:
        self.observer.from_client(data, len(data), now)

    def heard(self, data: bytes, now: float = NOW) -> None:
        self.observer.to_client(data, len(data), now)

    def end(self, cause: str) -> None:
        self.observer.end(NOW)
        self.who.end, self.who.invalid = SimpleNamespace(cause=cause), self.invalid
        self.tape.taps = tuple
        self.tape.closed(self.who, NOW)


def beat(correlation: int, group: str = "g") -> bytes:
    return request(HEARTBEAT, 0, correlation, group_id=group)


answer = partial(response, HEARTBEAT, 0)


def produce(correlation: int, value: bytes) -> bytes:
    """Return a Produce 4 with one record."""
    records = encode_batch([Record(0, 0, None, value)])
    topic = {"name": "t", "partition_data": [{"index": 3, "records": records}]}
    return request(PRODUCE, 4, correlation, acks=1, timeout_ms=9, topic_data=[topic])


def fetched(correlation: int, value: bytes) -> bytes:
    """Return the response to a Fetch 4 with one record."""
    part = {"partition_index": 3, "error_code": 6, "records": encode_batch([Record(0, 0, None, value)])}
    return response(FETCH, 4, correlation, responses=[{"topic": "t", "partitions": [part]}])


def test_tape_pending_requests_are_listed_in_order() -> None:
    """Exchanges have the order of their requests. Stray responses, and requests without acks, receive no response."""
    watched = Watched(tape := Tape())
    watched.said(request(PRODUCE, 3, 1, acks=0) + beat(1) + beat(2) + beat(3) + beat(4)[:-1])
    watched.heard(answer(2) + answer(1), NOW + 1)
    watched.heard(answer(9) + answer(2), NOW + 2)

    found = [(one.seen.correlation_id, one.answered) for one in tape.exchanges(FRONT)]
    assert found == [(1, None), (1, NOW + 1), (2, NOW + 1), (3, None)]


@pytest.mark.parametrize("size", [-5, 3, 2**31 - 1])
@pytest.mark.parametrize("ends", [False, True])
def test_tape_invalid_length_is_reported_once(size: int, ends: bool) -> None:
    """A rule such as bad_length makes it. The length is known while the connection is open and after its end."""
    watched = Watched(tape := Tape())
    watched.said(beat(1) + size.to_bytes(4, "big", signed=True) + b"rest" * 4)
    watched.said(beat(2))
    watched.heard(answer(1) + size.to_bytes(4, "big", signed=True) + b"rest" * 9)
    if ends:
        watched.end("client_closed")

    found, forgotten, invalid = tape.snapshot()
    assert ([one.seen.correlation_id for one in found], forgotten) == ([1], 0)
    assert invalid == {(1, "request"): size, (1, "response"): size}
    tape.clear()
    assert not tape.front.invalid


def test_tape_closed_connection_gives_the_cause() -> None:
    """The cause is that of the connection's end, or that the client has closed while its request is held."""
    watched = Watched(tape := Tape())
    watched.said(beat(1) + beat(2) + beat(3)[:-1])
    watched.heard(answer(1))
    assert [one.cut_by for one in tape.exchanges(FRONT)] == ["", ""]
    watched.client_left = True
    assert [one.cut_by for one in tape.exchanges(FRONT)] == ["", "client_closed"]
    watched.end("idle_timeout")
    assert [one.cut_by for one in tape.exchanges(FRONT)] == ["", "idle_timeout"]


def test_tape_full_evicts_oldest_exchanges() -> None:
    """The number and the bytes of exchanges are limited; evicted exchanges are counted."""
    tape = Tape(1000, 5)
    watched = Watched(tape)
    for number in range(7):
        watched.said(beat(number))
        watched.heard(answer(number))
    assert (len(tape.front.taken), tape.front.forgotten) == (5, 2)
    assert tape.front.bytes == sum(one.size for one in tape.front.taken)

    watched.said(beat(9, "g" * 970))
    watched.heard(answer(9))
    assert [one.seen.correlation_id for one in tape.front.taken] == [9]
    assert (tape.front.forgotten, tape.front.bytes) == (7, tape.front.taken[0].size)


def test_tape_cleared_keeps_later_requests_only() -> None:
    watched = Watched(tape := Tape())
    watched.said(beat(1))
    tape.clear()
    since = tape.since
    watched.heard(answer(1), since + 1)
    watched.said(beat(1), since + 1)

    assert [(one.request.last, one.answered) for one in tape.exchanges(FRONT)] == [(since + 1, None)]
    assert (tape.front.forgotten, tape.front.bytes, tape.began_before) == (0, 0, True)


def test_tape_alone_keeps_credentials() -> None:
    """A test reads what its client sent. No other sink can be attached, and other sinks receive no credentials."""
    tape = Tape()
    log: Any = None
    fanout = Fanout(log)
    fanout.add_alone(tape, LARGEST)
    assert (fanout.depth(SASL_AUTHENTICATE, 0), fanout.frame_limit) == (Depth.RAW, LARGEST)
    watched = Watched(tape)
    watched.said(request(SASL_AUTHENTICATE, 0, 1, auth_bytes=b"secret"))
    watched.heard(response(SASL_AUTHENTICATE, 0, 1, auth_bytes=b"proof"))
    (one,) = SeenExchanges(tape.exchanges(FRONT), Topics()).all
    assert one.response is not None
    assert (one.request.body["auth_bytes"], one.response.body["auth_bytes"]) == (b"secret", b"proof")

    tail = TailSink(Filter(""), lambda seen: {}, lambda: None)
    for attach in (fanout.add, lambda sink: fanout.add_sampler(sink, lambda seconds: None)):
        with pytest.raises(InternalError, match="expected no sink after a sink that receives credentials"):
            attach(tail)
    with pytest.raises(InternalError, match="expected no sink before a sink that receives credentials"):
        fanout.add_alone(tail, LARGEST)
    other = Fanout(log)
    other.add(tape)
    assert other.depth(SASL_AUTHENTICATE, 0) is Depth.FULL


def test_tape_full_evicts_records_of_long_frames_first() -> None:
    """Each exchange keeps its place, sizes, names and errors; the newest frames and short ones stay whole."""
    watched = Watched(tape := Tape(100_000))
    asked, told = [], []
    for number in range(40):
        long = b"v" * (20_000 + number)
        asked += [produce(2 * number, long), request(FETCH, 4, 2 * number + 1)]
        told += [response(PRODUCE, 4, 2 * number), fetched(2 * number + 1, long)]
        watched.said(b"".join(asked[-2:]))
        watched.heard(b"".join(told[-2:]))
        assert tape.front.bytes == sum(one.size for one in tape.front.taken) <= 100_000

    seen = SeenExchanges(tape.exchanges(FRONT), Topics())
    assert (tape.front.forgotten, len(seen.all)) == (0, 80)
    assert [one.request_bytes for one in seen.all] == [len(sent) - 4 for sent in asked]
    assert [one.response_bytes for one in seen.all] == [len(sent) - 4 for sent in told]
    assert [str(one) for one in seen.where(match_of({"api": "Produce", "topic": "t"}))] == ["Produce 4 (t)"] * 40
    assert len(seen.where(match_of({"error": "NOT_LEADER_OR_FOLLOWER"}))) == 0  # no Fetch names a topic here
    first, last = seen.all[0], seen.all[-2]
    assert [len(one.value or b"") for one in last.records] == [20_039]
    with pytest.raises(DecodeError, match="records are not kept any more, since the tape was full"):
        assert first.records
    digest = first.request.body["topic_data"][0]["partition_data"][0]["records"]
    assert (digest.records, digest.base_offset) == (1, 0)
    response_of_fetch = seen.all[1].response
    assert response_of_fetch is not None and response_of_fetch.header == {"correlation_id": 1}
    assert response_of_fetch.body["responses"][0]["partitions"][0]["error_code"] == 6


def test_tape_evicted_long_exchanges_count_once() -> None:
    """Exchanges that are evicted for their number leave the list of long ones."""
    watched = Watched(tape := Tape(100_000, 3))
    for number in range(50):
        watched.said(produce(2 * number, bytes(30_000)) + request(FETCH, 4, 2 * number + 1))
        watched.heard(response(PRODUCE, 4, 2 * number) + fetched(2 * number + 1, bytes(30_000)))
        assert tape.front.bytes == sum(one.size for one in tape.front.taken)
        assert len(tape.front.long) <= len(tape.front.taken) <= 3
    assert tape.front.forgotten == 97


def test_tape_full_cuts_unreadable_long_frame() -> None:
    """Its header is kept, and an error reports its length; the next frame stays whole."""
    watched = Watched(tape := Tape(20_000))
    broken = request(PRODUCE, 4, 7)[4:14] + b"\xff" * 300_000
    watched.said(framed(broken) + request(API_VERSIONS, 0, 8))
    watched.heard(response(PRODUCE, 4, 7) + response(API_VERSIONS, 0, 8))

    one, other = SeenExchanges(tape.exchanges(FRONT), Topics()).all
    assert (one.api, one.request_bytes, tape.front.forgotten) == ("Produce", len(broken), 0)
    with pytest.raises(DecodeError, match="of 300010 bytes only the beginning is kept, since the tape was full"):
        assert one.request
    assert str(one).startswith("Produce 4")
    assert other.request.api.name == "ApiVersions"
