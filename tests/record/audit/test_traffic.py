"""Traffic through kproxy while its audit's disk is really full; see test_disks.py for what that needs.

Takes seconds, since it is a process of its own, and tries a disk that refused again every two seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.audit_reader import Event, by_source, hidden, published, recovered

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[3]


def run(folder: Path, when_full: str) -> tuple[dict[str, Any], list[Event]]:
    """What the process says, and the events of the proxy."""
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable]
    command += ["-m", "tests.record.audit.proxy_on_small_disk", str(folder), when_full]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    assert hidden(folder) == []
    (own,) = by_source(published(folder)).values()
    return json.loads(ran.stdout), own


def produced(events: list[Event]) -> int:
    return sum(event["data"].get("api") == "Produce" for event in events)


@pytest.mark.deep
def test_drop_lets_all_traffic_pass(tmp_path: Path) -> None:
    """All records are acknowledged while the disk is full; what is not in the files was counted and told."""
    said, events = run(tmp_path / "audit", "drop")
    last = int(events[-1]["id"])

    assert said["failing"] == 1
    assert (said["waiting"], said["left"]) == (0, 0)
    assert said["dropped"] == last - len(events) == sum(data["dropped"] for data in recovered(events, "dropped"))
    assert produced(events) < 1200


def test_block_stops_traffic_and_loses_nothing(tmp_path: Path) -> None:
    """Clients wait and readiness says so; once there is room all is acknowledged, and each request has its event."""
    said, events = run(tmp_path / "audit", "block")

    assert said["failing"] == 1
    assert said["waiting"] > 0
    assert (said["left"], said["dropped"]) == (0, 0)
    assert [int(event["id"]) for event in events] == list(range(1, len(events) + 1))
    assert produced(events) == 1200
