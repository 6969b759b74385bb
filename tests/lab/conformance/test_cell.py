"""One real run of the conformance report, and how programs are ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kproxy.base.errors import InternalError
from kproxy.testing.kafka import Kafka
from tests.lab.conformance.cell import WORDS, executed, run
from tests.lab.conformance.faults import faults
from tests.lab.conformance.judge import judge
from tests.lab.conformance.story import FAULT
from tests.lab.conformance.verified import proved
from tests.lab.matrix.matrix import CLIENTS
from tests.lab.matrix.scenario import told
from tests.support.wait import until

pytestmark = pytest.mark.kafka


@pytest.mark.deep
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
    assert found.proved == []  # a producer without idempotence may store a batch twice


def test_what_is_no_capture_proves_nothing(tmp_path: Path) -> None:
    """That is told apart from a capture in which nothing is wrong."""
    broken = tmp_path / "run.pcapng"
    broken.write_bytes(b"no capture")

    assert proved(broken) is None


def test_a_program_that_hangs_is_killed_with_its_children() -> None:
    """A child that it has started holds its output open for a day. If the child stayed, this test would not end."""
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(86400)'])"
    _, _, ended = executed([sys.executable, "-c", program], seconds=1)

    assert ended == "killed after 1 s"


FORKS = """
import os, sys, time
print("told", flush=True)
file, words = sys.argv[1], sys.argv[2:]
if os.fork() == 0:
    if "setsid" in words:
        os.setsid()
    with open(file + ".part", "w") as written:
        written.write(str(os.getpid()))
    os.rename(file + ".part", file)
    time.sleep(300)
while not os.path.exists(file):
    time.sleep(0.01)
if "hang" in words:
    time.sleep(300)
"""
"""Program that tells something, and leaves a child whose id is in a file then."""


def is_alive(pid: int) -> bool:
    """Return True for a process that has not ended; one that nobody has asked for how has."""
    with suppress(OSError):
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


def python(code: str, *words: str) -> list[str]:
    """Return the command of a program; without modules of the environment it begins in some milliseconds."""
    return [sys.executable, "-S", "-c", code, *words]


def test_a_program_that_leaves_a_child_has_ended(tmp_path: Path) -> None:
    """The child holds its output open, and is killed; so nothing was told to hang."""
    left = tmp_path / "child"
    output, _, ended = executed(python(FORKS, str(left)), seconds=60)

    assert (output, ended) == ("told\n", "exit code 0")
    until(lambda: not is_alive(int(left.read_text())))


def test_a_daemon_of_a_program_is_not_waited_for(tmp_path: Path) -> None:
    """It has left the group, so no signal to that ends it, and its output stays open; also behind one that hangs."""
    for words, ended, seconds in ((["setsid"], "exit code 0", 60), (["setsid", "hang"], "killed after 5 s", 5)):
        left = tmp_path / f"child{seconds}"
        assert executed(python(FORKS, str(left), *words), seconds=seconds)[::2] == ("told\n", ended)
        os.kill(int(left.read_text()), signal.SIGKILL)


def test_a_program_that_floods_its_output_is_killed() -> None:
    """At once, and that is a run which failed itself."""
    began = time.monotonic()
    with pytest.raises(InternalError, match="wrote more than 4 MiB"):
        executed(python("while True: print('x' * 65536)"), seconds=300)
    assert time.monotonic() - began < 200


def test_of_what_a_program_writes_besides_the_end_is_kept() -> None:
    """However much it is: clients log what a fault does to them."""
    code = "import sys; [sys.stderr.write('x' * 65536) for _ in range(200)]; sys.stderr.write('the end'); print('told')"
    output, words, ended = executed(python(code))

    assert (output, len(words), ended) == ("told\n", WORDS, "exit code 0") and words.endswith("the end")


def test_a_program_that_dies_by_a_signal() -> None:
    """What it told before counts, though its last line is torn, and is no line of JSON."""
    code = 'import os; os.write(1, b\'{"step": "client", "version": "1"}\\n{"step": "tra\'); os.abort()'
    output, _, ended = executed(python(code))

    assert (told(output), ended) == ({"client": {"version": "1"}}, "exit code -6")
    assert judge(None, {}, fired=1, ended=ended).outcome == "died"
