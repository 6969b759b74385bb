"""A signal to `kproxy explore` while a run is under way: it ends with all that it has started, what it has found is
kept, and the next exploration begins with that."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.wait import until
from tests.testing.explore.conftest import Explorations

# An exploration takes minutes on a busy machine.
pytestmark = [pytest.mark.process, pytest.mark.deep, pytest.mark.timeout(600)]
OPTIONS = ["--jobs=1", "--for=300s", "--limit=100s", "--faults=transient", "--only=api=Metadata", "--depth=1"]
PROGRAM = ["--", sys.executable, "-S", "stays.py"]
FAULT = """
rules:
- {name: lost, kind: disconnect, close_with: rst, at: response, match: {api: Metadata}, when: {nth: 1, count: all}}
"""


def of_folder(folder: Path) -> list[str]:
    """Return the processes that run in a folder, by their command lines."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == folder:
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found


def daemons(folder: Path) -> int:
    """Return how many processes of those there are that a run has left outside of its group."""
    return sum(one == "sleep 1000 " for one in of_folder(folder))


def interrupted(explorations: Explorations, number: signal.Signals, *words: str) -> tuple[int, str]:
    """Explore with a signal once a run stays; the exit code and what was printed. Nothing of it is left then."""
    folder = explorations.folder
    with explorations.start("kproxy", "explore", *OPTIONS, *words, *PROGRAM) as process:
        until(lambda: ((folder / "stays").exists() and daemons(folder) == 2) or process.poll() is not None, 300)
        assert process.poll() is None, process.communicate()[0]
        process.send_signal(number)
        text, _ = process.communicate(timeout=60)
    assert of_folder(folder) == [], text
    host, _, port = (folder / "stays").read_text().rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 20)
    return process.returncode, text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_found_is_kept_and_the_next_one_begins_with_it(
    explorations: Explorations, number: signal.Signals
) -> None:
    """Exit code 2, without a rule file: the finding is not confirmed. The program's process group gets no signal."""
    report = explorations.folder / "interrupted.json"
    code, text = interrupted(explorations, number, f"--report={report}")

    assert code == 2 and "interrupted" in text, text
    (test,) = json.loads(report.read_text())["tests"]
    (finding,) = test["findings"]
    assert finding["signature"]["message"] == "it has failed" and finding["file"] == ""
    assert len(list((explorations.folder / ".kproxy").rglob("*.json"))) == 1
    explorations.write("again", "")
    told = explorations.explore_command(*OPTIONS, "--runs=1", *PROGRAM)
    (again,) = told.findings
    assert told.code == 1 and again["example"] == finding["example"] and again["first"] == 1, told.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_replay(explorations: Explorations, number: signal.Signals) -> None:
    """Exit code 1 where a run has failed by then, 2 where none has."""
    explorations.write("fault.yaml", FAULT)
    code, text = interrupted(explorations, number, "--replay=fault.yaml", "--runs=3")
    assert code == 1 and "interrupted\nfails in 1 of 1 run\n" in text, text

    (explorations.folder / "stays").unlink()
    code, text = interrupted(explorations, number, "--replay=fault.yaml")
    assert code == 2 and "interrupted\nfails in 0 of 0 runs\n" in text, text


def test_a_second_signal(explorations: Explorations) -> None:
    """It is the same end, or that of a process which dies by it at the very last, and none of click's, whose exit code
    would say that something was found."""
    folder = explorations.folder
    with explorations.start("kproxy", "explore", *OPTIONS, *PROGRAM) as process:
        until((folder / "stays").exists, 300)
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        text, _ = process.communicate(timeout=60)
    assert process.returncode in (2, -signal.SIGINT) and "Aborted" not in text, text
    until(lambda: of_folder(folder) == [])
