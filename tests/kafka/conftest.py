"""Kafka's own message classes, of two releases: 3.9 has every old version, 4.4 the new ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.testing.kafka import KAFKA_VERSION, kafka_libs
from tests.support.java_program import JavaProgram

OLD_KAFKA_VERSION = "3.9.1"
"""The last release line that still reads and writes what Kafka 4 has removed (KIP-896)."""

HERE = Path(__file__).parent / "java"


@pytest.fixture(scope="session")
def java_messages() -> Iterator[dict[str, JavaProgram]]:
    """Kafka release → the program that makes and reads its messages."""
    with (
        JavaProgram(HERE / "messages", "Messages", kafka_libs(OLD_KAFKA_VERSION)) as old,
        JavaProgram(HERE / "messages", "Messages", kafka_libs(KAFKA_VERSION)) as new,
    ):
        yield {"3.9": old, "4.4": new}


@pytest.fixture(scope="session")
def java_records() -> Iterator[JavaProgram]:
    """The program that makes and reads records of every magic."""
    with JavaProgram(HERE / "records", "Records", kafka_libs(OLD_KAFKA_VERSION)) as program:
        yield program
