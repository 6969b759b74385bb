"""Interface between the makers of events and the writing side, with the counters of each outlet.

Threads: `put` may be called from any thread, and is meant for the loop's: it encodes the event and appends it to a
queue in memory. Writing is done by threads of the outlets, which also call `on_unblocked` and the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kproxy.record.events.column import EventData
from kproxy.record.events.schema import REQUEST_EVENT

if TYPE_CHECKING:
    from .audit_sink import RequestLines
    from .recorder import Recorder

WhenFull = Literal["drop", "block"]
"""drop: events that cannot be written are counted and lost. block: `blocked` asks that no new ones be made."""


EncodedEvent = tuple[bytes, bytes, EventData]
"""Time in RFC 3339 and data as JSON of an event, and those columns of it that outlets sort by."""

MOST_WAITING = 32
"""Exchanges whose lines are made together, about 0.2 ms of work."""


@dataclass
class OutletCounters:
    """Counters of one outlet since it was made. Any thread may read them; the numbers may not be of the same moment."""

    written: int = 0
    """Events that are durable."""
    bytes: int = 0
    """Bytes of the lines of these events, before compression."""
    files: int = 0
    """Files published; 0 for Kafka."""
    unclean_shutdowns: int = 0
    """Earlier processes with an unclean end whose files are now published."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Events lost, by reason: queue_full, disk_full, read_only, io_error, …; unencodable; closed; close_timeout."""
    errors: Counter[str] = field(default_factory=Counter)
    """Failed attempts to write, sync or publish, by the same words."""
    last_error: str = ""
    """Last error of the system, with the file or the cluster."""
    failing: bool = False
    """The last attempt failed: an outage."""
    last_durable: float = 0.0
    """Seconds since 1970 when a batch last became durable; 0: never."""
    queued: int = 0
    """Events taken and not durable yet."""
    queued_bytes: int = 0


Unblocked = Callable[[], None]
"""Called from a thread of the outlet, not the loop's, when `blocked` has become False; must not raise or wait."""


def ignore_unblocked() -> None:
    """Do nothing: an `Unblocked` for those who look at `blocked` themselves."""


class EventGate:
    """Gate that passes events on to a sink.

    `on_blocked` is called, in the thread that puts, when the sink gets blocked. `call_later` calls a function some
    milliseconds later, once. Lines of requests wait for that long, or until there are many or another event comes: one
    by one, between two packets, they take twice the time (decision 23). Without `call_later` none waits.
    """

    def __init__(
        self, events: Recorder, on_blocked: Callable[[], None],
        call_later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:  # fmt: skip
        self.events, self.on_blocked, self.call_later = events, on_blocked, call_later
        self.shut = self.called = False
        self.waiting: list[tuple[RequestLines, Sequence[Any], float]] = []
        self.exchanges_waiting = 0

    def put(self, type_name: str, time: float, data: EventData) -> None:
        if self.waiting:
            self.put_waiting()
        self.events.put(type_name, time, data)
        if self.events.blocked and not self.shut:
            self.close()

    def put_lines(self, maker: RequestLines, exchanges: Sequence[Any], now: float) -> None:
        """Put the events that the maker makes of these exchanges, now or a little later, in the order of all events."""
        self.waiting.append((maker, exchanges, now))
        self.exchanges_waiting += len(exchanges)
        if self.call_later is None or self.exchanges_waiting >= MOST_WAITING:
            self.put_waiting()
        elif not self.called:
            self.called = True
            self.call_later(self.time_is_over)

    def time_is_over(self) -> None:
        """Put what waits, since some milliseconds have passed."""
        self.called = False
        if self.waiting:
            self.put_waiting()

    def put_waiting(self) -> None:
        """Put the events of all exchanges that wait for their lines."""
        waiting, self.waiting, self.exchanges_waiting = self.waiting, [], 0
        events = [event for maker, exchanges, now in waiting for event in maker.encode(exchanges, now)]
        self.events.put_encoded(REQUEST_EVENT.name, events)
        if self.events.blocked and not self.shut:
            self.close()

    def close(self) -> None:
        self.shut = True
        self.on_blocked()

    def is_open(self) -> bool:
        """Return True if events are taken, also again after the sink was blocked."""
        if self.shut and not self.events.blocked:
            self.shut = False
        return not self.shut
