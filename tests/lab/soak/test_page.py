"""The page about the soak: its commands are what make runs, and its numbers are those of the code."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from tests.lab.soak import run, scene, vitals

ROOT = Path(__file__).parents[3]
PAGE = Path(__file__).with_name("RESULTS.md").read_text()


def test_the_commands_of_the_page() -> None:
    """make runs the soak with arguments that it takes."""
    (block,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    found = []
    for line in block.splitlines():
        said = subprocess.run(["bash", "-c", line.replace("make", "make -n")], cwd=ROOT, capture_output=True, text=True,
                              check=True).stdout  # fmt: skip
        (command,) = [one for one in said.splitlines() if "tests.lab.soak.run" in one]
        given = run.arguments(shlex.split(command.partition("tests.lab.soak.run")[2]))
        assert given.completeness
        found.append((given.seconds, given.seed, given.keep))

    assert found == [(300, None, None), (3600, None, None), (300, 7, "found")]


def test_the_numbers_of_the_page() -> None:
    """Limits that it names are those that hold."""
    assert f"file system ({scene.DISK // 1_000_000} MB)" in PAGE
    assert f"at most {vitals.MAY_GROW:.0f} MB above" in PAGE
    assert f"no process has {vitals.AT_MOST:.0f} MB" in PAGE
    assert vitals.WARM_UP == 60
