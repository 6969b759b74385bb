"""Processes that write events are killed at random moments, again and again in the same folder.

4 times by default, 50 times with KPROXY_TEST_ALL=1. Each kill takes a second, so that it can fall into a start, a
recovery, a flush or a file that is compressed and published.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.audit_reader import by_source, hidden, published, recovered
from tests.support.wait import until

pytestmark = pytest.mark.process
KILLS = 50 if os.environ.get("KPROXY_TEST_ALL") else 4
FLUSH = 1.0
WRITER = Path(__file__).parent / "numbered_writer.py"


def start(folder: Path, instance: str, acknowledged: Path, seconds: float | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(WRITER), str(folder), instance, str(FLUSH)]
    command += [] if seconds is None else [str(seconds)]
    with acknowledged.open("wb") as output, (acknowledged.with_suffix(".log")).open("wb") as log:
        return subprocess.Popen(command, stdout=output, stderr=log)


def put_by(acknowledged: Path, moment: float) -> tuple[str, int]:
    """The source, and the last number that was put before that moment; ("", 0) if none was put at all."""
    source, last = "", 0
    for line in acknowledged.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            source, number, when = line.split()
            last = int(number) if float(when) <= moment else last
    return source, last


@pytest.mark.timeout(300)
def test_a_kill_costs_one_flush_interval_at_most(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """No published line is torn or double, numbers have no gaps, what was put more than a flush before the kill is
    there, and each kill is on record; another process that writes to the same folder all the while loses nothing."""
    folder, chance = tmp_path / "audit", random.Random(8)
    bystander = start(folder, "bystander", tmp_path / "bystander", KILLS * 1.3)
    due: dict[str, int] = {}
    latest: dict[str, int] = {}
    for kill in range(KILLS):
        acknowledged = tmp_path / f"acknowledged-{kill}"
        writer = start(folder, "victim", acknowledged)
        if kill % 4:  # else the start may be what it falls into
            until(lambda own=acknowledged: own.stat().st_size > 0)
        time.sleep(chance.uniform(0.0, 1.8))  # the random moment
        moment = time.monotonic()
        writer.kill()
        writer.wait()
        source, number = put_by(acknowledged, moment - FLUSH)
        if source:
            due[source] = number
            latest[source] = put_by(acknowledged, moment)[1]
    assert bystander.wait(KILLS * 5) == 0, (tmp_path / "bystander.log").read_text()
    assert start(folder, "last", tmp_path / "last", 0.5).wait(60) == 0

    events = published(folder)
    sources = by_source(events)
    ends = [data["of_source"] for data in recovered(events, "unclean_end")]
    lost = {}
    for source, number in due.items():
        own = sources.get(source, [])
        numbers = [event["data"]["number"] for event in own if event["type"] == "kproxy.test.v1"]
        assert [int(event["id"]) for event in own] == list(range(1, len(own) + 1))
        assert numbers == list(range(1, len(numbers) + 1))
        assert number <= len(numbers) <= latest[source] + 1, f"{source}: {len(numbers)} of {number} that were due"
        assert source in ends or not latest[source], f"{source} is not on record"
        lost[source] = latest[source] - len(numbers)
    assert hidden(folder) == []
    for name in ("bystander", "last"):
        source, number = put_by(tmp_path / name, time.monotonic())
        ids = [int(event["id"]) for event in sources[source]]
        assert ids == list(range(1, len(ids) + 1))
        assert [e["data"]["number"] for e in sources[source] if "number" in e["data"]] == list(range(1, number + 1))
    assert set(ends) <= {*due}
    record_property("kills", len(due))
    print(
        f"kills with events: {len(due)}, events: {len(events)}, unclean ends told: {len(ends)}, "
        f"lost on average {sum(lost.values()) / len(lost):.0f}, at most {max(lost.values())} events"
    )
