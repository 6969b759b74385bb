"""A child process keeps its output, says how it ended, and never outlives its parent."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.base.errors import InternalError
from kproxy.testing.process import Child, children_of

pytestmark = pytest.mark.process


def python(code: str, log: Path) -> Child:
    """A child that runs this."""
    return Child([sys.executable, "-c", code], log)


def test_output_and_exit_code_are_kept(tmp_path: Path) -> None:
    """What a child prints, to either stream, is in its log; its exit code is reported."""
    child = python("import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)", tmp_path / "log")

    assert child.wait(60) == 3
    assert child.tail().splitlines() == ["out", "err"]


def test_waiting_for_one_that_ended_fails_with_its_last_words(tmp_path: Path) -> None:
    """A child that ends before it is ready is an error that shows what it said."""
    child = python("print('no such setting'); raise SystemExit(1)", tmp_path / "log")

    with pytest.raises(InternalError, match="ended with exit code 1:\nno such setting"):
        child.wait_until(lambda: False, 10, "it")


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """Stopping takes SIGKILL where SIGTERM does nothing."""
    code = "import signal; signal.signal(15, signal.SIG_IGN); print('on', flush=True); signal.pause()"
    child = python(code, tmp_path / "log")
    child.wait_until(lambda: "on" in child.tail(), 10, "it")

    assert child.stop(timeout=0.1) == -signal.SIGKILL


def test_a_child_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Even if the parent gets SIGKILL, which no handler sees, its child ends."""
    code = (
        "import os, pathlib, signal, sys; from kproxy.testing.process import Child;"
        f"log = pathlib.Path({str(tmp_path / 'log')!r});"
        "child = Child([sys.executable, '-c', 'import signal; print(1, flush=True); signal.pause()'], log);"
        "child.wait_until(lambda: bool(child.tail()), 10, 'it');"
        "print(child.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    parent = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert parent.returncode == -signal.SIGKILL, parent.stderr

    assert ends(int(parent.stdout))


def ends(pid: int) -> bool:
    """Wait for the end of a process that is not ours."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 10)[0])
    finally:
        os.close(handle)


def test_children_of_what_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the threads that are left; of a process that is gone, none."""
    with subprocess.Popen(["sleep", "60"]) as child:
        listed = os.listdir
        monkeypatch.setattr(os, "listdir", lambda path: [*listed(path), "999999999"])
        assert child.pid in children_of(os.getpid())
        child.kill()
    assert children_of(child.pid) == []
