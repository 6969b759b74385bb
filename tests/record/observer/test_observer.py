"""Frames of a connection become exchanges: pairs, outcomes, waits, what is kept of them, and what is not."""

from __future__ import annotations

import pytest

from kproxy.protocol.framing import framed
from kproxy.protocol.records import Record, encode_batch
from kproxy.record.exchange import Depth, Form
from kproxy.record.observer.exchange_builder import KEPT, MOST_OPEN
from kproxy.tools.rehearse.dialogue import request, response
from tests.record.observer.watching import Watching, told
from tests.support.frames import produce

METADATA, HEARTBEAT, PRODUCE, FETCH, API_VERSIONS = 3, 12, 0, 1, 18
BATCH = encode_batch([Record(at, 0, b"k", b"v" * 10) for at in range(4)])


def test_an_exchange() -> None:
    """A request and its response are handed out together, with times, sizes and bodies."""
    watching = Watching(Depth.SKETCH)
    asked, answer = request(HEARTBEAT, 4, 5, "app", group_id="g"), response(HEARTBEAT, 4, 5, error_code=27)
    watching.client(asked)
    assert watching.seen == []
    watching.now = 100.5
    (seen,) = watching.broker(answer).seen
    assert seen.request is not None and seen.response is not None
    assert seen.request_body is not None and seen.response_body is not None

    assert ("Heartbeat", 4, 5, "app", 1, "answered") == (
        seen.api, seen.version, seen.correlation_id, seen.client_id, seen.number, seen.outcome)  # fmt: skip
    assert ((len(asked), 100.0), (len(answer), 100.5)) == (
        (seen.request.size, seen.request.first), (seen.response.size, seen.response.last))  # fmt: skip
    assert ("g", 27) == (seen.request_body["group_id"], seen.response_body["error_code"])
    assert (1, 1, 0, 0, len(asked), len(answer)) == watching.counts()


def test_times_of_frames_in_pieces() -> None:
    """`first` is when a frame's first byte came, `last` when it was whole."""
    watching = Watching(Depth.FULL)
    asked = request(METADATA, 9, 5)
    watching.client(asked[:3])
    watching.now = 101.0
    watching.client(asked[3:])
    (seen,) = watching.end().seen
    assert seen.request is not None

    assert (100.0, 101.0) == (seen.request.first, seen.request.last)


@pytest.mark.parametrize("chunk", [0, 1])
@pytest.mark.parametrize("version", [2, 3, 9, 12])
def test_a_write_without_acks(version: int, chunk: int) -> None:
    """Produce with acks=0 is handed out as soon as it is whole, and the next response belongs to the next request."""
    watching = Watching(Depth.SKETCH).client(
        produce(1, ("t", 1), acks=0, version=version, records=BATCH) + request(HEARTBEAT, 0, 2), chunk
    )

    assert [("no_answer_due", 0)] == [(one.outcome, one.acks) for one in watching.seen]
    watching.broker(response(HEARTBEAT, 0, 2))
    assert [1, 2] == [one.correlation_id for one in watching.seen]


def test_responses_out_of_order() -> None:
    """A response that is not the oldest request's finds its own by the correlation id."""
    watching = Watching(Depth.COUNT)
    watching.observer.refocus(lambda key, version: Depth.SKETCH)
    for number in (1, 2, 3):
        watching.client(request(HEARTBEAT, 0, number))
    for number in (2, 3, 1):
        watching.broker(response(HEARTBEAT, 0, number, error_code=number))

    assert [2, 3, 1] == [one.response_body and one.response_body["error_code"] for one in watching.seen]
    assert [2, 3, 1] == [one.correlation_id for one in watching.seen]


def test_a_response_of_nobodys() -> None:
    """It is counted and passed over, and what follows is seen."""
    watching = Watching(Depth.SKETCH).client(request(HEARTBEAT, 0, 1))
    watching.broker(response(HEARTBEAT, 0, 9) + response(HEARTBEAT, 0, 1))

    assert [1] == [one.correlation_id for one in watching.seen]
    assert (1, 1, 0, 1) == watching.counts()[:4]


@pytest.mark.parametrize("size", [-1, 0, 7, (1 << 30) + 1])
def test_a_request_size_that_cannot_be(size: int) -> None:
    """From there on the client's bytes are only counted; what was open goes out at the end, answers still find it."""
    watching = Watching(Depth.SKETCH).client(request(HEARTBEAT, 0, 1) + request(HEARTBEAT, 0, 2))
    watching.client(size.to_bytes(4, "big", signed=True) + b"x" * 10).client(request(HEARTBEAT, 0, 3))
    watching.broker(response(HEARTBEAT, 0, 1)).end()

    assert [(1, "answered"), (2, "unanswered")] == [(one.correlation_id, one.outcome) for one in watching.seen]
    assert (2, 1, 1, 1, 2 * len(request(HEARTBEAT, 0, 1)) + 14 + len(request(HEARTBEAT, 0, 3))) == (
        *watching.counts()[:5],
    )  # fmt: skip


