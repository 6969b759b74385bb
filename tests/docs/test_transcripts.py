"""Transcripts on the pages about rules and the protocol are what the commands print."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
WITH_MISTAKES = """\
rules:
  - name: a
    kind: rename_topc
    topics: {orders: prod.orders}
  - name: b
    kind: rename_topic
    topics: {orders: prod.orders, b: prod.orders}
"""


def kproxy(words: str, folder: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command, and return what it printed."""
    command = [sys.executable, "-m", "kproxy", *shlex.split(words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False, **more)


def block(page: str, beginning: str) -> list[str]:
    """Return the lines of the one block of a page that begins so."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [text for language, text in blocks if not language and text.startswith(beginning)]
    return str(found).splitlines()


def test_the_transcript_of_check_is_what_check_says(tmp_path: Path) -> None:
    """Two mistakes of one file, at the places and in the words of the page of rules."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "names.yaml").write_text(WITH_MISTAKES)
    command, *expected = block("rules.md", "$ kproxy check")

    ran = kproxy(command.removeprefix("$ kproxy "), tmp_path)

    assert [line for line in (ran.stdout + ran.stderr).splitlines() if line.startswith("rules/")] == expected
    assert ran.returncode == 1


def test_the_transcripts_of_protocol_and_decode(tmp_path: Path) -> None:
    """`kproxy protocol` prints what the page of the protocol shows; the frame in it can be decoded."""
    first, *rest = block("reference.md", "$ kproxy protocol")
    shown, decode = "\n".join(rest[:-1]), rest[-1]

    printed = kproxy(first.removeprefix("$ kproxy "), tmp_path)
    frame = re.fullmatch(r"\$ echo (.*) \| kproxy decode -", decode)
    assert frame is not None
    decoded = kproxy("decode -", tmp_path, input=frame[1])

    assert printed.stdout.strip() == shown.strip()
    assert '"ApiVersions"' in decoded.stdout and decoded.returncode == 0
