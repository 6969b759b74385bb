"""Stands before an `EventSink` and says at once when it does not take more."""

from __future__ import annotations

from collections.abc import Callable

from .event_sink import Data, EventSink


class Gate:
    """Passes events on. `on_blocked` is called, in the thread that puts, when the sink has become blocked."""

    def __init__(self, events: EventSink, on_blocked: Callable[[], None]) -> None:
        self.events, self.on_blocked = events, on_blocked
        self.shut = False

    def put(self, type_name: str, time: float, data: Data) -> None:
        self.events.put(type_name, time, data)
        if self.events.blocked and not self.shut:
            self.shut = True
            self.on_blocked()

    def is_open(self) -> bool:
        """Whether more is taken again."""
        if self.shut and not self.events.blocked:
            self.shut = False
        return not self.shut