@pytest.mark.parametrize("size", [-5, 0, 3])
def test_a_response_size_that_cannot_be(size: int) -> None:
    """The broker's bytes are only counted from there on; the open exchange goes out at the end."""
    watching = Watching(Depth.SKETCH).client(request(HEARTBEAT, 0, 1))
    watching.broker(size.to_bytes(4, "big", signed=True) + b"abc").broker(response(HEARTBEAT, 0, 1)).end()

    assert ["unanswered"] == [one.outcome for one in watching.seen]
    assert (1, 0, 1, 1) == watching.counts()[:4]


def test_the_end_in_the_middle_of_frames() -> None:
    """What came of a frame that is cut by the end is handed out as its beginning."""
    watching = Watching(Depth.FULL).client(request(METADATA, 1, 1)).broker(response(METADATA, 1, 1, brokers=[])[:-1])
    watching.client(request(METADATA, 1, 2)[:-2]).end()
    first, second = watching.seen
    assert first.response is not None and second.request is not None

    assert ("unanswered", Form.HEAD, None) == (first.outcome, first.response.form, first.response_body)
    assert ("unanswered", Form.HEAD, 2) == (second.outcome, second.request.form, second.correlation_id)


def test_a_connection_that_kproxy_closed() -> None:
    """What was open then is told apart from what a broker left unanswered; both are counted as unanswered."""
    watching = Watching(Depth.SKETCH).client(request(METADATA, 1, 1))
    watching.observer.end(101.0, closed=True)

    assert (["closed"], 1) == ([one.outcome for one in watching.seen], watching.observer.unanswered)


def test_answered_before_the_request_is_whole() -> None:
    """A response may come while its request is still on its way; the exchange is over then."""
    watching = Watching(Depth.FULL)
    asked = produce(1, ("t", 1), acks=1, records=BATCH)
    watching.client(asked[:-3]).broker(response(PRODUCE, 9, 1)).client(asked[-3:]).client(request(HEARTBEAT, 0, 2))
    watching.broker(response(HEARTBEAT, 0, 2))
    assert watching.seen[0].request is not None

    assert ["answered", "answered"] == [one.outcome for one in watching.seen]
    assert Form.HEAD is watching.seen[0].request.form


def test_depths() -> None:
    """COUNT and ROWS hand nothing out; SKETCH and FULL do, each as deep as asked."""
    for depth, count in ((Depth.COUNT, 0), (Depth.ROWS, 0), (Depth.SKETCH, 1), (Depth.FULL, 1)):
        watching = Watching(depth).client(produce(1, ("t", 1), acks=1, records=BATCH)).broker(response(PRODUCE, 9, 1))

        assert (count, 1, 1) == (len(watching.seen), *watching.counts()[:2])


def test_longer_than_most() -> None:
    """At FULL depth a frame keeps its first bytes; one with records can be read all the same."""
    batch = encode_batch([Record(0, 0, None, b"v" * 5000)])
    watching = Watching(Depth.FULL, most=1000).client(produce(1, ("t", 1), acks=1, records=batch), 700)
    watching.client(request(METADATA, 9, 2, topics=[{"name": "n" * 3000}])).end()
    written, asked = watching.seen
    assert written.request is not None and asked.request is not None
    assert written.request_body is not None

    assert ((1000, Form.HEAD), (1000, Form.HEAD)) == (
        (len(written.request.data), written.request.form), (len(asked.request.data), asked.request.form))  # fmt: skip
    assert 1 == written.request_body["topic_data"][0]["partition_data"][0]["records"].records
    assert asked.request_body is None


def test_open_requests_are_bounded() -> None:
    """The oldest of too many open requests goes out unanswered, on both ways."""
    for depth, handed in ((Depth.SKETCH, 3), (Depth.ROWS, 0)):
        watching = Watching(depth)
        for number in range(MOST_OPEN + 3):
            watching.client(request(HEARTBEAT, 4, number))

        assert (MOST_OPEN, 3, handed) == (len(watching.observer.open), watching.observer.unanswered, len(watching.seen))


def test_kept_bytes_are_bounded() -> None:
    """Open requests that are long keep their beginnings when they have taken all the room, and give it back."""
    watching = Watching(Depth.FULL)
    long = request(METADATA, 9, 1, topics=[{"name": "n" * 30000}] * 30)
    for _ in range(40):
        watching.client(long)
    kept = sum(len(one[1].seen.request.data) for one in watching.observer.open)

    assert kept <= KEPT + 40 * 1024
    watching.end()
    assert KEPT == watching.observer.room


