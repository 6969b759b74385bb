"""Outlets as the config asks for them, and the one that writes files.

That one is a queue, a thread that writes, one that publishes, and recovery at the start.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from kproxy.record.events.column import EventData
from kproxy.record.otlp.export import OtlpCounters, OtlpSettings

from .config import AuditConfig, KafkaTopic
from .event_files import WriterIdentity
from .event_sink import OutletCounters, Unblocked, ignore_unblocked
from .file_writer import FileSettings, FileWriter
from .kafka_outlet import KafkaOutlet, KafkaSettings
from .otlp_outlet import OtlpOutlet
from .publisher import Publisher
from .queue import Gap, LineQueue
from .recorder import Outlet, PutRecovered, Recorder, gap_event
from .recover import UncleanProcess, find_unclean


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
        self._writer = FileWriter(settings, self._queue, self._publisher, log, self._tell_gap)
        self._thread = threading.Thread(target=self._writer.run, name="audit writer", daemon=True)
        self._tell: PutRecovered = _ignore_event
        self._dead: list[UncleanProcess] = []

    @property
    def blocked(self) -> bool:
        return self._queue.blocked

    def start(self, tell: PutRecovered, on_unblocked: Unblocked) -> None:
        self._tell, self._queue.on_unblocked = tell, on_unblocked
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
        return self._writer.leave(clean=published)

    def _tell_gap(self, gap: Gap) -> None:
        self._tell(gap_event(gap, self.name), _do_nothing)

    # ---- recovery, in the publisher's thread

    def _recover(self) -> None:
        for dead in find_unclean(self.settings.dir, self.settings.identity.stem):
            self._dead.append(dead)
            self._tell_all(dead)

    def _tell_all(self, dead: UncleanProcess) -> None:
        """Tell of all its files; when the last event is durable, publish them."""
        events = dead.events()
        durable = iter(range(len(events), 0, -1))

        def then() -> None:
            if next(durable) == 1:
                self._publisher.do(lambda: self._publish(dead))

        for data in events:
            self.log.warning("audit: a process did not end in order, its events are kept", **data)
            self._tell(data, then)

    def _publish(self, dead: UncleanProcess) -> None:
        while dead.files:
            dead.files[0].publish()
            self.counters.files += bool(dead.files.pop(0).lines)
        dead.end()
        self.counters.recovered += 1


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
    """Return the config's audit of files as settings of its outlet."""
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
