"""The thread that writes lines to files.

Strategy: twice in each `flush` interval it takes all batches that wait, appends them, and syncs; so a line is durable
at most one interval after it was put, as long as a write and a sync take less than half of one. Batches stay in memory,
and in the queue's numbers, until a sync has succeeded: a failed one is repaired by writing them again. While the system
refuses, they wait in the queue, which is tried again every `retry` seconds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from .event_files import OpenFile, ProcessMark, WriterIdentity, file_stem
from .event_sink import WhenFull
from .publisher import Publisher, publish, reason_of
from .queue import QUEUE_BYTES, Gap, LineBatch, LineQueue

MOST_UNPUBLISHED = 2
"""While so many files wait for compression the open one grows beyond its size: better a large file than many open."""


@dataclass(frozen=True)
class FileSettings:
    """Settings of the audit's files that a user can choose. Times in seconds, sizes in bytes; see docs/audit.md."""

    dir: Path
    identity: WriterIdentity
    flush: float = 1.0
    """A line is durable at most so long after it was put."""
    roll_size: int = 64_000_000
    """A file is closed at this size, before compression."""
    roll_age: float = 300.0
    """A file is also closed at this age."""
    when_full: WhenFull = "drop"
    queue: int = 100_000
    """Events that are not durable yet."""
    queue_bytes: int = QUEUE_BYTES
    """Bytes of the lines of events that are not durable yet."""
    retry: float = 2.0
    """Seconds between attempts while the system refuses."""


class FileWriter:
    """Writer of the event files of one process. `run` is its thread; `tell_gap` makes an event of what was dropped."""

    def __init__(
        self, settings: FileSettings, queue: LineQueue[bytes], publisher: Publisher, log: FilteringBoundLogger,
        tell_gap: Callable[[Gap], None],
    ) -> None:  # fmt: skip
        self.settings, self.queue, self.publisher, self.log = settings, queue, publisher, log
        self.tell_gap = tell_gap
        self.counters = queue.counters
        self._session: ProcessMark | None = None
        self._clean = False
        self._unpublished: set[OpenFile] = set()
        self._todo: deque[LineBatch[bytes]] = deque()
        self._written: list[LineBatch[bytes]] = []
        self._file: OpenFile | None = None
        self._opened_at = 0.0
        self._next = 0.0

    # ---- the thread

    def begin(self) -> None:
        """Make the session's mark, if that is possible now; called before the thread starts."""
        self._attempt(self._begin)

    def run(self) -> None:
        while not self.queue.closed:
            self.queue.wake.wait(max(0.0, self._next - time.monotonic()))
            self.queue.wake.clear()
            if not self.counters.failing or time.monotonic() >= self._next:
                self._attempt(self._step)
        self._end()

    def _attempt(self, step: Callable[[], None]) -> None:
        """Take one step, and record whether the system refuses or takes lines again."""
        try:
            step()
        except OSError as error:
            self._refused(reason_of(error), error)
            return
        except Exception as error:
            if not self.counters.failing:
                self.log.error("audit: events cannot be written, which is a mistake in kproxy", exc_info=error)
            self._refused("mistake", error)
            return
        if self.counters.failing and not self._todo:
            self.counters.failing = False
            self.log.info("audit: events are written again", dir=str(self.settings.dir))
            self.queue.refuse("")

    def _refused(self, reason: str, error: Exception) -> None:
        counters = self.counters
        counters.errors[reason] += 1
        counters.last_error = str(error)
        self._next = time.monotonic() + self.settings.retry
        self.queue.refuse(reason)
        if not counters.failing:
            counters.failing = True
            then = "clients wait" if self.queue.blocking else "they are dropped once the queue is full"
            where = str(self.settings.dir)
            self.log.warning(
                "audit: events cannot be written, kproxy tries again", then=then, dir=where, error=str(error)
            )

    # ---- one step

    def _begin(self) -> None:
        if self._session is None:
            self._session = ProcessMark(self.settings.dir, self.settings.identity)

    def _step(self) -> None:
        self._begin()
        self._todo.extend(self.queue.take())
        while self._todo:
            self._append(self._todo[0])
            self._written.append(self._todo.popleft())
        now = time.monotonic()
        if now >= self._next or self.queue.closed:
            self._sync()
            self._next = now + self.settings.flush / 2
            if (gap := self.queue.take_gap()) is not None:
                self.tell_gap(gap)
        if self._file is not None and now - self._opened_at >= self.settings.roll_age:
            self._roll()

    def _append(self, batch: LineBatch[bytes]) -> None:
        file = self._file
        if file is not None and file.size and (batch.day > file.day or self._large(file)):
            self._roll()
        if self._file is None:
            settings = self.settings
            settings.dir.mkdir(parents=True, exist_ok=True)
            self._file = OpenFile(settings.dir, file_stem(settings.identity.stem, batch.first_id), batch.day)
            self._opened_at = time.monotonic()
        self._file.append(b"".join(batch.items))

    def _large(self, file: OpenFile) -> bool:
        return file.size >= self.settings.roll_size and self.publisher.backlog < MOST_UNPUBLISHED

    def _sync(self) -> None:
        """Make durable what was written; if that fails, it has to be written again."""
        if self._file is None or not self._written:
            return
        try:
            self._file.sync()
        except OSError:
            self._todo.extendleft(reversed(self._written))
            self._written.clear()
            raise
        done, self._written = self._written, []
        self.counters.last_durable = time.time()
        for batch in done:
            self.counters.written += len(batch.items)
            self.counters.bytes += batch.size
            self.queue.settle(len(batch.items), batch.size)
            for then in batch.then:
                then()

    def _roll(self) -> None:
        """Close the file and have it published; one without lines is deleted."""
        self._sync()
        file = self._file
        if file is None:
            return
        file.repair()
        self._file = None
        if not file.size:
            file.remove()
            return

        def job() -> None:
            publish(self.settings.dir, file.stem, file.day, file.fd)
            self._unpublished.discard(file)
            file.close()
            self.counters.files += 1

        self._unpublished.add(file)
        self.publisher.do(job)

    # ---- the end

    def _end(self) -> None:
        """Write what is left, its gaps, and close the file. What cannot be written now is given up."""
        for _ in range(2):  # the second for the gap that the first one tells
            self._attempt(self._step)
        reason = self.queue.refusal
        if self._file is not None:
            self._attempt(self._roll)
        left = [*self._written, *self._todo, *self.queue.take()]
        for batch in left:
            self.queue.lost(batch.first_id, batch.last_id, reason or self.queue.refusal)
            self.queue.settle(len(batch.items), batch.size)
        if self._file is not None:
            self._file.close()
        self._clean = not left and self.queue.take_gap() is None

    def leave(self, *, clean: bool) -> bool:
        """Delete the process's mark if nothing was left behind, and release all locks, once both threads have ended."""
        for file in self._unpublished:
            file.close()
        if self._session is None:
            return False
        try:
            if clean and self._clean:
                self._session.end()
                return True
        except OSError as error:
            self.counters.last_error = str(error)
        self._session.close()
        return False
