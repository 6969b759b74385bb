"""Cost of the live view at full load.

kproxy with an open page, and after a page was closed, is compared with kproxy that has an idle admin address. A page is
a process that reads `GET /api/view` as fast as it comes, and shows nothing. The frames are those of the phase `frames`.
kproxy keeps exchanges for a minute after a page was closed. The target `view-closed` waits for the end of that minute,
and takes part if there are several rounds.

The live view has a budget by the second, not by the exchange. It saves up what it does not use while other targets are
measured. Each run begins with an unmeasured second that uses up these savings. Besides the ratios there are
milliseconds of a second: the additional CPU time of the proxy, and that of the page, which shares the cores.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from kproxy.record.live_view.watch import LINGER
from tests.lab.bench import frames
from tests.lab.bench.frames_phase import FIFTY, MANY, ONE, Case, StandIns
from tests.lab.bench.machine import Processes, cpu, first_answer
from tests.lab.bench.rows import Rows
from tests.lab.bench.targets import ADMIN_AT

PLAIN, OPEN, CLOSED = "admin", "view", "view-closed"
NAMES = (PLAIN, CLOSED, OPEN)
CASES = tuple(
    Case(f"view: {name}", frame, in_flight, connections)
    for name, frame, in_flight, connections in (
        (ONE, "produce9-200-same-name", 1, 1),
        (FIFTY, "produce9-200-same-name", 1, 50),
        (f"{MANY}, Produce 12", "produce12-200-same-name", 32, 1),
        ("Fetch 17, small answers, 32 in flight", "fetch17", 32, 1),
        ("16 kB, 16 in flight, Produce 12", "produce12-16000-same-name", 16, 1),
        ("1 MB, 4 in flight, Produce 12", "produce12-1000000-same-name", 4, 1),
    )
)
SAVINGS = 1.0
"""Seconds of load before each run: the savings of the budget, and rows that wait for the viewer."""
LEAST = 0.9
"""Part of the exchanges per second that is left while a page is open."""
PAGE = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
connection.request("GET", "/api/view", headers={"Accept": "text/event-stream"})
answer = connection.getresponse()
while data := answer.read1(1 << 16):
    if b"event: tick" in data:
        sys.stdout.write(".")
        sys.stdout.flush()
"""


def measure(folder: Path, rows: Rows, *, rounds: int, seconds: float, only: str = "") -> None:
    """All cases whose names have `only` in them, `rounds` times."""
    names = [name for name in NAMES if name != CLOSED or rounds > 1]
    with Processes(folder) as processes:
        stand_ins = StandIns(processes)
        running: dict[str, tuple[subprocess.Popen[Any], int]] = {}
        for name in names:
            running[name] = stand_ins.start(name, stand_ins.small)
            first_answer(running[name][1], frames.api_versions())
        if CLOSED in names:
            page = open_page(processes, running[CLOSED][1])
            page.kill()
            page.wait()
            processes.running.remove(page)
            time.sleep(LINGER + 2)
        page = open_page(processes, running[OPEN][1])
        for turn in range(rounds):
            for case in (one for one in CASES if only in one.name):
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    process, port = running[name]
                    stand_ins.run(case, port, min(seconds, SAVINGS))
                    begun, used = time.monotonic(), cpu(page.pid)
                    row = stand_ins.measured(case, process, port, seconds, turn)
                    row["page"] = (cpu(page.pid) - used) / (time.monotonic() - begun)
                    rows.add(case.name, name, row)
            print(f"view: round {turn + 1} of {rounds}", file=sys.stderr)
        if page.poll() is not None:
            raise RuntimeError("the page has lost its stream")


def looking(rows: Rows, case: str, target: str) -> float:
    """Milliseconds of a second that the proxy computes more, for as many exchanges, than where nobody looks."""
    pairs = zip(rows.cases[case][target], rows.cases[case][PLAIN], strict=True)
    return median((row["us"] - plain["us"]) * row["rate"] / 1e3 for row, plain in pairs)


def reading(rows: Rows, case: str) -> float:
    """Milliseconds of a second that the page itself takes, from the same cores."""
    return 1e3 * median(row.get("page", 0.0) for row in rows.cases[case][OPEN])


def open_page(processes: Processes, port: int) -> subprocess.Popen[Any]:
    """Return a page of the proxy at this port that has begun to read."""
    page: subprocess.Popen[Any] = processes.start(f"page-{port}", sys.executable, "-c", PAGE, port + ADMIN_AT)
    time.sleep(2.5)
    if page.poll() is not None:
        raise RuntimeError(f"there is no view at port {port + ADMIN_AT}")
    return page
