"""CONTRIBUTING.md: its examples run in a copy of the repository, and its tables are complete.

A block of `python` whose first line is `# path` is a file. A block of `console` has commands, with … for any output.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ..howto import blocks, examples

ROOT = Path(__file__).parents[2]
COPIED = ("kproxy", "docs", "tests", "deploy/helm", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "pyproject.toml")
LEFT_OUT = shutil.ignore_patterns(".*", "corpus", "golden", "java", "programs")


def copied(source: str, target: str) -> str:
    """Copy a file with its time, so that its bytecode fits the copy; bytecode is the same file, since it is replaced
    and never written to."""
    if source.endswith(".pyc"):
        with suppress(OSError):  # another file system
            os.link(source, target)
            return target
    return str(shutil.copy2(source, target))


def run(tree: Path, command: str) -> str:
    """Return what a command prints that is run where the page has its reader stand."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(tree),
        "COLUMNS": "200",
    }
    for name in [name for name in environment if name.startswith(("PYTEST_", "KPROXY_"))]:
        del environment[name]  # of the run of tests that this is in
    ran = subprocess.run(
        ["bash", "-c", command], cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    return ran.stdout


def lint(tree: Path, file: str) -> str:
    """Return what the style checks of `make check` find in a file that somebody copies from a page."""
    return run(tree, f"ruff check -q --output-format concise {file}; ruff format --check -q {file}")


@pytest.mark.deep
@pytest.mark.timeout(600)  # several commands, each with all of pytest to import
def test_examples_of_the_page_work_as_shown(tmp_path: Path) -> None:
    """Files that the page shows pass the style checks, and commands print the lines below them."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=LEFT_OUT, copy_function=copied)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    count = 0
    for language, text in blocks("../CONTRIBUTING.md"):
        if language == "python" and (name := re.match(r"# ([\w./-]+)\n", text)):
            (tmp_path / name[1]).write_text(text.partition("\n")[2])
            assert lint(tmp_path, name[1]) == ""
        elif language == "console":
            for example in examples(text):
                printed = " ".join(run(tmp_path, example.command).split())
                pattern = ".*".join(re.escape(" ".join(part.split())) for part in example.expected.split("…"))
                assert re.fullmatch(pattern, printed), f"{example.command}\n{printed}"
                assert not re.search(r"\d (failed|errors?)(,| in )", printed), f"{example.command}\n{printed}"
                count += 1
    assert count == 5


def test_table_of_test_folders_lists_each_folder() -> None:
    """In alphabetical order."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| folder | about | needs |")[2].partition("\n\n")[0]
    folders = [row.split("|")[1].strip() for row in table.splitlines()[2:]]
    there = {path.name for path in (ROOT / "tests").iterdir() if any(path.rglob("test_*.py"))}

    assert folders == sorted(there | {"support"})
