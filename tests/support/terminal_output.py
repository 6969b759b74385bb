"""Output of commands on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path


def on_a_terminal(words: list[str], cwd: Path | None = None, stderr: bool = False, **environment: str) -> str:
    """Run kproxy on a pseudo-terminal, and return what it prints there. `stderr`: also standard error."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "kproxy", *words], cwd=cwd, stdin=theirs, stdout=theirs,
        stderr=theirs if stderr else subprocess.DEVNULL, env={**os.environ, "TERM": "xterm-256color", **environment},
    ):  # fmt: skip
        os.close(theirs)
        pieces = []
        try:
            while piece := os.read(ours, 1 << 16):
                pieces.append(piece)
        except OSError:  # Linux: the other end is closed
            pass
    os.close(ours)
    return b"".join(pieces).decode().replace("\r\n", "\n")
