"""Thread that writes a capture: exchanges come in over a bounded queue, packets go out to the file.

`put` never waits. Exchanges that do not fit into the queue are dropped and counted. The last block of the file contains
the count. The thread ends by itself at a limit or after a failed write; `stopped` gives the reason.

All processes that carry traffic write into the file, which `app.workers.pool_captures` begins and ends. The blocks of
pcapng are whole by themselves, and those of a connection are all from one process. So each process collects blocks and
writes them in one go to a descriptor in append mode, which the kernel does not mix with others'. The table that the
processes share contains the size of the file and its number of exchanges. Each writer reserves room first, so limits
hold exactly.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Literal

from kproxy.base.system import BINARY
from kproxy.protocol.table import schema
from kproxy.record.exchange import Frame, ObservedExchange, Who
from kproxy.rules.shared_numbers import NumberCells

from .policy import Policy
from .writer import CaptureEndpoint, CaptureWriter, PartNote, ToWallTime, WrittenTotals

MOST_KEPT = 1 << 18
"""Bytes that are collected; as much as a file's buffer."""


MOST_WAITING = 20_000
"""Exchanges that wait to be written; a second's worth of small ones."""
MOST_WAITING_BYTES = 64 << 20
"""Bytes of their frames, which no garbage collector can free while they wait."""
LONGEST_TROUBLE = 300
"""Characters of the reason why topics were not recorded."""
FLUSH = 1.0
"""Seconds after which other programs can read written exchanges."""
PERMISSIONS = 0o600  # it holds what clients write

LAST_ENTRIES = 2.0
"""Seconds at the end of a capture for entries that the loop adds."""

StopReason = Literal["", "asked", "max_size", "max_seconds", "max_exchanges", "proxy_ended", "failed"]
QueuedCall = tuple[Callable[..., None], tuple[Any, ...], int]


DONE: QueuedCall = (lambda: None, (), 0)
"""Entry after the last one that the loop adds at the end of a capture."""


