"""Recorder behind `EventSink`: numbers events, makes lines of them, and gives each line to all outlets.

One number and one line for all outlets, so that whoever reads both the files and the topic can drop what is double. An
outlet that dropped events reports the gap through `PutRecovered`, which makes an event for all of them.
"""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from kproxy.base.errors import KproxyError
from kproxy.record.events.column import EventData
from kproxy.record.events.schema import RECOVERED_EVENT

from .event_sink import EncodedEvent, OutletCounters, Unblocked, ignore_unblocked
from .lines import EventEncoder
from .queue import Gap

START_FAILURE_TIMEOUT = 5.0
"""Seconds for the outlets that are running already when another one cannot be started."""

PutRecovered = Callable[[EventData, Callable[[], None]], None]
"""Function of an outlet that puts a `recovered` event of these data, and calls back once it is durable there."""


class Outlet(Protocol):
    """Destination of lines: files or a topic."""

    name: str
    counters: OutletCounters

    @property
    def blocked(self) -> bool:
        """Return True while lines should not be made; see EventSink."""
        ...

    def start(self, tell: PutRecovered, on_unblocked: Unblocked) -> None:
        """Start the outlet; never fails for what may get better by itself, such as a full disk."""
        ...

    def add(
        self, line: bytes, number: int, day: str, type_name: str, data: EventData,
        must: bool = False, then: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """Take a line into the queue, or count it as dropped; see Queue.add."""
        ...

    def missing(self, number: int, reason: str) -> None:
        """Count the event of this number as dropped: it has no line."""
        ...

    def close(self, timeout: float) -> bool:
        """Write and publish what is queued; see EventSink."""
        ...


class Recorder:
    """Event sink of one process over its outlets.

    Make it in the process that writes, not before a fork: threads and locks on files do not survive one.
    """

    def __init__(self, source: str, outlets: Sequence[Outlet], on_unblocked: Unblocked = ignore_unblocked) -> None:
        self.outlets = tuple(outlets)
        self._started: list[Outlet] = []
        self._adds = tuple(outlet.add for outlet in outlets)
        self.on_unblocked = on_unblocked
        self._lines = EventEncoder(source)
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the outlets' threads. Raises KproxyError when one cannot be started at all, with none of them left."""
        try:
            for outlet in self.outlets:
                outlet.start(self._tell_of(outlet), self._unblocked)
                self._started.append(outlet)
        except KproxyError:
            self.close(START_FAILURE_TIMEOUT)
            raise

    @property
    def source(self) -> str:
        """Return the source of the events: instance/boot/worker."""
        return self._lines.source

    @property
    def blocked(self) -> bool:
        for outlet in self.outlets:  # noqa: SIM110 -- asked for after each event, and a generator takes four times as long
            if outlet.blocked:
                return True
        return False

    @property
    def counters(self) -> Mapping[str, OutletCounters]:
        return {outlet.name: outlet.counters for outlet in self.outlets}

    def put(self, type_name: str, time: float, data: EventData) -> None:
        lines = self._lines
        with self._lock:
            try:
                line = lines.line(type_name, time, data)
            except Exception:  # noqa: BLE001 -- whatever is wrong with one event, traffic goes on and the gap is told
                for outlet in self.outlets:
                    outlet.missing(lines.last_id, "unencodable")
                return
            for add in self._adds:
                add(line, lines.last_id, lines.day, type_name, data)

    def put_encoded(self, type_name: str, events: Iterable[EncodedEvent]) -> None:
        lines = self._lines
        with self._lock:
            for time, data, about in events:
                try:
                    line = lines.encoded_line(type_name, time, data)
                except Exception:  # noqa: BLE001 -- as above
                    for outlet in self.outlets:
                        outlet.missing(lines.last_id, "unencodable")
                    continue
                for add in self._adds:
                    add(line, lines.last_id, lines.day, type_name, about)

    def close(self, timeout: float) -> bool:
        if not self._started:
            return True
        with ThreadPoolExecutor(len(self._started)) as pool:  # each has the whole time
            return all(list(pool.map(lambda outlet: outlet.close(timeout), self._started)))

    def _tell_of(self, origin: Outlet) -> PutRecovered:
        def tell(data: EventData, then: Callable[[], None]) -> None:
            lines = self._lines
            with self._lock:
                line = lines.line(RECOVERED_EVENT.name, clock.time(), data)
                for outlet in self.outlets:
                    outlet.add(
                        line, lines.last_id, lines.day, RECOVERED_EVENT.name, data,
                        must=True, then=then if outlet is origin else None,
                    )  # fmt: skip

        return tell

    def _unblocked(self) -> None:
        if not self.blocked:
            self.on_unblocked()


def gap_event(gap: Gap, outlet: str) -> EventData:
    """Return the data of the `recovered` event about events that were dropped."""
    reasons = ", ".join(f"{reason} {count}" for reason, count in gap.reasons.most_common())
    return {
        "reason": "dropped",
        "dropped": gap.dropped,
        "first_id": gap.first_id,
        "last_id": gap.last_id,
        "message": f"{outlet}: {reasons}",
    }
