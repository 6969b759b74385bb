"""Gate before an `EventSink` that says at once when the sink has become blocked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kproxy.events.column import EventData

from .event_sink import EventSink


class EventGate:
    """Gate that passes events on to a sink.

    `on_blocked` is called, in the thread that puts, when the sink gets blocked.
    """

    def __init__(self, events: EventSink, on_blocked: Callable[[], None]) -> None:
        self.events, self.on_blocked = events, on_blocked
        self.shut = False

    def put(self, type_name: str, time: float, data: EventData) -> None:
        self.events.put(type_name, time, data)
        if self.events.blocked and not self.shut:
            self.close()

    def put_encoded(self, type_name: str, events: Sequence[tuple[bytes, bytes]], about: EventData) -> None:
        self.events.put_encoded(type_name, events, about)
        if self.events.blocked and not self.shut:
            self.close()

    def close(self) -> None:
        """Take note that the sink is blocked, and say so."""
        self.shut = True
        self.on_blocked()

    def is_open(self) -> bool:
        """Return True if events are taken, also again after the sink was blocked."""
        if self.shut and not self.events.blocked:
            self.shut = False
        return not self.shut
