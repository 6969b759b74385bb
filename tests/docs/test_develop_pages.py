"""The pages for developers: whoever does what they say, in a copy of the repository, sees what they show.

Blocks are taken in their order. `diff` changes files, `python` whose first line is `# path` is a file, and `console`
runs commands, with … for anything below them.
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
PAGES = ["new-kind.md", "new-api-version.md", "new-event-column.md", "new-sink.md", "compiled-walks.md", "tests.md"]


def copied(source: str, target: str) -> str:
    """Copy a file with its time, so that its bytecode fits the copy; bytecode is the same file, since it is replaced
    and never written to."""
    if source.endswith(".pyc"):
        with suppress(OSError):  # another file system
            os.link(source, target)
            return target
    return str(shutil.copy2(source, target))


def change(tree: Path, diff: str) -> None:
    """Apply a diff whose hunks begin with `@@`, without line numbers: what is there before stands in a file once."""
    for part in re.split(r"^--- a/.*\n", diff, flags=re.MULTILINE)[1:]:
        name, _, hunks = part.removeprefix("+++ b/").partition("\n")
        for hunk in re.split(r"^@@\n", hunks, flags=re.MULTILINE)[1:]:
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] in " -")
            after = "".join(line[1:] for line in lines if line[0] in " +")
            text = (tree / name).read_text()
            assert text.count(before) == 1, f"{name} has this {text.count(before)} times:\n{before}"
            (tree / name).write_text(text.replace(before, after))


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


@pytest.mark.timeout(600)  # a page runs a dozen commands, each with all of pytest to import, beside other work
@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_as_it_stands(page: str, tmp_path: Path) -> None:
    """Its changes fit the code, and its commands print what stands below them."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=LEFT_OUT, copy_function=copied)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    count = 0
    for language, text in blocks(f"develop/{page}"):
        if language == "diff":
            change(tmp_path, text)
        elif language == "python" and (name := re.match(r"# ([\w./-]+)\n", text)):
            (tmp_path / name[1]).write_text(text.partition("\n")[2])
            assert "/" not in name[1] or lint(tmp_path, name[1]) == ""
        elif language == "console":
            for example in examples(text):
                printed = " ".join(run(tmp_path, example.command).split())
                pattern = ".*".join(re.escape(" ".join(part.split())) for part in example.expected.split("…"))
                assert re.fullmatch(pattern, printed), f"{example.command}\n{printed}"
                assert not re.search(r"\d (failed|errors?)(,| in )", printed), f"{example.command}\n{printed}"
                count += 1
    assert count > 0


def test_every_page_is_worked_through() -> None:
    """A new page is added to the list above."""
    assert sorted(PAGES) == sorted(file.name for file in (ROOT / "docs" / "develop").glob("*.md"))


def test_every_folder_of_tests_is_in_the_table() -> None:
    """With what it is about, in the order of the alphabet."""
    text = (ROOT / "docs" / "develop" / "tests.md").read_text()
    table = text.partition("| folder | about | needs |")[2].partition("\n\n")[0]
    folders = [row.split("|")[1].strip() for row in table.splitlines()[2:]]
    there = {path.name for path in (ROOT / "tests").iterdir() if any(path.rglob("test_*.py"))}

    assert folders == sorted(there)
