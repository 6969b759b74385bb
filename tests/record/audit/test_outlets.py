"""Outlets as the config asks for them."""

from __future__ import annotations

from pathlib import Path

import structlog

from kproxy.record.audit.config import AuditConfig
from kproxy.record.audit.outlets import file_settings, kafka_settings, make_recorder

SOURCE = "host/5b0c1e2f-1111-4222-8333-444455556666/0"


def test_what_the_config_says_is_what_is_done() -> None:
    """Times in seconds, sizes in bytes, the policy and the queue for both; the password goes to librdkafka only."""
    audit = AuditConfig.model_validate({
        "dir": "audit/", "flush": "500ms", "roll_size": "1MB", "roll_age": "1m", "when_full": "block", "queue": 500,
        "kafka": {"bootstrap": "b:9092", "topic": "t", "options": {"client.id": "x"}, "password": "secret"},
    })  # fmt: skip
    assert audit.kafka is not None
    files, kafka = file_settings(audit, Path("audit"), SOURCE), kafka_settings(audit, audit.kafka, SOURCE)

    assert (files.flush, files.roll_size, files.roll_age, files.when_full, files.queue) == (0.5, 1e6, 60, "block", 500)
    assert files.identity.source == kafka.source == SOURCE
    assert (kafka.bootstrap, kafka.topic, kafka.when_full, kafka.queue) == ("b:9092", "t", "block", 500)
    assert kafka.options == {"client.id": "x", "sasl.password": "secret"}
    assert [outlet.name for outlet in make_recorder(audit, SOURCE, structlog.get_logger()).outlets] == [
        "files",
        "kafka",
    ]


def test_only_what_is_asked_for() -> None:
    """No topic without `kafka`, no files without `dir`."""
    files, kafka = AuditConfig.model_validate({"dir": "a"}), AuditConfig.model_validate({"kafka": {"bootstrap": "b:1"}})

    assert [outlet.name for outlet in make_recorder(files, SOURCE, structlog.get_logger()).outlets] == ["files"]
    assert [outlet.name for outlet in make_recorder(kafka, SOURCE, structlog.get_logger()).outlets] == ["kafka"]
