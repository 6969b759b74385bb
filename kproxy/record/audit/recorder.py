"""Recorder: numbers events, makes lines of them, and adds each line to the queues of all outlets.

All outlets get the same number and line, so readers of both files and topic can drop duplicates. An outlet that dropped
events reports the gap through `PutGapEvent`, which makes an event for all of them.

`LineQueue.add` appends to the open batch, at the cost of a list's append and some counting under a lock. A batch ends
at the size of one write, at the end of a day, and at a missing event, so the numbers in a batch are consecutive. The
thread takes all batches together, and calls `mark_done` when they are durable. Until then they count in `queued`, which
is the loss of a kill.
"""

from __future__ import annotations

import threading
import time as clock
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from kproxy.base.errors import KproxyError
from kproxy.record.events.column import EventData
from kproxy.record.events.schema import AUDIT_GAP_EVENT

from .event_sink import EncodedEvent, OutletCounters, Unblocked, WhenFull, ignore_unblocked
from .lines import EventEncoder

BATCH_BYTES = 1 << 18
"""256 KiB: a larger write is hardly cheaper per byte, and by so much a file may overshoot its size."""

QUEUE_BYTES = 1 << 26
"""64 MiB: a hundred thousand events of the usual 600 bytes."""

OVERSHOOT = 100_000
"""Events over the bound that `block` accepts: those of exchanges in flight when client reading stops. A client may have
thousands of them, and a small queue must not mean that they are lost."""

OVERSHOOT_BYTES = QUEUE_BYTES
"""Bytes of lines that are taken beyond the bound under `block`."""

QueuedLine = TypeVar("QueuedLine")


@dataclass
class LineBatch(Generic[QueuedLine]):
    """Batch of lines numbered first_id, first_id + 1, …; the outlet's thread calls `then` once they are durable."""

    day: str
    first_id: int
    items: list[QueuedLine] = field(default_factory=list)
    size: int = 0
    then: list[Callable[[], None]] = field(default_factory=list)

    @property
    def last_id(self) -> int:
        return self.first_id + len(self.items) - 1


@dataclass
class Gap:
    """Range of events that were dropped since the last reported gap."""

    dropped: int = 0
    first_id: int = 0
    last_id: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, first_id: int, last_id: int, reason: str) -> None:
        self.first_id = min(self.first_id, first_id) if self.dropped else first_id
        self.last_id = max(self.last_id, last_id)
        self.dropped += last_id - first_id + 1
        self.reasons[reason] += last_id - first_id + 1


