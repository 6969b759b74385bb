"""What the audit costs: kproxy with and without it, exchanges per second and CPU of each, against a broker stand-in.

As in the phase `frames`, but each target is measured against kproxy without an audit, in the same round.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.lab.bench import frames
from tests.lab.bench.frames_phase import FIFTY, MANY, ONE, Case, StandIns
from tests.lab.bench.machine import Processes, first_answer
from tests.lab.bench.rows import Rows
from tests.lab.bench.targets import with_before

PLAIN, SUMMARY, REQUESTS, TOPIC = "kproxy", "audit", "audit-requests", "audit-connections"
NAMES = (PLAIN, TOPIC, SUMMARY, REQUESTS)
CASES = tuple(
    Case(f"audit: {name}", frame, in_flight, connections)
    for name, frame, in_flight, connections in (
        (ONE, "produce9-200-same-name", 1, 1),
        (FIFTY, "produce9-200-same-name", 1, 50),
        (f"{MANY}, Produce 12", "produce12-200-same-name", 32, 1),
        ("Fetch 17, small answers, 1 in flight", "fetch17", 1, 1),
        ("Fetch 17, small answers, 32 in flight", "fetch17", 32, 1),
        ("16 kB, 16 in flight, Produce 12", "produce12-16000-same-name", 16, 1),
        ("1 MB, 4 in flight, Produce 12", "produce12-1000000-same-name", 4, 1),
    )
)
GOAL = "audit: " + FIFTY


def measure(folder: Path, rows: Rows, *, rounds: int, seconds: float, only: str = "") -> None:
    """All cases whose names have `only` in them, `rounds` times."""
    names = with_before(NAMES)
    with Processes(folder) as processes:
        stand_ins = StandIns(processes)
        running: dict[str, tuple[subprocess.Popen[Any], int]] = {}
        for name in names:
            running[name] = stand_ins.start(name, stand_ins.small)
            first_answer(running[name][1], frames.api_versions())
        for turn in range(rounds):
            for case in (one for one in CASES if only in one.name):
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    process, port = running[name]
                    rows.add(case.name, name, stand_ins.measured(case, process, port, seconds, turn))
            print(f"audit: round {turn + 1} of {rounds}", file=sys.stderr)
