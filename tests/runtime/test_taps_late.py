"""A sink that comes at any byte of a conversation: bytes leave as they do without it, and at the same time."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kproxy.protocol.framing import framed
from kproxy.protocol.records import Record, encode_batch
from kproxy.record.exchange import Depth
from kproxy.record.observer.summary import Summary
from kproxy.session.commands import BROKER, CLIENT, CloseBoth
from kproxy.tools.rehearse.dialogue import request, response
from tests.support.frames import produce, produced
from tests.support.tapped_session import Hungry, Tapped

PRODUCE, FETCH, METADATA, HEARTBEAT, HANDSHAKE = 0, 1, 3, 12, 17
CHUNK = 23
"""Bytes that come at once: most frames come in several pieces, and some pieces end one frame and begin another."""
BATCH = encode_batch([Record(0, 0, b"k", b"v" * 30)])
WAIT = 2
Step = tuple[int, Any]
"""(side, bytes) that come, or (WAIT, seconds) that pass."""


def steps(*answered: int) -> list[Step]:
    """Return requests 1 to 6 in one burst, then the broker's responses to those that reach it, in pieces."""
    asked = [produce(1, "orders"), request(FETCH, 12, 2), produce(3, "orders", acks=0), request(HEARTBEAT, 4, 4),
             request(METADATA, 9, 5, topics=None), request(HEARTBEAT, 4, 6)]  # fmt: skip
    answers = {1: produced(1, "orders"), 2: response(FETCH, 12, 2), 4: response(HEARTBEAT, 4, 4),
               5: response(METADATA, 9, 5), 6: response(HEARTBEAT, 4, 6)}  # fmt: skip
    return [(CLIENT, b"".join(asked)), (WAIT, 1.0), (BROKER, b"".join(answers[one] for one in answered)), (WAIT, 1.0)]


def login() -> list[Step]:
    """Return a SaslHandshake v0, two rounds of raw tokens, and requests behind them."""
    talk = [(CLIENT, request(HANDSHAKE, 0, 1, mechanism="SCRAM-SHA-256")), (BROKER, response(HANDSHAKE, 0, 1))]
    for word in (b"first", b"final"):
        talk += [(CLIENT, framed(b"client-" + word)), (BROKER, framed(b"server-" + word))]
    return [
        *talk,
        (CLIENT, request(HEARTBEAT, 4, 2) + produce(3, "orders")),
        (BROKER, response(HEARTBEAT, 4, 2) + produced(3, "orders")),
    ]


ALL = (1, 2, 4, 5, 6)
CASES: dict[str, tuple[str, list[Step]]] = {
    "no rule": ("", steps(*ALL)),
    "raw tokens": ("", login()),
    "a request waits": ("{name: r, kind: delay, match: {api: Heartbeat}, delay: 500ms}", steps(*ALL)),
    "a response waits": ("{name: r, kind: delay, match: {api: Fetch}, delay: 500ms, at: response}", steps(*ALL)),
    "an own answer": ("{name: r, kind: error, match: {api: Heartbeat}, error: 27}", steps(1, 2, 5)),
    "an own error": ("{name: r, kind: error, match: {api: Produce}, error: 6, at: response}", steps(*ALL)),
    "a response is lost": (
        "{name: r, kind: drop, match: {api: Fetch}, what: response, connection: close}",
        steps(*ALL),
    ),
    "bytes are added": ("{name: r, kind: trailing_bytes, match: {api: Metadata}}", steps(*ALL)),
    "a half close": (
        "{name: r, kind: disconnect, close_with: half, match: {api: Metadata}, at: response}",
        steps(*ALL),
    ),
    "names change": ("{name: r, kind: prefix, prefix: 'team.'}", steps(*ALL)),
}


def play(case: str, comes: int | None, depth: Depth) -> tuple[list[tuple[Any, ...]], Hungry, int]:
    """Play a conversation with a sink that comes in front of piece `comes`; None: there is none.

    Return what had left after each piece, the sink, and the number of pieces.
    """
    rule, conversation = CASES[case]
    talk = Tapped(f"rules:\n  - {rule}\n" if rule else "", chances=Random(0))
    sink, trace, pieces = Hungry(most=depth), [], 0
    for side, data in conversation:
        for piece in [data] if side == WAIT else [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]:
            if talk.closed is not None:
                break
            if pieces == comes:
                talk.fanout.add(sink)
            pieces += 1
            if side == WAIT:
                talk.later(piece)
            else:
                talk.feed(side, piece, len(piece))
            trace.append((talk.to_broker, talk.to_client, dict(talk.read), set(talk.shut), str(talk.closed), talk.now))
    talk.end()
    assert talk.fanout.failures == 0
    return trace, sink, pieces