def test_unknown_apis_and_versions() -> None:
    """Header data is read where the header is that of all others; the body of an unknown API is not kept."""
    frame = framed(b"\x12\x34" + b"\x00\x01" + (8).to_bytes(4, "big") + b"\x00\x03app" + b"body")
    newer = request(METADATA, 9, 9)
    newer = newer[:6] + b"\x00\x63" + newer[8:]
    watching = Watching(Depth.FULL).client(frame + newer).end()
    unknown, future = watching.seen
    assert unknown.request is not None and future.request is not None

    assert ("unknown(4660)", 8, "app", b"body") == (
        unknown.api, unknown.correlation_id, unknown.client_id, frame[-4:])  # fmt: skip
    assert ("an API that is not known", frame[4:-4]) == (unknown.request.withheld, unknown.request.data)
    assert ("Metadata", 99, Form.WHOLE) == (future.api, future.version, future.request.form)
    assert future.request_body is None
    assert future.unread


@pytest.mark.parametrize("depth", [Depth.ROWS, Depth.SKETCH])
def test_late_begin(depth: Depth) -> None:
    """Responses to requests that were not seen find them; such an exchange has no request."""
    watching = Watching(depth)
    watching.observer.awaiting([(7, HEARTBEAT, 4), (8, FETCH, 12)])
    watching.broker(response(HEARTBEAT, 4, 7, error_code=25)).client(request(HEARTBEAT, 4, 9))
    watching.broker(response(FETCH, 12, 8) + response(HEARTBEAT, 4, 9))

    assert (1, 3, 0, 0) == watching.counts()[:4]
    if depth is Depth.SKETCH:
        assert [1, 2, 3] == [one.number for one in watching.seen]
        assert [True, True, False] == [one.request is None for one in watching.seen]
        body = watching.seen[0].response_body
        assert body is not None and 25 == body["error_code"]


def test_exchanges_of_one_correlation_id_are_told_apart() -> None:
    """By how many of them had come before and were unanswered when kproxy got to it."""
    watching = Watching(Depth.SKETCH).client(request(HEARTBEAT, 0, 5) * 3)
    watching.observer.acted(5, ("first",))
    watching.observer.acted(5, ("second",), older=1, answered=True)
    watching.observer.waited(5, 0.5, response=False, by_rule=True, older=2)
    watching.broker(response(HEARTBEAT, 0, 5))
    watching.observer.acted(5, ("second again",))
    watching.broker(response(HEARTBEAT, 0, 5) * 2)

    assert [one.rules for one in watching.seen] == [["first"], ["second", "second again"], []]
    assert [one.answered_by_rule for one in watching.seen] == [False, True, False]
    assert [one.rule_wait[0] for one in watching.seen] == [0.0, 0.0, 0.5]


def test_what_kproxy_did() -> None:
    """Waits and rules go to the exchange with that id, also while its response is on its way; then they are ignored."""
    watching = Watching(Depth.SKETCH).client(request(HEARTBEAT, 0, 1) + request(HEARTBEAT, 0, 2))
    observer = watching.observer
    observer.waited(1, 0.5, response=False, by_rule=True)
    observer.acted(1, ("slow", "also"))
    observer.waited(2, 0.1, response=False, by_rule=False)
    answer = response(HEARTBEAT, 0, 1)
    watching.broker(answer[:-1])
    observer.waited(1, 0.25, response=True, by_rule=True)
    observer.acted(1, ("last",), answered=True)
    watching.broker(answer[-1:])
    observer.waited(1, 9.0, response=True, by_rule=True)
    observer.acted(1, ("nothing",))
    watching.broker(response(HEARTBEAT, 0, 2))
    first, second = watching.seen

    assert ((0.5, 0.25), (0.0, 0.0), ["slow", "also", "last"], True) == (
        first.rule_wait, first.other_wait, first.rules, first.answered_by_rule)  # fmt: skip
    assert ((0.0, 0.0), (0.1, 0.0), [], False) == (
        second.rule_wait, second.other_wait, second.rules, second.answered_by_rule)  # fmt: skip


def test_refocus() -> None:
    """Exchanges under way stay as deep as they began; the next ones are as deep as is wanted now."""
    watching = Watching(Depth.SKETCH).client(request(HEARTBEAT, 0, 1))
    watching.observer.refocus(lambda key, version: Depth.COUNT)
    watching.client(request(HEARTBEAT, 0, 2))
    watching.observer.refocus(lambda key, version: Depth.FULL)
    watching.client(request(HEARTBEAT, 0, 3))
    watching.broker(b"".join(response(HEARTBEAT, 0, number) for number in (1, 2, 3)))

    assert [1, 3] == [one.correlation_id for one in watching.seen]


def test_an_old_answer_to_api_versions() -> None:
    """A broker that lacks the version of an ApiVersions request answers in that of version 0 (KIP-511)."""
    watching = Watching(Depth.SKETCH).client(request(API_VERSIONS, 3, 1))
    watching.broker(response(API_VERSIONS, 0, 1, error_code=35))
    body = told(watching.seen[0])["response_body"]

    assert 35 == body["error_code"]
