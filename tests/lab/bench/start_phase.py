"""New processes: the time to the first answer, many connections at once, and memory with and without idle ones."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.lab.bench import frames
from tests.lab.bench.frames_phase import StandIns
from tests.lab.bench.machine import Processes, cpu, first_answer, rss
from tests.lab.bench.rows import Rows
from tests.lab.bench.targets import most_connections, with_before

START, MEMORY, STORM = "start to first answer", "memory", "5,000 connections at once"
CONNECTIONS = most_connections()
AT_ONCE = 5_000
SETTLE = 0.5  # seconds, until what was begun at the start is done


def measure(folder: Path, rows: Rows, *, rounds: int, extra: Sequence[str]) -> None:
    """Each target is started `rounds` times, and holds connections in the last of them."""
    with Processes(folder) as processes:
        stand_ins = StandIns(processes)
        names = ["haproxy", *with_before(["kproxy"]), "admin", *extra]
        for turn in range(rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                start = time.monotonic()
                process, port = stand_ins.start(name, stand_ins.small)
                first_answer(port, frames.api_versions())
                rows.add(START, name, {"seconds": time.monotonic() - start, "cpu": cpu(process.pid)})
                storm(stand_ins, rows, name, process.pid, port)
                if turn == rounds - 1:
                    processes.stop(process)
                    process, port = stand_ins.start(name, stand_ins.small)
                    first_answer(port, frames.api_versions())
                    time.sleep(SETTLE)
                    hold(stand_ins, rows, name, process.pid, port)
                processes.stop(process)
        print(f"start and memory: {rounds} rounds", file=sys.stderr)


def storm(stand_ins: StandIns, rows: Rows, name: str, pid: int, port: int) -> None:
    """Connections that are begun in the same moment, one exchange each: how long until all have their answer."""
    words = [stand_ins.load, "storm", port, stand_ins.files["api-versions"], AT_ONCE]
    began = cpu(pid)
    output = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, check=True, text=True).stdout
    row = json.loads(output)
    if row["bad"]:
        raise RuntimeError(f"{name}: {row['bad']} of {AT_ONCE} connections failed")
    rows.add(STORM, name, {"seconds": row["seconds"], "us": (cpu(pid) - began) / AT_ONCE * 1e6, "p99": row["p99"]})


def hold(stand_ins: StandIns, rows: Rows, name: str, pid: int, port: int) -> None:
    """Resident memory without connections, and with so many that have asked once and are silent since."""
    idle = rss(pid)
    words = [stand_ins.load, "idle", port, stand_ins.files["api-versions"], CONNECTIONS]
    clients = stand_ins.processes.start(
        f"idle-{name}", *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert clients.stdin is not None
    assert clients.stdout is not None
    ready = json.loads(clients.stdout.readline())
    if ready["bad"]:
        raise RuntimeError(f"{name}: {ready['bad']} of {CONNECTIONS} connections failed")
    time.sleep(SETTLE)
    rows.add(MEMORY, name, {"mb": idle / 1024, "kb_each": (rss(pid) - idle) / ready["n"]})
    clients.stdin.close()
    clients.stdout.close()
    stand_ins.processes.stop(clients)
