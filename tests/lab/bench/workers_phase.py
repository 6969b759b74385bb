"""What two workers carry where nothing but kproxy is the limit: ten rules have each request evaluated whole, which
takes kproxy ten times as much of a core as it takes the load and the broker's stand-in together.

With fewer cores than processes those two share the workers' cores: what they take is told, and is what a second worker
cannot gain.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.lab.bench import frames
from tests.lab.bench.frames_phase import TWO_HUNDRED, Case, StandIns
from tests.lab.bench.machine import Processes, first_answer
from tests.lab.bench.rows import Rows

ONE_WORKER, TWO_WORKERS = "evaluated", "evaluated-workers"
EVALUATED = Case(f"each request evaluated, {TWO_HUNDRED}", "produce9-200", 4, 200)


def measure(folder: Path, rows: Rows, *, rounds: int, seconds: float) -> None:
    """One process and two workers take turns, `rounds` times."""
    with Processes(folder) as processes:
        stand_ins = StandIns(processes)
        running: dict[str, tuple[subprocess.Popen[Any], int]] = {}
        for name in (ONE_WORKER, TWO_WORKERS):
            running[name] = stand_ins.start(name, stand_ins.small)
            first_answer(running[name][1], frames.api_versions())
        names = [ONE_WORKER, TWO_WORKERS]
        for turn in range(rounds):
            for name in names[turn % 2 :] + names[: turn % 2]:
                process, port = running[name]
                rows.add(EVALUATED.name, name, stand_ins.measured(EVALUATED, process, port, seconds, turn))
            print(f"workers: round {turn + 1} of {rounds}", file=sys.stderr)
