"""Who is the client of a connection that began before the capture did."""

from __future__ import annotations

from kproxy.record.captures.connection import MOST_SEGMENTS, FlowKey, KeptSegment, UndecidedConnections
from kproxy.record.captures.pcapng import Packet
from kproxy.record.captures.tcp_stream import Segment
from tests.support.capture_files import metadata, response

A, B = (b"\1\1\1\1", 1000), (b"\2\2\2\2", 2000)


def meet(
    who: UndecidedConnections, source: tuple[bytes, int], target: tuple[bytes, int], data: bytes
) -> FlowKey | None:
    """The client's end first, once that is known."""
    there, back = (0, *source, *target), (0, *target, *source)
    segment = Segment(*source, *target, 0, 0, 16, data, len(data))
    found = who.meet(there, back, KeptSegment(segment, Packet(0.0, b"", 0, 0, 101, "")))
    if found is None:
        return None
    assert found[1][-1].segment is segment
    return found[0]


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def asked(number: int) -> tuple[bytes, bytes]:
    """A request and its response."""
    seen = metadata(number)
    assert seen.request and seen.response
    return sized(seen.request.data), sized(seen.response.data)


def test_an_answer_decides() -> None:
    """What looks like a request, and then an answer with its correlation id; one segment alone is not enough."""
    who = UndecidedConnections()
    request, answer = asked(7)
    assert meet(who, A, B, b"the rest of something") is None
    assert meet(who, A, B, request[:20]) is None
    assert meet(who, A, B, request[20:]) is None
    assert (0, *A, *B) == meet(who, B, A, answer)
    assert 0 == len(who)


def test_answers_that_look_like_requests() -> None:
    """An answer begins with small numbers, as old Produce requests do; the next request sets that right."""
    who = UndecidedConnections()
    looks = sized(response("Heartbeat", 1, 3, {}) + b"\0" * 20)
    request, answer = asked(4)
    assert meet(who, B, A, looks) is None
    assert meet(who, A, B, request) is None
    assert (0, *A, *B) == meet(who, B, A, answer)


def test_bounds() -> None:
    """A supposed request of very many segments is forgotten, and so are pairs that never decide; they count."""
    who = UndecidedConnections()
    request, answer = asked(7)
    meet(who, A, B, request)
    for _ in range(MOST_SEGMENTS):
        meet(who, A, B, b"more")
    assert meet(who, B, A, answer) is None
    who.by_pair.max_entries = 2
    for port in range(1, 6):
        meet(who, (A[0], port), B, b"x")
    assert (2, 6) == (len(who.by_pair), len(who))
