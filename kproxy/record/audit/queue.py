"""Bounded queue of lines from the loop's thread to an outlet's, in batches, with the gaps between them.

Strategy: `add` appends to the batch that is being filled, which costs a list's append and some counting under a lock. A
batch ends when it is as large as one write should be, when the day changes, and where an event is missing, so that the
numbers of a batch follow each other. The thread takes all batches at once, and says with `settle` when they are
durable: only then they no longer count, so `queued` is what a kill would take away.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .event_sink import OutletCounters, Unblocked, WhenFull, ignore_unblocked

BATCH_BYTES = 1 << 18
"""256 KiB: a larger write is hardly cheaper per byte, and by so much a file may overshoot its size."""

QUEUE_BYTES = 1 << 26
"""64 MiB: a hundred thousand events of the usual 600 bytes."""

OVERSHOOT = 100_000
"""Under `block`, so many events are taken beyond the bound: of exchanges that are under way when clients begin to wait.
A client may have thousands of them, and a small queue must not mean that they are lost."""

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
    """Range of events that were dropped since the last gap was told."""

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
        """Return all batches that wait, oldest first; they still count as queued until they are settled."""
        with self._lock:
            taken = [*self._full, *([self._filling] if self._filling else [])]
            self._full.clear()
            self._filling = None
        return taken

    def settle(self, events: int, size: int) -> None:
        """Count this many taken lines of `size` bytes as durable, or given up."""
        with self._lock:
            self.counters.queued -= events
            self.counters.queued_bytes -= size
        self._look()

    def lost(self, first_id: int, last_id: int, reason: str) -> None:
        """Count lines that were taken as dropped; `settle` is called besides."""
        with self._lock:
            self._drop(first_id, last_id, reason)

    def refuse(self, reason: str) -> None:
        """Set why the outlet takes no lines for now; "": it takes them again."""
        with self._lock:
            self.refusal = reason
            self.blocked = self.blocked or (self.blocking and bool(reason))
        self._look()

    def take_gap(self) -> Gap | None:
        """Return the gap of what was dropped since the last call, None if nothing was."""
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

    def _look(self) -> None:
        """Unblock when lines can be written and the queue is half empty, so that it does not flutter."""
        if not self.blocked or self.refusal:
            return
        if self.counters.queued * 2 <= self.events and self.counters.queued_bytes * 2 <= self.size:
            self.blocked = False
            self.on_unblocked()
