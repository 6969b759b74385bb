"""Exchanges packed by connection: in the order of requests, in chunks of bounded size, with what they are not about."""

from __future__ import annotations

import pytest

from kproxy.record.captures.captured_connection import CapturedConnection, TopicIdNames
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.tools.rehearse.dialogue import request
from kproxy.tools.rehearse.whatif import candidate
from kproxy.tools.rehearse.whatif.candidate import Candidate, CapturePacking
from kproxy.tools.rehearse.whatif.exchange import CaptureSummary, PackedExchange, unpack_chunk, unpack_summary

HEARTBEAT, LIST_GROUPS = 12, 16
RULES = "rules: [{name: slow, kind: delay, match: {api: Heartbeat}, delay: 1s}]"


def caller(number: int) -> CapturedConnection:
    return CapturedConnection(number, "client", f"10.0.0.{number}", 1, "10.9.9.9", 9092, 0.0, TopicIdNames())


def seen(
    who: CapturedConnection, number: int, key: int = HEARTBEAT, version: int = 4, when: float = 0.0
) -> ObservedExchange:
    data = request(key, version, number)[4:]
    return ObservedExchange(
        who, number, key, version, number, "tester",
        Frame(len(data) + 4, when or 100.0 + number, when or 100.0 + number, data, Form.WHOLE),
    )  # fmt: skip


def unpacked(found: CapturePacking) -> tuple[dict[int, list[list[PackedExchange]]], CaptureSummary]:
    """Chunks by connection, and what is told."""
    *chunks, last = found.take()
    by_connection: dict[int, list[list[PackedExchange]]] = {}
    for row in chunks:
        assert row.connection is not None
        parts = by_connection.setdefault(row.connection, [])
        assert row.part == len(parts)
        parts.append(unpack_chunk(row.packed).exchanges)
    assert last.what == "capture"
    return by_connection, unpack_summary(last.packed)


def packed(
    *exchanges: ObservedExchange, ended: tuple[CapturedConnection, ...] = ()
) -> tuple[dict[int, list[list[PackedExchange]]], CaptureSummary]:
    made = CapturePacking("c", Candidate([("r", RULES)], 0.0))
    made.ended.extend(ended)
    for one in exchanges:
        made.add(one)
    made.finish({"id": "name"})
    return unpacked(made)


def test_exchanges_leave_in_the_order_of_their_requests() -> None:
    """They come in the order in which they were over; what cannot be rehearsed leaves no gap that is waited for."""
    who, other = caller(1), caller(2)
    unfit = seen(who, 3)
    unfit.request = None
    chunks, told = packed(*[seen(who, one) for one in (2, 1)], seen(other, 1), unfit, *[seen(who, 5), seen(who, 4)])

    assert [[one.number for one in part] for part in chunks[1]] == [[1, 2, 4, 5]]
    assert [[one.number for one in part] for part in chunks[2]] == [[1]]
    assert (told.unfit, told.topics) == ({"its request was not recorded": 1}, {"id": "name"})


def test_what_no_rule_is_about_is_only_counted() -> None:
    """It still says when the capture began."""
    who = caller(1)
    chunks, told = packed(seen(who, 2), seen(who, 1, LIST_GROUPS, 3, when=50.0))

    assert [[one.number for one in part] for part in chunks[1]] == [[2]]
    assert (told.opaque, told.began) == (1, 50.0)


def test_chunks_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of exchanges, and all that wait together of bytes."""
    monkeypatch.setattr(candidate, "CHUNK_EXCHANGES", 2)
    who = caller(1)
    chunks, _ = packed(*[seen(who, number) for number in range(1, 6)])
    assert [[one.number for one in part] for part in chunks[1]] == [[1, 2], [3, 4], [5]]

    monkeypatch.setattr(candidate, "HELD_BYTES", 1)
    chunks, _ = packed(*[seen(caller(number), 1) for number in range(1, 4)])
    assert {number: len(parts) for number, parts in chunks.items()} == {1: 1, 2: 1, 3: 1}


def test_a_connection_that_has_ended_is_given_out_at_once() -> None:
    """When another one's exchange comes: its own last ones may still be on their way until then."""
    made = CapturePacking("c", Candidate([("r", RULES)], 0.0))
    first, second = caller(1), caller(2)
    made.ended.append(first)
    made.add(seen(first, 1))
    assert not made.rows
    made.add(seen(second, 1))

    (row,) = made.take()
    assert (row.connection, [one.number for one in unpack_chunk(row.packed).exchanges]) == (1, [1])