class LineQueue(Generic[QueuedLine]):
    """Bounded queue of one outlet's lines.

    `events` and `size` (bytes) are the bounds; `refusal` is why lines cannot be written now, "" while they can.
    """

    def __init__(
        self,
        counters: OutletCounters,
        when_full: WhenFull,
        events: int,
        size: int,
        on_unblocked: Unblocked = ignore_unblocked,
    ) -> None:
        self.counters, self.on_unblocked = counters, on_unblocked
        self.blocking = when_full == "block"
        self.events, self.size = events, size
        self.blocked = False
        self.refusal = ""
        self.closed = False
        self.wake = threading.Event()
        """Set when a batch is full or the queue closes; the outlet's thread waits for it, for a beat at most."""
        self._lock = threading.Lock()
        self._full: deque[LineBatch[QueuedLine]] = deque()
        self._filling: LineBatch[QueuedLine] | None = None
        self._next_id = 0
        self._gap = Gap()
        self._near = events - 1 if self.blocking else events  # from here on `add` looks closely
        self._near_size = size - 1 if self.blocking else size

    # ---- the side of `put`

    def add(
        self,
        number: int,
        day: str,
        item: QueuedLine,
        size: int,
        must: bool = False,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Take a line of `size` bytes, or count it as dropped. `must`: take it beyond the bounds (reports of gaps)."""
        with self._lock:
            counters = self.counters
            if counters.queued >= self._near or counters.queued_bytes + size > self._near_size:
                reason = "" if must else self._no_room(size)
                if reason:
                    self._drop(number, number, reason)
                    return
            batch = self._filling
            if batch is None or number != self._next_id or batch.day != day:
                batch = self._begin(day, number)
            self._next_id = number + 1
            batch.items.append(item)
            batch.size += size
            counters.queued += 1
            counters.queued_bytes += size
            if then is not None:
                batch.then.append(then)
            if batch.size >= BATCH_BYTES:
                self._full.append(batch)
                self._filling = None
                self.wake.set()

    def missing(self, number: int, reason: str) -> None:
        """Count the event of this number as dropped: it has no line."""
        with self._lock:
            self._drop(number, number, reason)

    def _no_room(self, size: int) -> str:
        counters = self.counters
        more, more_bytes = (OVERSHOOT, OVERSHOOT_BYTES) if self.blocking else (0, 0)
        if self.closed:
            return "closed"
        queued, queued_bytes = counters.queued + 1, counters.queued_bytes + size
        if self.blocking and (queued >= self.events or queued_bytes >= self.size):
            self.blocked = True
        if queued > self.events + more or queued_bytes > self.size + more_bytes:
            return self.refusal or "queue_full"
        return ""

    def _begin(self, day: str, number: int) -> LineBatch[QueuedLine]:
        if self._filling is not None:
            self._full.append(self._filling)
        batch: LineBatch[QueuedLine] = LineBatch(day, number)
        self._filling = batch
        return batch

    def _drop(self, first_id: int, last_id: int, reason: str) -> None:
        self._gap.add(first_id, last_id, reason)
        self.counters.dropped[reason] += last_id - first_id + 1

    # ---- the side of the outlet's thread

    def take(self) -> list[LineBatch[QueuedLine]]:
        """Return all batches that wait, oldest first; they still count as queued until `mark_done`."""
        with self._lock:
            taken = [*self._full, *([self._filling] if self._filling else [])]
            self._full.clear()
            self._filling = None
        return taken

    def mark_done(self, events: int, size: int) -> None:
        """Count this many taken lines of `size` bytes as durable, or given up."""
        with self._lock:
            self.counters.queued -= events
            self.counters.queued_bytes -= size
        self._unblock_if_room()

    def lost(self, first_id: int, last_id: int, reason: str) -> None:
        """Count lines that were taken as dropped; `mark_done` is called as well."""
        with self._lock:
            self._drop(first_id, last_id, reason)

    def refuse(self, reason: str) -> None:
        """Set why the outlet takes no lines for now; "": it takes them again."""
        with self._lock:
            self.refusal = reason
            self.blocked = self.blocked or (self.blocking and bool(reason))
        self._unblock_if_room()

    def take_gap(self) -> Gap | None:
        """Return the gap since the last call; None if no events were dropped."""
        with self._lock:
            gap, self._gap = self._gap, Gap()
        return gap if gap.dropped else None

    def close(self) -> None:
        with self._lock:
            self.closed = True
            self._near = -1
        self.wake.set()

    def give_up(self, reason: str) -> None:
        """Count what is not durable as dropped, since the thread did not finish in time."""
        with self._lock:
            self.counters.dropped[reason] += self.counters.queued

    def _unblock_if_room(self) -> None:
        """Unblock when lines can be written and the queue is half empty, so that it does not flutter."""
        if not self.blocked or self.refusal:
            return
        if self.counters.queued * 2 <= self.events and self.counters.queued_bytes * 2 <= self.size:
            self.blocked = False
            self.on_unblocked()


START_FAILURE_TIMEOUT = 5.0
"""Seconds for the outlets that are running already when another one cannot be started."""

PutGapEvent = Callable[[EventData, Callable[[], None]], None]
"""Function of an outlet that puts an `audit_gap` event of these data, and calls back once it is durable there."""


class Outlet(Protocol):
    """Destination of lines: files or a topic."""

    name: str
    counters: OutletCounters

    @property
    def blocked(self) -> bool:
        """Return True while lines should not be made; see `Recorder`."""
        ...

    def start(self, put_gap_event: PutGapEvent, on_unblocked: Unblocked) -> None:
        """Start the outlet. Does not raise for temporary conditions such as a full disk."""
        ...

    def add(
        self, line: bytes, number: int, day: str, type_name: str, data: EventData,
        must: bool = False, then: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """Take a line into the queue, or count it as dropped; see LineQueue.add."""
        ...

    def missing(self, number: int, reason: str) -> None:
        """Count the event of this number as dropped: it has no line."""
        ...

    def close(self, timeout: float) -> bool:
        """Write and publish what is queued; see `Recorder`."""
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
                outlet.start(self._gap_events_of(outlet), self._unblocked)
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
        """Return True while no new events should be made. Under `block`: a queue is full or an outlet refuses lines;
        `on_unblocked` is called afterwards. Under `drop` always False."""
        for outlet in self.outlets:  # noqa: SIM110 -- asked for after each event, and a generator takes four times as long
            if outlet.blocked:
                return True
        return False

    @property
    def counters(self) -> Mapping[str, OutletCounters]:
        return {outlet.name: outlet.counters for outlet in self.outlets}

    def put(self, type_name: str, time: float, data: EventData) -> None:
        """Take an event; `time` in seconds since 1970. Never waits and never raises. Rejected events are counted."""
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
        """Write and publish queued events for up to `timeout` seconds. Blocks. Returns True if none are left."""
        if not self._started:
            return True
        with ThreadPoolExecutor(len(self._started)) as pool:  # each has the whole time
            return all(list(pool.map(lambda outlet: outlet.close(timeout), self._started)))

    def _gap_events_of(self, origin: Outlet) -> PutGapEvent:
        def put(data: EventData, then: Callable[[], None]) -> None:
            lines = self._lines
            with self._lock:
                line = lines.line(AUDIT_GAP_EVENT.name, clock.time(), data)
                for outlet in self.outlets:
                    outlet.add(
                        line, lines.last_id, lines.day, AUDIT_GAP_EVENT.name, data,
                        must=True, then=then if outlet is origin else None,
                    )  # fmt: skip

        return put

    def _unblocked(self) -> None:
        if not self.blocked:
            self.on_unblocked()


def gap_event(gap: Gap, outlet: str) -> EventData:
    """Return the data of the `audit_gap` event about events that were dropped."""
    reasons = ", ".join(f"{reason} {count}" for reason, count in gap.reasons.most_common())
    return {
        "reason": "dropped",
        "dropped": gap.dropped,
        "first_id": gap.first_id,
        "last_id": gap.last_id,
        "message": f"{outlet}: {reasons}",
    }
