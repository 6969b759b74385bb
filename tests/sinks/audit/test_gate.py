"""The gate says at once when events are not taken any more."""

from __future__ import annotations

from typing import Any

from kproxy.sinks.audit.event_sink import EventGate


class Events:
    """Takes two, then is blocked."""

    def __init__(self) -> None:
        self.taken = 0
        self.counters: dict[str, Any] = {}

    @property
    def blocked(self) -> bool:
        return self.taken >= 2

    def put(self, type_name: str, time: float, data: Any) -> None:
        self.taken += 1

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
