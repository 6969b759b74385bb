"""bronze that goes on: new events are taken over as they come, until it is stopped."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kproxy.lake.jobs.ingest import STREAM_NAME, FileSource, bronze
from kproxy.lake.lake import BatchLedger
from kproxy.lake.spark import Run
from tests.support.wait import until

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))


def batches(run: Run) -> int:
    return len(BatchLedger(run.lake, "bronze").batches())


@pytest.mark.timeout(300)
def test_what_comes_is_taken_over_until_it_is_stopped(run: Run, audit: Any) -> None:
    """Each file in a batch of its own when it comes; nothing more once the stream is stopped."""
    audit.publish(audit.event(1))
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(bronze, run, FileSource(str(audit.path)), "100 milliseconds")
        try:
            until(lambda: batches(run) == 1, 120)
            audit.publish(audit.event(2), "{")
            until(lambda: batches(run) == 2, 120)
        finally:
            for stream in run.spark.streams.active:
                if stream.name == STREAM_NAME:
                    stream.stop()
        taken = going.result(60)

    assert (taken.batches, taken.lines, taken.corrupt) == (2, 3, 1)


if EVERYTHING:  # Spark starts as a process of its own

    @pytest.mark.timeout(600)
    def test_ctrl_c_ends_the_command(audit: Any, tmp_path: Path) -> None:
        """`kproxy audit run --until bronze --every` says what it has taken over, and exits with 0."""
        audit.publish(audit.event(1))
        command = [sys.executable, "-m", "kproxy.lake", *shlex.split("run --until bronze --every '1 second'")]
        command += ["--from", str(audit.path)]
        command += ["--lake", str(tmp_path / "lake"), "--master", "local[1]"]
        with (tmp_path / "told").open("w") as told, subprocess.Popen(command, stderr=told) as process:
            until(lambda: "1 event in" in (tmp_path / "told").read_text(), 300)
            process.send_signal(signal.SIGINT)
            code = process.wait(120)

        text = (tmp_path / "told").read_text()
        assert (code, "bronze: 1 batch, 1 line, 0 corrupt" in text) == (0, True), text
