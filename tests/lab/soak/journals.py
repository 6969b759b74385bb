"""What clients have noted, and what is really in the topics: the two things that are held against each other."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

Log = dict[int, list[tuple[int, bytes]]]
"""By partition: offset and value of each record, as they lie there."""


def notes(journal: Path) -> Iterator[dict[str, Any]]:
    """The lines of a journal; a last one that was cut short by a kill is left out."""
    if journal.exists():
        for line in journal.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


def content(bootstrap: str, topic: str, partitions: int, *, seconds: float = 120) -> Log:
    """All committed records of a topic, read up to the end that each partition has now.

    Raises AssertionError when that takes longer: somebody's transaction is open, or a partition has no leader.
    """
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "soak-judge", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True,
    })  # fmt: skip
    log: Log = {partition: [] for partition in range(partitions)}
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in log])
    open_ones, limit = set(log), monotonic() + seconds
    try:
        while open_ones:
            assert monotonic() < limit, f"the end of {topic}, partitions {sorted(open_ones)}, is not reached"
            for message in consumer.consume(5000, 1):
                if message.error() is None:
                    log[message.partition()].append((message.offset(), message.value()))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    open_ones.discard(message.partition())
    finally:
        consumer.close()
    return log


def acknowledged(journal: Path) -> tuple[Mapping[int, list[tuple[int | None, int]]], int, list[str]]:
    """Of the numbered producer: offset and number of each acknowledged record by partition, how many it has written to
    each, and what failed. The offset is None where the broker did not tell it."""
    found: dict[int, list[tuple[int | None, int]]] = defaultdict(list)
    written, failed = 0, []
    for note in notes(journal):
        for partition, offset, number in note.get("acknowledged", ()):
            found[partition].append((offset, number))
        failed += note.get("failed", [])
        failed += [note["fatal"]] if "fatal" in note else []
        written = note.get("written", written)
    return found, written, failed


def java_acknowledged(output: Path) -> list[tuple[int, int, int]]:
    """Of Kafka's VerifiableProducer: partition, offset and value of each record that was acknowledged."""
    found = []
    for line in output.read_text(encoding="utf-8").splitlines():
        said = json.loads(line) if line.startswith("{") and line.endswith("}") else {}
        if said.get("name") == "producer_send_success":
            found.append((said["partition"], said["offset"], int(said["value"])))
    return found
