"""Outlets of the config, and the file outlet: a queue, a writing thread, publication, and recovery at the start.

Twice in each `flush` interval the writing thread takes all waiting batches, appends them, and syncs. So a line is
durable within one interval of `put`, if a write and a sync take less than half of an interval. Batches stay in memory
and in the queue's counters until a sync has succeeded; after a failed sync they are written again. While writes fail,
batches wait in the queue, and the thread retries every `retry` seconds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kproxy.record.events.column import EventData
from kproxy.record.otlp.export import OtlpCounters, OtlpSettings

from .config import AuditConfig, KafkaTopic
from .event_files import OpenFile, ProcessMark, Publisher, WriterIdentity, file_stem, publish, reason_of
from .event_sink import OutletCounters, Unblocked, WhenFull, ignore_unblocked
from .kafka_outlet import KafkaOutlet, KafkaSettings
from .otlp_outlet import OtlpOutlet
from .recorder import QUEUE_BYTES, Gap, LineBatch, LineQueue, Outlet, PutGapEvent, Recorder, gap_event
from .recover import UncleanProcess, find_unclean

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

MOST_UNPUBLISHED = 2
"""While this many files wait for compression, the open file exceeds its size: one large file is better than many open
ones."""


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
    """Writer of the event files of one process. `run` is its thread; `report_gap` makes an event of dropped lines."""

    def __init__(
        self, settings: FileSettings, queue: LineQueue[bytes], publisher: Publisher, log: FilteringBoundLogger,
        report_gap: Callable[[Gap], None],
    ) -> None:  # fmt: skip
        self.settings, self.queue, self.publisher, self.log = settings, queue, publisher, log
        self.report_gap = report_gap
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
                self.log.error("audit: bug in kproxy, events cannot be written", exc_info=error)
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
                self.report_gap(gap)
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
            self.queue.mark_done(len(batch.items), batch.size)
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
        """Write what is left, its gaps, and close the file. Lines that cannot be written now are dropped."""
        for _ in range(2):  # the second attempt is for the gap that the first one reports
            self._attempt(self._step)
        reason = self.queue.refusal
        if self._file is not None:
            self._attempt(self._roll)
        left = [*self._written, *self._todo, *self.queue.take()]
        for batch in left:
            self.queue.lost(batch.first_id, batch.last_id, reason or self.queue.refusal)
            self.queue.mark_done(len(batch.items), batch.size)
        if self._file is not None:
            self._file.close()
        self._clean = not left and self.queue.take_gap() is None

    def release(self, *, clean: bool) -> bool:
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


class FileOutlet:
    """Outlet that writes files. `start` makes the folder and the process's mark if it can, or tries again later."""

    name = "files"

    def __init__(self, settings: FileSettings, log: FilteringBoundLogger) -> None:
        self.settings, self.log = settings, log
        self.counters = OutletCounters()
        self._queue: LineQueue[bytes] = LineQueue(
            self.counters, settings.when_full, settings.queue, settings.queue_bytes
        )
        self._publisher = Publisher(self.counters, log, settings.retry)
        self._writer = FileWriter(settings, self._queue, self._publisher, log, self._report_gap)
        self._thread = threading.Thread(target=self._writer.run, name="audit writer", daemon=True)
        self._put_gap_event: PutGapEvent = _ignore_event
        self._dead: list[UncleanProcess] = []

    @property
    def blocked(self) -> bool:
        return self._queue.blocked

    def start(self, put_gap_event: PutGapEvent, on_unblocked: Unblocked) -> None:
        self._put_gap_event, self._queue.on_unblocked = put_gap_event, on_unblocked
        self._writer.begin()
        self._thread.start()
        self._publisher.do(self._recover)
        self._publisher.start()

    def add(
        self, line: bytes, number: int, day: str, _type_name: str, _data: EventData,
        must: bool = False, then: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self._queue.add(number, day, line, len(line), must, then)

    def missing(self, number: int, reason: str) -> None:
        self._queue.missing(number, reason)

    def close(self, timeout: float) -> bool:
        limit = time.monotonic() + timeout
        self._queue.close()
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._queue.give_up("close_timeout")
            return False
        published = self._publisher.close(max(0.0, limit - time.monotonic()))
        if not self._publisher.ended:
            return False
        for dead in self._dead:
            dead.close()
        return self._writer.release(clean=published)

    def _report_gap(self, gap: Gap) -> None:
        self._put_gap_event(gap_event(gap, self.name), _do_nothing)

    # ---- recovery, in the publisher's thread

    def _recover(self) -> None:
        for dead in find_unclean(self.settings.dir, self.settings.identity.stem):
            self._dead.append(dead)
            self._report_unclean(dead)

    def _report_unclean(self, dead: UncleanProcess) -> None:
        """Put an event about each of its files. Publish the files when the last event is durable."""
        events = dead.events()
        durable = iter(range(len(events), 0, -1))

        def then() -> None:
            if next(durable) == 1:
                self._publisher.do(lambda: self._publish(dead))

        for data in events:
            self.log.warning("audit: recovered events after unclean shutdown", **data)
            self._put_gap_event(data, then)

    def _publish(self, dead: UncleanProcess) -> None:
        while dead.files:
            dead.files[0].publish()
            self.counters.files += bool(dead.files.pop(0).lines)
        dead.end()
        self.counters.unclean_shutdowns += 1


def _do_nothing() -> None:
    pass


def _ignore_event(_data: EventData, _then: Callable[[], None]) -> None:
    pass


def make_recorder(
    audit: AuditConfig, source: str, log: FilteringBoundLogger, on_unblocked: Unblocked = ignore_unblocked,
    otlp: tuple[OtlpSettings, OtlpCounters] | None = None,
) -> Recorder:  # fmt: skip
    """Return a recorder that is not started. `source` is instance/boot uuid/worker; `otlp`: where events go as logs.

    Raises MissingExtra or MissingOtlp if a topic or protobuf is asked for, and what that needs is not installed.
    """
    outlets: list[Outlet] = []
    if audit.dir is not None:
        outlets.append(FileOutlet(file_settings(audit, Path(audit.dir), source), log))
    if audit.kafka is not None:
        outlets.append(KafkaOutlet(kafka_settings(audit, audit.kafka, source), log))
    if otlp is not None:
        outlets.append(OtlpOutlet(*otlp, log, when_full=audit.when_full, queue=audit.queue, flush=audit.flush))
    return Recorder(source, outlets, on_unblocked)


def file_settings(audit: AuditConfig, folder: Path, source: str) -> FileSettings:
    return FileSettings(
        folder,
        WriterIdentity.of(source),
        flush=audit.flush,
        roll_size=audit.roll_size,
        roll_age=audit.roll_age,
        when_full=audit.when_full,
        queue=audit.queue,
    )


def kafka_settings(audit: AuditConfig, kafka: KafkaTopic, source: str) -> KafkaSettings:
    options = dict(kafka.options)
    if kafka.password is not None:
        options["sasl.password"] = kafka.password.get_secret_value()
    return KafkaSettings(kafka.bootstrap, kafka.topic, source, options, when_full=audit.when_full, queue=audit.queue)
