"""The suites of the test kits under clients/: what each needs, and how it is run.

Strategy: as the programs of the matrix are built, each suite runs in a copy of its folder in the cache, by its
language's own tools and from its registry, so that nothing is written into the source tree. kproxy is the one of these
sources, by the environment's KPROXY.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from kproxy.base.jars import cache_folder
from tests.lab.kits.packages import INSTALL
from tests.lab.matrix.matrix import tool_path

ROOT = Path(__file__).parents[3]
CLIENTS = ROOT / "clients"
BUILT = ("node_modules", "target", "dist")
"""Folders that a suite's tools write: they stay in the cache, and are not copied."""
SECONDS = 1800
"""For one suite: the first run fetches what it needs."""


@dataclass(frozen=True)
class KitSuite:
    """Suite of one kit. `tools`: programs by the Debian package that has them; `commands`: with the folder, below the
    kit's own, where each is run; `sources`: patterns of the kit's code without its tests."""

    name: str
    tools: dict[str, str]
    commands: tuple[tuple[str, tuple[str, ...]], ...]
    sources: tuple[str, ...]

    def missing(self) -> list[str]:
        """Return what this machine lacks, with the package that brings it."""
        return [f"{tool} (Debian: {package})" for tool, package in self.tools.items() if tool_path(tool) is None]

    def code(self) -> list[Path]:
        """Return the files of the kit's code."""
        return [path for pattern in self.sources for path in sorted((CLIENTS / self.name).glob(pattern))]

    def copied(self) -> Path:
        """Return a copy of the kit in the cache; what was built and fetched there before stays."""
        folder = cache_folder() / "kits" / self.name
        for old in folder.iterdir() if folder.is_dir() else ():
            if old.name not in BUILT:
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        shutil.copytree(CLIENTS / self.name, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*BUILT))
        shutil.copy(ROOT / "LICENSE", folder)  # each package has one
        return folder

    def run(self, folder: Path) -> int:
        """Run the suite in this copy of the kit, with output to that of this process. Return the exit code of the first
        command that fails, or 0."""
        environment = {**os.environ, "KPROXY": f"{sys.executable} -m kproxy"}
        for below, (tool, *words) in self.commands:
            command = [sys.executable if tool == "python" else tool_path(tool) or tool, *words]
            sys.stdout.write(f"{self.name}: {tool} {' '.join(words)}\n")
            sys.stdout.flush()
            done = subprocess.run(command, cwd=folder / below, env=environment, timeout=SECONDS, check=False)
            if done.returncode:
                return done.returncode
        return 0


GO_TEST = ("go", "test", "-count=1", "-v", "./...")
MAVEN = ("mvn", "-B", "--no-transfer-progress", "test")
PYTEST = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "pythonpath=.", "tests")
KIT_SUITES = {
    suite.name: suite
    for suite in (
        KitSuite(
            "java",
            {"javac": "openjdk-17-jdk-headless", "mvn": "maven"},
            ((".", MAVEN),),
            ("*/src/main/java/**/*.java",),
        ),
        KitSuite("go", {"go": "golang-go"}, ((".", GO_TEST), ("example", GO_TEST)), ("kproxykit.go",)),
        KitSuite(
            "typescript",
            {"node": "nodejs", "npm": "npm"},
            ((".", ("npm", *INSTALL)), (".", ("npm", "test"))),
            ("src/*.ts",),
        ),
        KitSuite("python", {}, ((".", PYTEST),), ("kproxy_testcontainers.py",)),
    )
}
