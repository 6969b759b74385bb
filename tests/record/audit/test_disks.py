"""Real disks that are full or read-only: small file systems in mount namespaces, which go with their process.

Needs unshare(1), and root or user namespaces.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.audit_reader import by_source, hidden, published, recovered

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[3]
REASONS = {"full": "disk_full", "read_only": "read_only"}


def run(folder: Path, what: str, when_full: str) -> tuple[dict[str, Any], list[str]]:
    """What the process says, and its log."""
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable]
    command += ["-m", "tests.record.audit.small_disk", str(folder), what, when_full]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), ran.stderr.splitlines()


@pytest.mark.parametrize("what", ["full", "read_only"])
def test_drop(tmp_path: Path, what: str) -> None:
    """No put waits; what is missing in the files is what was counted and told, and all else is there once and whole."""
    said, log = run(tmp_path / "audit", what, "drop")
    events = published(tmp_path / "audit")
    (own,) = by_source(events).values()
    ids = {int(event["id"]) for event in own}
    missing = {*range(1, max(ids) + 1)} - ids
    told = recovered(events, "dropped")

    assert said["closed"] and not said["blocked"]
    assert said["dropped"] == {REASONS[what]: len(missing)}
    assert len(missing) >= 1000
    assert sum(data["dropped"] for data in told) == len(missing)
    assert (min(data["first_id"] for data in told), max(data["last_id"] for data in told)) == (
        min(missing),
        max(missing),
    )
    assert len([event for event in own if "number" in event["data"]]) == said["put"] - len(missing)
    assert hidden(tmp_path / "audit") == []
    assert len([line for line in log if "cannot be written" in line]) == 1
    assert said["longest"] <= 1000, "lines of a put, which writes nothing itself"


@pytest.mark.parametrize("what", ["full", "read_only"])
def test_block(tmp_path: Path, what: str) -> None:
    """Readers are asked to wait, and told when to go on; nothing is missing."""
    said, _ = run(tmp_path / "audit", what, "block")
    events = published(tmp_path / "audit")
    (own,) = by_source(events).values()

    assert said["closed"] and said["blocked"] and said["told_free"]
    assert said["dropped"] == {}
    assert said["errors"][REASONS[what]] >= 1
    assert [event["data"]["number"] for event in own] == list(range(1, said["put"] + 1))
    assert [int(event["id"]) for event in own] == list(range(1, said["put"] + 1))
    assert hidden(tmp_path / "audit") == []
