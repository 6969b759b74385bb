"""Text edited in the user's own editor, while the view steps aside."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from textual.app import SuspendNotSupported


def in_editor(app: Any, text: str, suffix: str) -> str | None:
    """Return the text as it was left in $VISUAL or $EDITOR; None if that could not be run, or failed, which is said."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory(prefix="kproxy-view-") as folder:  # only its owner may look into it
        file = Path(folder) / f"edit{suffix}"
        file.write_text(text)
        try:
            with app.suspend():
                code = subprocess.run([*command, str(file)], check=False).returncode
            after = file.read_text(errors="replace")
        except (OSError, SuspendNotSupported) as error:
            app.say(f"{command[0]} cannot be run: {error}; set EDITOR", good=False)
            return None
    if code:
        app.say(f"{command[0]} ended with {code}: nothing was done", good=False)
        return None
    return after
