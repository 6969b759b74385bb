"""What people see: the same lines as in a pipe, in colours, and none of these in a pipe."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.terminal_output import on_a_terminal

pytestmark = pytest.mark.process
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
RULES = "rules: [{name: r, kind: error, match: {api: Heartbeat}, error: NOT_COORDINATOR}]"
TESTS = "tests: [{name: t, steps: [{client: {api: Heartbeat, version: 4}, to_broker: untouched}]}]"


@pytest.mark.parametrize(
    "words",
    [["test", "r.test.yaml"], ["explain", "r.yaml", "Heartbeat", "4"], ["rules", "kinds"]],
    ids=lambda words: words[0],
)
def test_colours_are_for_people(words: list[str], tmp_path: Path) -> None:
    """On a terminal there are some, in a pipe there are none; the words are the same."""
    (tmp_path / "r.yaml").write_text(RULES)
    (tmp_path / "r.test.yaml").write_text(TESTS)
    command = [sys.executable, "-m", "kproxy", *words]
    piped = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False).stdout
    shown = on_a_terminal(words, tmp_path, COLUMNS="200", NO_COLOR="")

    assert COLOUR.search(shown) and not COLOUR.search(piped)
    assert COLOUR.sub("", shown).split() == piped.split()
