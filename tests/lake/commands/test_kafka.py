"""From a topic of a real Kafka to bronze and silver, with Spark's own connector.

The commands run in this process; with KPROXY_TEST_ALL=1 as processes of their own, each with a Spark, as a user has it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from kproxy.lake.lake import Lake
from kproxy.lake.tables import BRONZE, BRONZE_CORRUPT, REQUESTS
from kproxy.testing.kafka import Kafka

TOPIC = "pipeline-events"


def send(kafka: Kafka, *lines: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap("DIRECT"), "acks": "all"})
    for line in lines:
        producer.produce(TOPIC, line.encode(), partition=0)
    assert producer.flush(60) == 0


def as_processes(*words: Any) -> str:
    """The command as a user starts it; what it told."""
    done = subprocess.run(
        [sys.executable, "-m", "kproxy.lake", *map(str, words), "--master", "local[2]"],
        capture_output=True, text=True, timeout=250, check=False, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def take(kafka: Kafka, lake: Path, command: Any) -> str:
    """Run bronze from the topic, then silver; return what they logged."""
    source = ["--kafka", kafka.bootstrap("DIRECT"), "--topic", TOPIC]
    told = ""
    for arguments in (["run", "--until", "bronze", *source], ["run", "--until", "silver"]):
        words = [*arguments, "--lake", lake]
        if os.environ.get("KPROXY_TEST_ALL"):
            told += as_processes(*words)
            continue
        done = command(*words)
        assert done.exit_code == 0, done.output
        told += done.stderr
    return told


@pytest.mark.deep
@pytest.mark.timeout(400)  # Spark starts as a process of its own, on a machine that may be busy
def test_events_of_a_topic_are_taken_over_once(
    kafka: Kafka, spark: SparkSession, audit: Any, audit_command: Any, tmp_path: Path
) -> None:
    """A second run goes on where the first ended; what is no event is put aside."""
    lake = tmp_path / "lake"
    send(kafka, audit.event(1, api="Fetch"), "{")
    first = take(kafka, lake, audit_command)
    send(kafka, audit.event(2, api="Produce"))
    take(kafka, lake, audit_command)

    found = Lake(spark, str(lake))
    assert "2 lines, 1 corrupt" in first
    assert sorted((row.event_id, row.file, row.offset) for row in found.read(BRONZE).collect()) == [
        (1, f"kafka:{TOPIC}/0", 0), (2, f"kafka:{TOPIC}/0", 2)
    ]  # fmt: skip
    assert [row.line for row in found.read(BRONZE_CORRUPT).collect()] == ["{"]
    assert sorted((row.event_id, row.api) for row in found.read(REQUESTS).collect()) == [(1, "Fetch"), (2, "Produce")]
