"""Outlets as the config asks for them, with a recorder in front of them."""

from __future__ import annotations

from pathlib import Path

from structlog.typing import FilteringBoundLogger

from kproxy.config.audit import AuditConfig, KafkaTopic

from .event_sink import Unblocked, ignore_unblocked
from .file_names import WriterIdentity
from .file_outlet import FileOutlet
from .file_settings import FileSettings
from .kafka_outlet import KafkaOutlet, KafkaSettings
from .recorder import Outlet, Recorder


def make_recorder(
    audit: AuditConfig, source: str, log: FilteringBoundLogger, on_unblocked: Unblocked = ignore_unblocked
) -> Recorder:
    """Return a recorder that is not started. `source` is instance/boot uuid/worker.

    Raises MissingExtra if a topic is asked for and confluent-kafka is not installed.
    """
    outlets: list[Outlet] = []
    if audit.dir is not None:
        outlets.append(FileOutlet(file_settings(audit, Path(audit.dir), source), log))
    if audit.kafka is not None:
        outlets.append(KafkaOutlet(kafka_settings(audit, audit.kafka, source), log))
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
    """Return the config's audit topic as settings of its outlet."""
    options = dict(kafka.options)
    if kafka.password is not None:
        options["sasl.password"] = kafka.password.get_secret_value()
    return KafkaSettings(kafka.bootstrap, kafka.topic, source, options, when_full=audit.when_full, queue=audit.queue)
