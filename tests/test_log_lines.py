"""Log lines of several processes that write to one pipe."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kproxy.base.logs import WholeLines, make_log

pytestmark = pytest.mark.process
WRITER = """
import os, sys
from kproxy.base.logs import WholeLines
from kproxy.base.logs import make_log
log = make_log("json", "info", WholeLines(sys.stdout, int(sys.argv[1])))
for n in range(30):
    log.info("x" * (n % 3 * 40_000), writer=sys.argv[2], n=n)
"""


def test_lines_of_several_processes_stay_whole() -> None:
    """Though they are far longer than what a pipe keeps together."""
    lock = os.memfd_create("lock")
    try:
        reading, writing = os.pipe()
        command = [sys.executable, "-c", WRITER, str(lock)]
        writers = [subprocess.Popen([*command, name], stdout=writing, pass_fds=[lock]) for name in "abc"]
        os.close(writing)
        with open(reading, "rb") as pipe:
            lines = pipe.read().splitlines()
        assert [writer.wait() for writer in writers] == [0, 0, 0]
    finally:
        os.close(lock)

    assert len(lines) == 90
    assert {(line[:1], line[-1:]) for line in lines} == {(b"{", b"}")}


def test_a_process_that_stands_still_does_not_stop_the_others() -> None:
    """Whoever holds the lock for too long is not waited for."""
    lock = os.memfd_create("lock")
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import fcntl, sys; fcntl.lockf({lock}, fcntl.LOCK_EX); print(1, flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[lock],
    )  # fmt: skip
    reading, writing = os.pipe()
    try:
        assert holder.stdout is not None and holder.stdout.readline()
        with open(writing, "w") as stream:
            make_log("json", "info", WholeLines(stream, lock)).info("said")
        assert b'"said"' in os.read(reading, 1000)
    finally:
        holder.communicate(b"\n")
        os.close(reading)
        os.close(lock)
