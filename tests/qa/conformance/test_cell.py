"""One real run of the conformance report, and how programs are ended."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from kproxy.testing.kafka import Kafka
from tests.qa.matrix.matrix import CLIENTS

from .cell import executed, run
from .faults import faults
from .story import FAULT
from .verified import proved


@pytest.mark.timeout(300)
def test_librdkafka_after_a_lost_answer(kafka: Kafka) -> None:
    """Without idempotence it writes again what is stored already; the run says so, with its story."""
    fault = faults()["disconnect.write-answer"]
    found = run(kafka, "librdkafka", CLIENTS["librdkafka"].command(), fault, 1)

    assert (found.outcome, found.fired) == ("doubled", 1), found
    assert "stored more than once" in found.text
    assert found.counts["sent"] == found.counts["acknowledged"] == 30
    assert found.counts["stored"] > 30
    assert any(FAULT in row and "Produce v10" in row for row in found.story)
    assert found.proved and all("duplicate, as clients" in line and "TOPIC[" in line for line in found.proved), (
        found.proved
    )


def test_what_is_no_capture_proves_nothing(tmp_path: Path) -> None:
    """That is told apart from a capture in which nothing is wrong."""
    broken = tmp_path / "run.pcapng"
    broken.write_bytes(b"no capture")

    assert proved(broken) is None


def test_a_program_that_hangs_is_killed_with_its_children() -> None:
    """A child that it has started holds its output open, and goes with it."""
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    began = time.monotonic()
    _, _, ended = executed([sys.executable, "-c", program], seconds=1)

    assert ended == "killed after 1 s"
    assert time.monotonic() - began < 30
