"""Log lines that nobody reads, hostile texts in them, and what Python itself would print."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kproxy.base.logs import LONGEST, LogQueue, WholeLines, make_log
from kproxy.testing.process import free_port
from tests.selection import WORKERS
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import RawClient
from tests.support.wait import until

pytestmark = pytest.mark.process
HOSTILE = "b1\n2026-11-23T00:00:00Z [info] forged\x1b[2J\r\x85\u2028\u202e\ud800"
STRAY = """
import logging, sys, threading, warnings
from kproxy.base.logs import log_of_process
log, _ = log_of_process("json", "info")
log.info("begins", secret="no")
class Bad:
    def __del__(self):
        raise ValueError("in a finaliser")
def fails(password="hunter2"):
    raise RuntimeError("in a thread\\nforged")
thread = threading.Thread(target=fails, name="worker-1")
thread.start()
thread.join()
Bad()
warnings.warn("deprecated", UserWarning)
logging.getLogger("trio.serve_listeners").error("accept failed %s", "EMFILE", exc_info=OSError("no files"))
logging.getLogger("x").info("%s %s", "too few")
logging.getLogger("x").error("%s %s", "too few")
def last(token="hunter2"):
    raise ExceptionGroup("all of it", [KeyError("a"), ValueError("b")])
last()
"""


@contextmanager
def unread(size: int = 4096) -> Iterator[tuple[int, Any]]:
    """A pipe of so many bytes: (descriptor to read from, stream to write to)."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, size)
    with open(writing, "w") as stream:
        yield reading, stream
    os.close(reading)


def test_lines_that_nobody_reads_are_lost_and_counted() -> None:
    """Whoever logs does not wait; once somebody reads, the lines that fitted come in their order, and lines say how
    many did not. The writer may have found some room in between, so that the first of these come early."""
    with unread() as (reading, stream):
        queue = LogQueue(WholeLines(stream), most_bytes=50_000)
        log = make_log("json", "info", queue)
        queue.on_lost = lambda number: log.warning("lost", count=number)
        for n in range(2000):
            log.info("x" * 50, n=n)
        lost = queue.lost
        assert 0 < lost < 2000

        data, told, numbers = b"", 0, list[int]()
        while told + len(numbers) < 2000:
            data += os.read(reading, 65536)
            *whole, data = data.split(b"\n")
            for line in map(json.loads, whole):
                if line["event"] == "lost":
                    told += line["count"]
                else:
                    numbers.append(line["n"])
        assert told == queue.lost
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 2000 - told
        assert queue.close()


def test_what_is_left_is_written_at_the_end() -> None:
    """Close waits for the thread, and later lines are lost."""
    with unread(1 << 20) as (reading, stream):
        queue = LogQueue(WholeLines(stream))
        for n in range(1000):
            queue.write(f"line {n}\n")
        assert queue.close()
        queue.write("later\n")

        assert os.read(reading, 1 << 20).decode().splitlines() == [f"line {n}" for n in range(1000)]
        assert queue.lost == 1


def test_a_stream_that_cannot_be_written_loses_lines_only() -> None:
    """A closed pipe, a full disk: nothing is raised, and each line counts."""
    with open("/dev/full", "w") as stream:
        queue = LogQueue(WholeLines(stream))
        make_log("json", "info", queue).info("said")
        assert queue.close()
        assert queue.lost == 1


def test_a_pipe_that_another_process_has_made_non_blocking() -> None:
    """The thread waits until it can be written to."""
    with unread() as (reading, stream):
        os.set_blocking(stream.fileno(), False)
        queue = LogQueue(WholeLines(stream))
        queue.write("x" * 20_000 + "\n")
        data = b""
        while not data.endswith(b"\n"):
            data += os.read(reading, 65536)
        assert queue.close()
        assert len(data) == 20_001


def test_the_end_is_not_waited_for_when_nobody_reads() -> None:
    """Close says that it could not write all of it, after the time that it was given."""
    with unread() as (reading, stream):
        queue = LogQueue(WholeLines(stream))
        queue.write("x" * 20_000 + "\n")

        assert not queue.close(0.05)
        os.set_blocking(reading, False)
        while queue.thread is not None and queue.thread.is_alive():  # its descriptor will be somebody else's
            with suppress(BlockingIOError):
                os.read(reading, 65536)
            queue.thread.join(0.01)


