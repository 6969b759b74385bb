"""Cost of the pipeline: millions of synthetic events through bronze, silver and gold; and what-if.

    python -m tests.lab.bench.pipeline WORDS
        [--lines N …] [--frames N] [--write]    by default 1,000,000 lines, and 200,000 exchanges
        --lines 1000000 10000000 --write        and whether cost grows with the lines
        --folder F …                            silver and gold once more on what F has; bronze as noted

Each job is a process of its own, as a user starts it. Time is told from its begin to its end, and from when Spark was
there (its event log says when the executor was added) to its end; memory is the most that the process and its children
had at one moment. CPU is that of Spark's tasks, by the event log, and that of all processes, compiling and garbage
collection included. On a machine that others use, CPU says more than time. --write puts the report in PIPELINE.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from kproxy.protocol.records import Record, encode_batch
from kproxy.record.captures.captured_connection import CapturedConnection, TopicIdNames
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.writer import CaptureWriter
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.testing.process import process_tree
from kproxy.tools.rehearse.dialogue import request, response
from tests.lab.bench.machine import as_installed, description
from tests.support.synthetic_events import write_events

RESULTS = Path(__file__).parent / "PIPELINE.md"
KPROXY = Path(sys.executable).with_name("kproxy")
SOURCES = 2
RULES = """
rules:
  - {name: names, kind: rename_topic, topics: {topic-0: prod.topic-0}}
  - name: every tenth write fails
    kind: error
    match: {api: Produce, topic: topic-1}
    when: {every: 10, count_scope: connection}
    error: NOT_LEADER_OR_FOLLOWER