class BlockFile:
    """File of one process's blocks, which are only ever written whole."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.kept: list[bytes] = []
        self.size = 0

    def write(self, blocks: bytes) -> int:
        """Collect some whole blocks, and write them when they are many. Raises OSError."""
        self.kept.append(blocks)
        self.size += len(blocks)
        if self.size >= MOST_KEPT:
            self.flush()
        return len(blocks)

    def flush(self) -> None:
        """Write what is collected.

        Raises OSError; a block written in part then is cut in the file, as on a full disk.
        """
        data, self.kept, self.size = memoryview(b"".join(self.kept)), [], 0
        while data:
            data = data[os.write(self.descriptor, data) :]

    def __enter__(self) -> BlockFile:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.flush()
        finally:
            os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class Totals:
    """Bytes and exchanges that all processes have written into a capture. `clock`: monotonic seconds."""

    cells: NumberCells
    clock: Callable[[], float]

    def grow(self, size: int, exchanges: int = 0) -> tuple[int, int]:
        """Add to the totals and return the new ones: (bytes, exchanges)."""
        before = self.cells.take(self.clock()) or (0.0, 0.0)
        now = before[0] + size, before[1] + exchanges
        self.cells.put(*now)
        return int(now[0]), int(now[1])


@dataclass(frozen=True, slots=True)
class CapturePart:
    """Part of one process in a shared capture.

    `names_from`: the number of its first address for a host that has only a name, which no other process gives to
    another host.
    """

    totals: Totals
    names_from: int


@dataclass(frozen=True, slots=True)
class CaptureLimits:
    """Limits of one capture: bytes of its file, seconds, exchanges."""

    size: int = 1 << 30
    seconds: float = 3600.0
    exchanges: int | None = None


class CaptureFile:
    """File of one capture with the thread that writes it, which starts at once.

    `over` is called in the thread when it has ended. `ending` is called in the thread after the last exchange. It has
    the loop add entries and call `done`; None: the loop adds none. Raises OSError.
    """

    def __init__(
        self, path: Path, policy: Policy, limits: CaptureLimits, wall: ToWallTime, over: Callable[[], None],
        part: CapturePart, ending: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.part, self.ending = part, ending
        self.dropped_apis: Counter[str] = Counter()
        self.open: Counter[str] = Counter()
        """Requests by API that were under way when the capture ended."""
        self.trouble = ""
        """Why the topics of the capture were not recorded, or not all of them."""
        self.cut_at = inf
        """Monotonic seconds from which exchanges are not accepted."""
        self.path, self.policy, self.limits, self.wall, self.over = path, policy, limits, wall, over
        self.stopped: StopReason = ""
        self.error = ""
        self.dropped = 0
        self.began = monotonic()
        self.ended: float | None = None
        self.queue: SimpleQueue[QueuedCall | None] = SimpleQueue()
        self.put_bytes = self.done_bytes = 0  # each is changed by one thread only
        self.stop_reason: StopReason = "asked"
        self.leaving = False
        self.file = BlockFile(os.open(path, os.O_WRONLY | BINARY | os.O_APPEND))
        self.writer: CaptureWriter | None = None
        self.thread = threading.Thread(target=self._run, name=f"capture {path.name}", daemon=True)
        self.thread.start()

    @property
    def written(self) -> WrittenTotals:
        return WrittenTotals() if self.writer is None else self.writer.written

    @property
    def seconds(self) -> float:
        """Return for how many seconds the thread has been, or was, at work."""
        return (monotonic() if self.ended is None else self.ended) - self.began

    # ---- the loop's side

    def exchange(self, seen: ObservedExchange, server: CaptureEndpoint, opened: float | None, *, behind: bool) -> None:
        """Queue an exchange to be written, or drop it if the queue is full. `behind`: as the broker saw it."""
        if self.stopped or self.leaving:
            if not behind and (seen.request is None or seen.request.first <= self.cut_at):
                self.count(self.open, seen)
            return
        size = length(seen.request) + length(seen.response)
        waiting = self.put_bytes - self.done_bytes
        if self.queue.qsize() >= MOST_WAITING or (waiting and waiting + size > MOST_WAITING_BYTES):
            self.dropped += 1
            self.count(self.dropped_apis, seen)
            return
        self.put_bytes += size
        self.queue.put((self._behind if behind else self._front, (seen, server, opened), size))

    def closed(self, who: Who, now: float) -> None:
        if not self.stopped:
            self.queue.put((self._closed, (who, now), 0))

    def own(self, exchanges: Iterable[ObservedExchange], server: CaptureEndpoint, now: float) -> None:
        """Queue exchanges of a connection of kproxy's own, and its end, unless the thread has ended."""
        if self.ended is not None:
            return
        for seen in exchanges:
            self.queue.put((self._own, (seen, server), 0))
            who = seen.who
        self.queue.put((self._closed, (who, now), 0))

    def done(self) -> None:
        """Mark the last entry that the loop adds at the end."""
        self.queue.put(DONE)

    def count(self, counts: Counter[str], seen: ObservedExchange) -> None:
        """Count an exchange by its API. Clients choose the keys that the table lacks, so these are not counted."""
        if seen.key in schema.paths():
            counts[seen.api] += 1

    def stop(self, why: StopReason = "asked") -> None:
        """Stop taking exchanges; the thread writes those that wait, then ends. `join` waits for that."""
        self.cut_at = min(self.cut_at, monotonic())
        self.stop_reason, self.leaving = why, True
        self.queue.put(None)

    def join(self, timeout: float) -> bool:
        """Return True if the thread has ended within `timeout` seconds."""
        self.thread.join(timeout)
        return not self.thread.is_alive()

    # ---- the thread's side

    def _run(self) -> None:
        try:
            with self.file:
                self.writer = CaptureWriter(
                    self.file, self.policy, wall=self.wall, begun=True, names_from=self.part.names_from
                )
                why = self._write(self.writer)
                self.cut_at = min(self.cut_at, monotonic())
                self.stopped = why
                if why != "proxy_ended":
                    self._write_last(self.writer)
                note = {"dropped": self.dropped_apis, "open": self.open}
                part: PartNote = {name: dict(counts) for name, counts in note.items() if counts}
                if self.trouble:
                    part = {**part, "topics": self.trouble[:LONGEST_TROUBLE]}
                before = self.writer.written.size
                self.writer.finish_part(monotonic(), part)
                self.part.totals.grow(self.writer.written.size - before)
        except OSError as error:
            self.stopped, self.error = "failed", (error.strerror or str(error)).lower()
        except Exception as error:  # noqa: BLE001 (a mistake of kproxy's own ends the capture, and nothing else)
            self.stopped, self.error = "failed", f"{type(error).__name__}: {error}"
        self.ended = monotonic()
        self.queue = SimpleQueue()  # ended captures stay listed, so their entries must not stay in memory
        self.over()

    def _write(self, writer: CaptureWriter) -> StopReason:
        """Write from the queue until `stop` is called or a limit is reached, and return which."""
        limits = self.limits
        until = self.began + limits.seconds
        flush_at = monotonic() + FLUSH
        while True:
            now = monotonic()
            if now >= until:
                return "max_seconds"
            if now >= flush_at:
                self.file.flush()
                flush_at = now + FLUSH
            try:
                entry = self.queue.get(timeout=max(0.0, min(until, flush_at) - now))
            except Empty:
                continue
            if entry is None:
                return self.stop_reason
            call, given, size = entry
            why = self._put(writer, call, given)
            self.done_bytes += size
            if why:
                return why

    def _write_last(self, writer: CaptureWriter) -> None:
        """Write the entries that the loop adds at the end. Exchanges in the queue count as open."""
        if self.ending is None:
            return
        self.ending()
        until = monotonic() + LAST_ENTRIES
        while (left := until - monotonic()) > 0:
            try:
                entry = self.queue.get(timeout=left)
            except Empty:
                break
            if entry is DONE:
                return
            if entry is not None and entry[0] == self._front:
                self.count(self.open, entry[1][0])
            elif entry is not None and entry[0] in (self._own, self._closed) and self._put(writer, *entry[:2]):
                self.trouble = self.trouble or "the capture has reached its limit"
        self.trouble = self.trouble or f"no answer in {LAST_ENTRIES:g} s"

    def _put(self, writer: CaptureWriter, call: Callable[..., None], given: tuple[Any, ...]) -> StopReason:
        """Write one entry. Its room is reserved before and released after. Return the limit that is reached or would be
        exceeded, "" for none."""
        totals, most = self.part.totals, 0 if call == self._closed else writer.most(given[0])
        limits, written, exchange = self.limits, writer.written, int(call == self._front)
        size, exchanges = totals.grow(most, exchange)
        if most and size > limits.size:
            totals.grow(-most, -exchange)
            return "max_size"
        if limits.exchanges is not None and exchanges > limits.exchanges:
            totals.grow(-most, -exchange)
            return "max_exchanges"
        before = written.size
        call(*given)
        totals.grow(written.size - before - most)
        return "max_exchanges" if exchange and exchanges == limits.exchanges else ""

    def _front(self, seen: ObservedExchange, server: CaptureEndpoint, opened: float | None) -> None:
        assert self.writer is not None, "the thread has made it"
        self.writer.write(seen, server, opened=opened, older=opened is None)

    def _behind(self, seen: ObservedExchange, server: CaptureEndpoint, opened: float | None) -> None:
        assert self.writer is not None, "the thread has made it"
        self.writer.write_broker(seen, server, opened=opened, older=opened is None)

    def _own(self, seen: ObservedExchange, server: CaptureEndpoint) -> None:
        assert self.writer is not None, "the thread has made it"
        self.writer.write_own(seen, server)

    def _closed(self, who: Who, now: float) -> None:
        assert self.writer is not None, "the thread has made it"
        self.writer.closed(who, now)


def length(frame: Frame | None) -> int:
    """Return the bytes that a frame holds in memory."""
    return 0 if frame is None else len(frame.data)
