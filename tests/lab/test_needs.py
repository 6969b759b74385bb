"""What tests need is said by markers, and what a machine lacks is told at the end of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

ROOT = Path(__file__).parents[2]


def pytest_run(tmp_path: Path, *arguments: str) -> str:
    """Run pytest with these arguments where no program of the system is found and none was built, and return what it
    printed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    bare = {**os.environ, "PATH": str(tmp_path), "KPROXY_CACHE": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=bare)
    return done.stdout + done.stderr


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadfile")])
def test_the_end_of_a_run_says_what_was_left_out(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """How many tests, and which program is missing; with workers, too, each of which leaves out the same."""
    files = ("tests/deploy/test_prometheus.py", "tests/deploy/test_kustomize.py", "tests/lab/test_sampling.py")
    printed = pytest_run(tmp_path, *files, *workers)

    assert "left out: 3 tests, there is no promtool" in printed, printed
    assert " tests, there is no kustomize (make programs builds it)" in printed, printed
    assert " passed" in printed.splitlines()[-1], printed


def test_a_test_in_process_may_start_none(tmp_path: Path) -> None:
    """`make quick` finds out who lacks a marker."""
    file = tmp_path / "test_starts.py"
    file.write_text("import subprocess, sys\ndef test_it():\n    subprocess.run([sys.executable, '-c', ''])\n")
    printed = pytest_run(tmp_path, "--in-process", f"--confcutdir={ROOT}", "-p", "tests.conftest", str(file))

    assert "starts a process: it needs a line in tests/needs.py" in printed, printed


def test_each_line_of_the_tables_is_about_something() -> None:
    """A file that was renamed would lose its markers unseen."""
    for path in (*needs.SPARK, *needs.KAFKA, *needs.PROCESS, *needs.TOOLS):
        assert (ROOT / path).exists(), path