def test_a_line_that_is_logged_while_one_is_logged() -> None:
    """A finaliser may run at any moment, in the queue's own code too: the same thread does not wait for itself."""
    with unread() as (reading, stream):
        queue = LogQueue(WholeLines(stream))
        with queue.changed:
            queue.write("inside\n")
        assert queue.close()
        assert os.read(reading, 100) == b"inside\n"


@pytest.mark.parametrize("form", ["human", "json"])
def test_a_hostile_text_is_part_of_one_line(form: str) -> None:
    """As the event, as a field, inside lists and dicts, and as a traceback: no line begins with it, and nothing but
    printable characters is written."""
    out = io.StringIO()
    log = make_log(form, "info", out)
    log.info(
        HOSTILE, host=HOSTILE, several=[HOSTILE], tried={HOSTILE: HOSTILE}, data=HOSTILE.encode("utf-8", "replace")
    )
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        log.error("failed", exc_info=error)

    text = out.getvalue()
    assert all(char.isprintable() or char == "\n" for char in text)
    lines = text.splitlines()
    if form == "json":
        assert len(lines) == 2
        assert json.loads(lines[0])["host"] == HOSTILE
    else:
        assert not lines[0].startswith(" ") and lines[1].endswith("failed")
        assert all(line.startswith("    | ") for line in lines[2:])


def test_json_lines_begin_with_time_level_and_event() -> None:
    """In this order, whatever else they have."""
    out = io.StringIO()
    make_log("json", "info", out).bind(worker=1).info("said", a=1, level="x", timestamp="y")

    assert list(json.loads(out.getvalue())) == ["timestamp", "level", "event", "worker", "a"]


@pytest.mark.parametrize("form", ["human", "json"])
def test_long_texts_are_cut(form: str) -> None:
    """A client may call itself anything of 32 kB."""
    out = io.StringIO()
    make_log(form, "info", out).info("said", name="x" * 100_000)

    assert LONGEST < len(out.getvalue()) < LONGEST + 300
    assert "(100000 characters)" in out.getvalue()


def test_whatever_python_prints_is_a_json_line() -> None:
    """Exceptions of threads, finalisers and the program, warnings, and what libraries log: one line each, with the
    traceback in it and without local variables."""
    found = subprocess.run([sys.executable, "-c", STRAY], check=False, stderr=subprocess.PIPE, timeout=60)

    lines = [json.loads(line) for line in found.stderr.splitlines()]
    assert [line["event"] for line in lines] == [
        "begins", "a thread has failed", "an exception was ignored", "python warns", "a library says",
        "kproxy has failed",
    ]  # fmt: skip
    assert lines[1]["exception"][0]["exc_value"] == "in a thread\nforged"
    assert lines[4]["message"] == "accept failed EMFILE"
    assert b"hunter2" not in found.stderr
    assert found.returncode == 1


@pytest.mark.parametrize("workers", WORKERS)
def test_standard_error_that_nobody_reads_stops_nothing(tmp_path: Path, workers: int) -> None:
    """Hundreds of lines into a pipe of 4 kB that is never read: clients are served, and SIGTERM ends it."""
    port = free_port()
    with FakeBroker() as broker, unread() as (reading, stream):
        config = {
            "clusters": {"main": {"bootstrap": [broker.address]}},
            "listeners": [{"name": "main", "bind": f"127.0.0.1:{port}", "cluster": "main"}],
            "workers": workers,
            "log": {"level": "debug"},
        }
        (tmp_path / "config.yaml").write_text(json.dumps(config))
        command = [sys.executable, "-m", "kproxy", "run", "--config", str(tmp_path / "config.yaml")]
        child = subprocess.Popen(command, stderr=stream)
        try:
            until(lambda: served(port), 60)
            assert all(served(port) for _ in range(200))  # each is a line when it ends
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0
        finally:
            child.kill()
            child.wait()
        assert len(os.read(reading, 65536)) > 3000


def served(port: int) -> bool:
    """Whether a client is answered."""
    try:
        with RawClient(f"127.0.0.1:{port}") as client:
            return len(client.brokers()) == 1
    except OSError:
        return False
