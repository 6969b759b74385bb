"""The gate says at once when events are not taken any more, and keeps lines of requests for some milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kproxy.record.audit.event_sink import MOST_WAITING, EncodedEvent, EventGate


class Events:
    """Takes two, then is blocked."""

    def __init__(self) -> None:
        self.taken = 0
        self.order: list[bytes] = []
        self.counters: dict[str, Any] = {}

    @property
    def blocked(self) -> bool:
        return self.taken >= 2

    def put(self, type_name: str, time: float, data: Any) -> None:
        self.taken += 1
        self.order.append(type_name.encode())

    def put_encoded(self, type_name: str, events: Iterable[EncodedEvent]) -> None:
        lines = [data for _, data, _ in events]
        self.taken += len(lines)
        self.order += lines

    def close(self, timeout: float) -> bool:
        return True


def test_it_calls_once_when_it_shuts_and_opens_when_there_is_room() -> None:
    """Events that come after that still go through: they are of requests that were read before."""
    events, calls = Events(), []
    gate = EventGate(events, lambda: calls.append(events.taken))

    for _ in range(4):
        gate.put("kproxy.request.v1", 0.0, {})
    assert calls == [2]
    assert not gate.is_open()
    events.taken = 0
    assert gate.is_open()
    gate.put("kproxy.request.v1", 0.0, {})
    gate.put("kproxy.request.v1", 0.0, {})

    assert calls == [2, 2]


class Maker:
    """Makes a line of each exchange, which says when it ended."""

    def encode(self, exchanges: Sequence[Any], now: float) -> list[EncodedEvent]:
        return [(b"", f"{one} at {now:g}".encode(), {}) for one in exchanges]


def gate_that_waits() -> tuple[Events, EventGate, list[Callable[[], None]]]:
    events, later = Events(), []
    return events, EventGate(events, lambda: None, later.append), later


def test_lines_wait_for_their_time_and_keep_their_order() -> None:
    """One call is asked for however many lines wait, and none is lost or told twice."""
    events, gate, later = gate_that_waits()
    gate.put_lines(Maker(), ["a", "b"], 1.0)
    gate.put_lines(Maker(), ["c"], 2.0)
    assert events.order == []
    assert len(later) == 1

    later.pop()()
    gate.put_lines(Maker(), ["d"], 3.0)

    assert events.order == [b"a at 1", b"b at 1", b"c at 2"]
    later.pop()()
    assert events.order[3:] == [b"d at 3"]


def test_another_event_comes_behind_the_lines_that_wait() -> None:
    """What a connection's end says stands behind its requests; the call that comes later finds nothing."""
    events, gate, later = gate_that_waits()
    gate.put_lines(Maker(), ["a"], 1.0)
    gate.put("kproxy.connection.v1", 1.5, {})
    later.pop()()

    assert events.order == [b"a at 1", b"kproxy.connection.v1"]


def test_many_lines_do_not_wait() -> None:
    """So what waits is bounded; and who is blocked hears it at once."""
    events, calls, later = Events(), [], list[Callable[[], None]]()
    gate = EventGate(events, lambda: calls.append(events.taken), later.append)
    for at in range(MOST_WAITING):
        gate.put_lines(Maker(), [at], 1.0)

    assert len(events.order) == MOST_WAITING
    assert calls == [MOST_WAITING]
    assert not gate.waiting


def test_without_a_clock_no_line_waits() -> None:
    events = Events()
    EventGate(events, lambda: None).put_lines(Maker(), ["a"], 1.0)

    assert events.order == [b"a at 1"]
