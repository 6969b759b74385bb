"""Explorations as users start them: by a pytest of their own, or by `kproxy explore`, in a folder of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

PLANTED = Path(__file__).parent / "planted"
LIMIT = 900
NOT_NEEDED = [
    word for name in ("cacheprovider", "hypothesispytest", "trio", "asyncio", "anyio") for word in ("-p", f"no:{name}")
]
"""Plugins that cost each pytest a second."""


@dataclass
class Told:
    """What an exploration has told: its exit code, all that it printed, and its report on each test."""

    code: int
    text: str
    tests: list[dict[str, Any]]

    @property
    def findings(self) -> list[dict[str, Any]]:
        (test,) = self.tests
        found: list[dict[str, Any]] = test["findings"]
        return found


class Explorations:
    """Explorations in one folder, which has the planted programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for file in PLANTED.glob("*.py"):
            shutil.copy(file, folder)
        (folder / "pytest.ini").write_text("[pytest]\n")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}

    def write(self, name: str, text: str) -> None:
        """Put a file into the folder."""
        (self.folder / name).write_text(dedent(text))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of Python."""
        return subprocess.Popen(
            [sys.executable, "-m", *words], cwd=self.folder, env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def pytest(self, *words: str) -> tuple[int, str]:
        """Run pytest; its exit code, and what it printed."""
        with self.start("pytest", *NOT_NEEDED, *words) as process:
            text, _ = process.communicate(timeout=LIMIT)
        return process.returncode, text

    def explore(self, *words: str) -> Told:
        """Explore tests by pytest; options without `--kproxy-explore-`, and file::test."""
        options = [f"--kproxy-explore-{word[2:]}" if word.startswith("--") else word for word in words]
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        code, text = self.pytest("--kproxy-explore", f"--kproxy-explore-report={report}", *options)
        return Told(code, text, json.loads(report.read_text())["tests"] if report.exists() else [])

    def explore_command(self, *words: str) -> Told:
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        with self.start("kproxy", "explore", f"--report={report}", *words) as process:
            text, _ = process.communicate(timeout=LIMIT)
        return Told(process.returncode, text, json.loads(report.read_text())["tests"] if report.exists() else [])


@pytest.fixture
def explorations(tmp_path: Path) -> Explorations:
    return Explorations(tmp_path)
