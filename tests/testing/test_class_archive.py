"""JVMs that begin with what another one has loaded."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kproxy.base.jars import java
from kproxy.testing.kafka import archive_options, class_archive, kafka_libs
from tests.support.java_jars import make_class_archive

pytestmark = pytest.mark.kafka
BROKER = "kafka.Kafka"


def loaded(libs: Path, options: tuple[str, ...]) -> str:
    """What a JVM says of the classes that it loads for a broker, which ends at once: it is not told any settings."""
    command = [java(), *options, "-Xlog:class+load", "-cp", f"{libs}/*", BROKER]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout


def test_classes_come_from_the_archive() -> None:
    """The jars are not read for what is in it."""
    make_class_archive(kafka_libs())

    said = loaded(kafka_libs(), archive_options(kafka_libs()))

    (line,) = [line for line in said.splitlines() if f"] {BROKER} " in line]
    assert "source: shared objects file (top)" in line


def test_without_an_archive_or_with_a_broken_one_all_goes_on(tmp_path: Path) -> None:
    """There are no options; and Java passes over a file that it cannot use, without a word."""
    libs = tmp_path / "libs"
    libs.mkdir()
    assert archive_options(libs) == ()

    class_archive(libs).write_bytes(b"no archive")
    options = archive_options(libs)
    assert options != ()
    command = [java(), *options, "-cp", f"{kafka_libs()}/*", "kafka.tools.StorageTool", "random-uuid"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, len(done.stdout.strip())) == (0, 22)
