"""The one place where a run's capture is shown to `kproxy verify`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SECONDS = 60
MOST = 10
"""Findings of a run that are kept."""
SEEN_BY = {"both": "clients and brokers"}


def proved(capture: Path) -> list[str] | None:
    """Return what `kproxy verify` proves about the traffic in a capture, a line each; None if it could not judge."""
    command = [sys.executable, "-m", "kproxy", "verify", "--assume-complete", "-o", "json", str(capture)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode not in (0, 1):
        return None
    found = [one for one in json.loads(done.stdout)["findings"] if one["level"] == "proved"]
    return [
        f"{one['check']}, as {SEEN_BY.get(one['view'], one['view'])} saw it: {one['about']}: {one['says']}"
        for one in found[:MOST]
    ]
