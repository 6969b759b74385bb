"""The sink of one listener: what it takes, what it drops, and how much it wants to be kept."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.record.exchange import Depth, Form
from kproxy.record.fanout import SMALLEST, Missed, TailSink
from kproxy.record.filters import Filter
from tests.support.exchange_factory import exchange


def make_sink(text: str = "", **limits: int) -> tuple[TailSink, list[int]]:
    woken: list[int] = []
    return TailSink(Filter(text), lambda seen: {}, lambda: woken.append(1), **limits), woken


def heartbeat(number: int = 1, form: Form = Form.WHOLE) -> Any:
    return exchange("Heartbeat", 4, {"group_id": "g"}, {}, number=number, form=form)


def test_what_fits_waits_in_order() -> None:
    """And the listener is woken; what does not fit does neither."""
    sink, woken = make_sink("~k heartbeat")
    for number in (1, 2, 3):
        sink.take(heartbeat(number))
    sink.take(exchange("ListGroups", 4, {}, {}))

    assert [seen.number for seen in sink.drain(2)] == [1, 2]
    assert [seen.number for seen in sink.drain(9)] == [3]
    assert (len(woken), sink.bytes, sink.drain(9)) == (3, 0, [])


@pytest.mark.parametrize("limits", [{"most": 2}, {"most_bytes": 2 * (SMALLEST + 100)}])
def test_what_is_too_much_is_dropped_and_counted(limits: dict[str, int]) -> None:
    """By number, and by the bytes of their frames; each time only what is new is told."""
    sink, _ = make_sink(**limits)
    for number in range(5):
        sink.take(heartbeat(number))

    assert [seen.number for seen in sink.drain(9)] == [0, 1]
    assert (sink.missed(), sink.missed()) == (Missed(3, apis={"Heartbeat": 3}), Missed())
    assert not Missed()
    sink.take(heartbeat(6))
    assert [seen.number for seen in sink.drain(9)] == [6]


def test_what_cannot_be_judged_is_counted() -> None:
    """It is not told, but that there was something is."""
    sink, _ = make_sink("~key x")
    request = {"topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b""}]}]}
    sink.take(exchange("Produce", 9, request, {}, form=Form.HEAD))

    assert sink.drain(9) == []
    assert sink.missed() == Missed(0, 1, "of the request the beginning was kept")


def test_what_it_wants_to_be_kept() -> None:
    """Nothing of APIs that cannot match; all fields of others; whole frames for filters on records."""
    sink, _ = make_sink("~k produce")
    assert (sink.depth(0, 9), sink.depth(1, 9)) == (Depth.SKETCH, Depth.COUNT)
    assert make_sink("~key x")[0].depth(0, 9) is Depth.FULL
    assert not sink.broker_side


def test_connections_are_nothing_to_it() -> None:
    """They come and go without a word."""
    sink, woken = make_sink()
    sink.opened(heartbeat().who, 0.0)
    sink.closed(heartbeat().who, 1.0)
    sink.take_behind(heartbeat())

    assert (sink.drain(9), woken) == ([], [])
