"""Interface between the makers of events and the writing side, with the counters of each outlet.

Threads: `put` may be called from any thread, and is meant for the loop's: it encodes the event and appends it to a
queue in memory. Writing is done by threads of the outlets, which also call `on_unblocked` and the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from kproxy.events.column import EventData

WhenFull = Literal["drop", "block"]
"""drop: events that cannot be written are counted and lost. block: `blocked` asks that no new ones be made."""


@dataclass
class OutletCounters:
    """Counters of one outlet since it was made. Any thread may read them; the numbers may not be of the same moment."""

    written: int = 0
    """Events that are durable."""
    bytes: int = 0
    """Bytes of the lines of these events, before compression."""
    files: int = 0
    """Files published; 0 for Kafka."""
    recovered: int = 0
    """Processes before this one that had not ended in order, and whose files are published now."""
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


class EventSink(Protocol):
    """Receiver of events: numbers them, writes them down and keeps them durably."""

    @property
    def blocked(self) -> bool:
        """Return True while no new events should be made.

        Under `block`: the queue is full or the outlet refuses lines. Whoever reads from clients stops until it is False
        again, of which `on_unblocked` tells. Under `drop` always False.
        """
        ...

    def put(self, type_name: str, time: float, data: EventData) -> None:
        """Take an event; `time` in seconds since 1970. Never waits, never raises: what cannot be taken is counted."""
        ...

    def put_encoded(self, type_name: str, events: Sequence[tuple[bytes, bytes]], about: EventData) -> None:
        """Take events of one type, (time in RFC 3339, data as JSON) each, in this order; else as `put`.

        `about`: columns that all of them have, for outlets that sort by them.
        """
        ...

    def close(self, timeout: float) -> bool:
        """Write and publish what is queued for up to `timeout` seconds.

        Blocks. Returns True if nothing was left behind.
        """
        ...

    @property
    def counters(self) -> Mapping[str, OutletCounters]:
        """Return the counters by the outlet's name: `files`, `kafka`."""
        ...


Unblocked = Callable[[], None]
"""Called from a thread of the outlet, not the loop's, when `blocked` has become False; must not raise or wait."""


def ignore_unblocked() -> None:
    """Do nothing: an `Unblocked` for those who look at `blocked` themselves."""


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
