"""The fixed selection of tests: markers, parts of sweeps, programs that a machine lacks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import selection

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
SWEEP = [f"tests/protocol/test_codec.py::test_it[{number}]" for number in range(101)]
FEW = [f"tests/protocol/test_codec.py::test_few[{number}]" for number in range(5)]
ROUTES = [f"tests/kafka/test_admin.py::test_it[{way}]" for way in ("proxy", "renamed")]
ALONE = ["tests/kafka/test_admin.py::test_alone"]
ISOLATION = [f"tests/isolation/test_denied.py::test_it[{number}]" for number in range(101)]


def pytest_run(tmp_path: Path, *arguments: str) -> str:
    """Run pytest where no program of the system is found and none was built. Return its output."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    bare = {**os.environ, "PATH": str(tmp_path), "KPROXY_CACHE": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=bare)
    return done.stdout + done.stderr


def test_left_out_sets_keep_a_part_of_each_sweep() -> None:
    """Short functions stay whole, and so do those that keep tenants apart."""
    every = {*SWEEP, *FEW, *ROUTES, *ALONE, *ISOLATION}
    kept = every - selection.left_out_sets([*SWEEP, *FEW, *ROUTES, *ALONE, *ISOLATION])

    assert len(kept & set(SWEEP)) in (16, 17)
    assert len(kept & set(ROUTES)) == 1
    assert kept >= {*FEW, *ALONE, *ISOLATION}


def test_sweep_of_the_matrix_is_complete() -> None:
    matrix = [f"tests/lab/matrix/test_matrix.py::test_it[{number}]" for number in range(39)]
    assert selection.left_out_sets(matrix) == set()


NEEDS = """import pytest
@pytest.mark.tools("promtool")
@pytest.mark.parametrize("number", range(4))
def test_promtool(number): pass
@pytest.mark.tools("kustomize")
def test_kustomize(): pass
def test_it(): pass
"""


def test_run_reports_missing_programs(tmp_path: Path) -> None:
    """How many tests, and which program is missing. Each worker leaves out the same tests."""
    (tmp_path / "test_needs.py").write_text(NEEDS)
    options = (f"--confcutdir={ROOT}", "-p", "tests.conftest", "-n", "2", "--dist", "loadfile")
    printed = pytest_run(tmp_path, *options, str(tmp_path / "test_needs.py"))

    assert re.search(r"left out: 4 tests, .* promtool\n", printed), printed
    assert re.search(r"left out: 1 tests, .* kustomize \(make programs builds it\)\n", printed), printed
    assert "1 passed" in printed, printed


def test_unmarked_test_may_start_no_process(tmp_path: Path) -> None:
    """The error names the marker."""
    file = tmp_path / "test_starts.py"
    file.write_text("import subprocess, sys\ndef test_it():\n    subprocess.run([sys.executable, '-c', ''])\n")
    printed = pytest_run(tmp_path, f"--confcutdir={ROOT}", "-p", "tests.conftest", str(file))

    assert "starts a process: its file needs the marker `process`" in printed, printed


def test_paths_of_the_tables_exist() -> None:
    """A renamed file would lose its place unseen."""
    groups = [path for paths in selection.GROUPS.values() for path in paths]
    files = [path for path in selection.SECONDS if path not in selection.GROUPS]
    for path in (*selection.FOLDERS, *selection.SWEEPS, *groups, *files):
        assert (ROOT / path).exists() or list(ROOT.glob(f"{path}*")), path