@pytest.mark.parametrize("depth", [Depth.ROWS, Depth.FULL])
@pytest.mark.parametrize("case", CASES)
def test_a_sink_that_comes_at_any_byte_changes_nothing(case: str, depth: Depth) -> None:
    """From the beginning on it is told of every request; later, of no more than are left, of none twice, and of no
    SASL token."""
    alone, _, pieces = play(case, None, depth)
    assert alone[-1][0]
    told = []
    for comes in range(pieces):
        trace, sink, _ = play(case, comes, depth)
        assert trace == alone, comes
        assert len({seen.number for seen in sink.seen}) == len(sink.seen), comes
        frames = [frame for seen in sink.seen for frame in (seen.request, seen.response) if frame is not None]
        assert not any(b"client-" in frame.data or b"server-" in frame.data for frame in frames), comes
        told.append(len(sink.seen))
    if depth is Depth.FULL:
        assert told[0] == (3 if case == "raw tokens" else 6)
        assert max(told) == told[0]


@pytest.mark.parametrize("depth", [Depth.ROWS, Depth.SKETCH])
@pytest.mark.parametrize("chunk", [1, 23, 1000])
def test_waits_of_requests_without_an_answer_are_in_the_summary(chunk: int, depth: Depth) -> None:
    """Like those of all others, though the observer had seen a request's end before the rule did anything."""
    summary, sink = Summary(lambda key, version: True), Hungry(broker_side=False, most=depth)
    rules = "rules: [{name: slow, kind: delay, match: {api: Produce}, delay: 500ms}]"
    talk = Tapped(rules, chances=Random(0), first=[sink], summary=summary)
    for number in (1, 2, 3):
        talk.feed(CLIENT, produce(number, ("orders", 0, BATCH), acks=0), chunk)
        assert len(sink.seen) == (number - 1 if depth is Depth.SKETCH else 0)
        talk.later(1.0)
    talk.feed(CLIENT, request(HEARTBEAT, 4, 4), chunk)  # what is sent by command is handed out with the next bytes
    talk.end()
    lines = summary.drain(talk.now + 1, everything=True)

    (line,) = [line for line in lines if line.api == "Produce" and line.partition is None]
    assert (line.outcome, line.count, line.acks) == ("no_answer_due", 3, 0)
    assert line.rule_ms == pytest.approx(1500)
    (part,) = [line for line in lines if line.api == "Produce" and line.partition is not None]
    assert (part.count, part.records) == (3, 3)
    if depth is Depth.SKETCH:
        seen = [seen for seen in sink.seen if seen.key == PRODUCE]
        assert [(one.outcome, one.rules) for one in seen] == [("no_answer_due", ["slow"])] * 3
        assert line.rule_ms == pytest.approx(1000 * sum(sum(one.rule_wait) for one in seen))


def test_tap_on_draining_connection_observes_and_closes() -> None:
    """The check for idleness contains the feeds of a tap that is added later, and remains when that is removed."""
    talk, sink = Tapped(chances=Random(1)), Hungry()
    talk.feed(CLIENT, request(HEARTBEAT, 4, 1))
    talk.link.leaving = CloseBoth("drained", "kproxy is shutting down")
    talk.link.chain_feeds()
    talk.fanout.add(sink)
    talk.feed(CLIENT, request(HEARTBEAT, 4, 2) + request(HEARTBEAT, 4, 3))
    talk.feed(BROKER, response(HEARTBEAT, 4, 1) + response(HEARTBEAT, 4, 2), 5)
    talk.fanout.remove(sink)
    assert (talk.closed, talk.link.tapped) == (None, None)
    talk.feed(BROKER, response(HEARTBEAT, 4, 3))

    assert [(one.correlation_id, one.outcome) for one in sink.seen] == [(1, "answered"), (2, "answered")]
    assert talk.closed is talk.link.leaving