"""
SERVER = ("10.9.9.9", 9092)


@dataclass(frozen=True)
class Cost:
    """Of one job: seconds of its process, those of them after Spark's start, CPU seconds of tasks and of all processes,
    and MB of memory at its worst moment."""

    seconds: float
    after_start: float
    tasks: float
    cpu: float
    memory: float


def run(*words: object) -> Cost:
    """Run a job of kproxy with these words. Exits if it fails."""
    with tempfile.TemporaryDirectory(prefix="kproxy-events-") as log:
        begun, ended, cpu, memory = watched(*words, *(word for one in event_log(log) for word in ("--conf", one)))
        up, tasks = told_by(Path(log))
    return Cost(ended - begun, ended - max(up, begun), tasks, cpu, memory)


def watched(*words: object) -> tuple[float, float, float, float]:
    """When the process began and ended, its CPU seconds and its most MB, those of its children included."""
    worst, cpu = 0.0, dict[int, float]()
    begun = time.time()
    command, pipe = [str(KPROXY), *map(str, words)], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, env=as_installed()) as process:
        assert process.stdout is not None
        said = process.stdout
        output: list[bytes] = []
        reader = threading.Thread(target=lambda: output.append(said.read()))
        reader.start()
        while process.poll() is None:
            there = set(process_tree(process.pid))
            worst = max(worst, sum(map(resident, there)))
            cpu |= {pid: used for pid in there if (used := cpu_of(pid))}
            time.sleep(0.1)
        reader.join()
    if process.returncode:
        sys.exit(f"{' '.join(map(str, words))}:\n{b''.join(output).decode(errors='replace')[-3000:]}")
    return begun, time.time(), sum(cpu.values()), worst / 1e6


def event_log(folder: str) -> tuple[str, ...]:
    """Settings for Spark to write down in a folder what it does."""
    plain = ("spark.eventLog.rolling.enabled=false", "spark.eventLog.compress=false")
    return ("spark.eventLog.enabled=true", f"spark.eventLog.dir=file://{folder}", *plain)


def told_by(folder: Path) -> tuple[float, float]:
    """When Spark was there, as seconds since 1970, and the CPU seconds of its tasks."""
    [log] = (one for one in folder.iterdir() if not one.name.startswith("."))  # beside it may be its checksum
    up, tasks = 0.0, 0
    with log.open() as lines:
        for line in lines:
            if line.startswith('{"Event":"SparkListenerTaskEnd"'):
                metrics = json.loads(line).get("Task Metrics") or {}
                tasks += metrics.get("Executor CPU Time", 0) + metrics.get("Executor Deserialize CPU Time", 0)
            elif line.startswith('{"Event":"SparkListenerExecutorAdded"'):
                up = json.loads(line)["Timestamp"] / 1e3
    return up, tasks / 1e9


def resident(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except (OSError, IndexError):
        return 0


def cpu_of(pid: int) -> float:
    """CPU seconds of a process; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def events(folder: Path, lines: int, jobs: list[str]) -> dict[str, tuple[int, Cost]]:
    """Of each job how many lines it had, and what it cost. What an earlier run has left in the folder is used again."""
    audit, lake, noted = (folder / f"{what}-{lines}" for what in ("audit", "lake", "bronze"))
    if not noted.exists():
        with ProcessPoolExecutor(SOURCES) as pool:
            count = sum(pool.map(partial(write_source, audit, lines // SOURCES), range(SOURCES)))
        bronze = run("audit", "run", "--until", "bronze", "--from", audit, "--lake", lake)
        noted.write_text(json.dumps([count, asdict(bronze)]))
    count, told = json.loads(noted.read_text())
    costs = {"bronze": (count, Cost(**told))} if told else {}
    for job in jobs:
        costs[job] = count, run("audit", "run", "--until", job, "--rebuild", job, "--lake", lake)
        print(row(job, *costs[job]), file=sys.stderr, flush=True)
    return costs


def write_source(folder: Path, lines: int, source: int) -> int:
    return write_events(folder, lines, source=source).lines


def row(job: str, count: int, cost: Cost) -> tuple[str, ...]:
    """A row of the table under HEAD."""
    rates = (f"{count / cost.seconds:,.0f}", f"{cost.after_start:.1f}", f"{count / cost.after_start:,.0f}")
    cpu = (f"{one / count * 1e6:.1f}" for one in (cost.tasks, cost.cpu))
    return job, f"{count:,}", f"{cost.seconds:.1f}", *rates, *cpu, f"{cost.memory:,.0f}"


HEAD = ("job", "events", "s", "a second", "s after start", "a second", "tasks µs CPU", "all µs CPU", "MB at most")


def growth(few: dict[str, tuple[int, Cost]], many: dict[str, tuple[int, Cost]]) -> list[str]:
    """For each job, what an event costs among many, in terms of what it costs among few. 1: it is linear."""
    lines = []
    for job, (count, cost) in few.items():
        if job not in many:
            continue
        times, costs = many[job][0] / count, many[job][1]
        ratios = (costs.after_start / cost.after_start / times, costs.tasks / cost.tasks / times)
        lines.append(f"- {job}: with {times:.1f} times as many events, an event takes {ratios[0]:.2f} times as long "
                     f"after Spark's start, and {ratios[1]:.2f} times the CPU of tasks.")  # fmt: skip
    return lines


def captured(path: Path, exchanges: int, connections: int = 200) -> None:
    """Small writes to ten topics, from all connections in turn."""
    names = TopicIdNames()
    callers = [
        CapturedConnection(
            number + 1, "client", f"10.0.{number >> 8}.{number & 255}", 20000 + number, *SERVER, 1.7e9, names
        )
        for number in range(connections)
    ]
    records = encode_batch([Record(0, 1_700_000_000_000, None, bytes(100))])
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy("full"))
        for number in range(exchanges):
            who, count = callers[number % connections], number // connections + 1
            topic, when = f"topic-{who.number % 10}", 1.7e9 + number / 10_000
            part = {"index": 0, "records": records}
            asked = request(0, 9, count, "load", acks=-1, topic_data=[{"name": topic, "partition_data": [part]}])
            said = [{"name": topic, "partition_responses": [{"index": 0, "base_offset": count}]}]
            answer = response(0, 9, count, responses=said)
            came = Frame(len(asked), when, when, asked[4:], Form.WHOLE)
            went = Frame(len(answer), when + 0.001, when + 0.001, answer[4:], Form.WHOLE)
            seen = ObservedExchange(who, count, 0, 9, count, "load", came, went, outcome="answered", acks=-1)
            writer.write(seen, SERVER)


def whatif(folder: Path, exchanges: int) -> list[tuple[str, ...]]:
    rules, capture = folder / "rules.yaml", folder / "capture-{}.pcapng"
    rules.write_text(RULES)
    captures = [Path(str(capture).format(number)) for number in range(2)]
    for one in captures:
        captured(one, exchanges // 2)
    cost = run("rules", "simulate", *captures, "--rules", rules, "--lake", folder / "lake")
    return [row("what-if (frames)", exchanges * 2, cost)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--frames", type=int, default=200_000, help="exchanges of what-if; 0: none")
    parser.add_argument("--folder", type=Path, help="keep events and lakes here, and use those that are there")
    parser.add_argument("--jobs", nargs="*", default=["silver", "gold"], help="what is measured after bronze")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="kproxy-pipeline-") as name:
        costs = [events(options.folder or Path(name), lines, options.jobs) for lines in options.lines]
        for one in costs:
            rows += [row(job, *cost) for job, cost in one.items()]
        if options.frames:
            rows += whatif(Path(name), options.frames)
    grown = [line for few, many in pairwise(costs) for line in growth(few, many)]
    table = [f"| {' | '.join(cells)} |" for cells in (HEAD, ("---",) * len(HEAD), *rows)]
    today = dt.datetime.now(dt.UTC).date()
    text = "\n".join(
        ["# Cost of the pipeline", "", f"{today}, {description()}, Python {sys.version.split()[0]}.", "", *table, "",
         *grown, *[""][: len(grown)],
         "`python -m tests.lab.bench.pipeline --write` writes this table. Each job is a process of its own.",
         "`after start` is the time from Spark's start to the end of the process. CPU is per event: of Spark's tasks,",
         "and of all processes with compilation and garbage collection. Memory is the peak of Python with Java.",
         "Events are synthetic (`tests/support/synthetic_events.py`, some 940 bytes a line). What-if has a rename rule",
         "and an error rule.", ""]
    )  # fmt: skip
    print(text)
    if options.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
