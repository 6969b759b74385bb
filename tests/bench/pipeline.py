"""What the pipeline costs: events that are made up, in millions, through bronze, silver and gold; and what-if.

    pipeline.py [--lines N …] [--frames N] [--write]       by default 1,000,000 lines, and 200,000 exchanges

Each job is a process of its own, as a user starts it. Time is that of the process, Spark's start included; memory is
the most that the process and its children had at one moment. --write puts the report in PIPELINE.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from machine import description

from kproxy.capture.captured import Captured, Names
from kproxy.capture.policy import Policy
from kproxy.capture.writer import CaptureWriter
from kproxy.testing.dialogue import request, response
from kproxy.testing.synthetic_events import write_events
from kproxy.watch.seen import Form, Frame, Seen
from kproxy.wire.records import Record, encode_batch

RESULTS = Path(__file__).parent / "PIPELINE.md"
KPROXY = Path(sys.executable).with_name("kproxy")
SOURCES = 2
RULES = """
rules:
  - {name: names, kind: rename_topic, topics: {topic-0: prod.topic-0}}
  - name: every tenth write fails
    kind: error
    match: {api: Produce, topic: topic-1}
    when: {every: 10, count_per: connection}
    error: NOT_LEADER_OR_FOLLOWER
"""
SERVER = ("10.9.9.9", 9092)


@dataclass(frozen=True)
class Cost:
    """Of one process: seconds, and MB of memory at its worst moment."""

    seconds: float
    memory: float


def run(*words: object) -> Cost:
    """Run kproxy with these words. Raises CalledProcessError."""
    worst = 0.0
    begun = time.monotonic()
    with subprocess.Popen([str(KPROXY), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        said = process.stdout
        output: list[bytes] = []
        reader = threading.Thread(target=lambda: output.append(said.read()))
        reader.start()
        while process.poll() is None:
            worst = max(worst, sum(resident(one) for one in family(process.pid)))
            time.sleep(0.1)
        reader.join()
    if process.returncode:
        sys.exit(f"{' '.join(map(str, words))}:\n{b''.join(output).decode(errors='replace')[-3000:]}")
    return Cost(time.monotonic() - begun, worst / 1e6)


def family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in below:
        yield from family(int(child))


def resident(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except (OSError, IndexError):
        return 0


def events(folder: Path, lines: int) -> list[tuple[str, ...]]:
    """Rows of the table: a job, lines, seconds, lines a second, memory."""
    audit, lake = folder / f"audit-{lines}", folder / f"lake-{lines}"
    with ProcessPoolExecutor(SOURCES) as pool:
        made = pool.map(partial(write_source, audit, lines // SOURCES), range(SOURCES))
        count = sum(made)
    rows, both = [], Cost(0, 0)
    for job, words in (("bronze", ("--from", audit)), ("silver", ()), ("gold", ())):
        cost = run("audit", job, *words, "--lake", lake)
        rows.append(row(job, count, cost))
        if job != "gold":
            both = Cost(both.seconds + cost.seconds, max(both.memory, cost.memory))
        print(f"{job}: {rows[-1]}", file=sys.stderr)
    rows.insert(2, row("bronze and silver", count, both))
    return rows


def write_source(folder: Path, lines: int, source: int) -> int:
    return write_events(folder, lines, source=source).lines


def row(job: str, count: int, cost: Cost) -> tuple[str, ...]:
    rate = f"{count / cost.seconds:,.0f}"
    return job, f"{count:,}", f"{cost.seconds:.1f}", rate, f"{cost.memory:,.0f}"


def captured(path: Path, exchanges: int, connections: int = 200) -> None:
    """Small writes to ten topics, from all connections in turn."""
    names = Names()
    callers = [
        Captured(number + 1, "client", f"10.0.{number >> 8}.{number & 255}", 20000 + number, *SERVER, 1.7e9, names)
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
            seen = Seen(who, count, 0, 9, count, "load", came, went, outcome="answered", acks=-1)
            writer.write(seen, SERVER)


def whatif(folder: Path, exchanges: int) -> list[tuple[str, ...]]:
    rules, capture = folder / "rules.yaml", folder / "capture-{}.pcapng"
    rules.write_text(RULES)
    captures = [Path(str(capture).format(number)) for number in range(2)]
    for one in captures:
        captured(one, exchanges // 2)
    cost = run("audit", "whatif", *captures, "--rules", rules, "--lake", folder / "lake")
    return [row("what-if (frames)", exchanges * 2, cost)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--frames", type=int, default=200_000, help="exchanges of what-if; 0: none")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="kproxy-pipeline-") as name:
        for lines in options.lines:
            rows += events(Path(name), lines)
        if options.frames:
            rows += whatif(Path(name), options.frames)
    head = ("job", "events", "s", "a second", "MB at most")
    table = [f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rows)]
    today = dt.datetime.now(dt.UTC).date()
    text = "\n".join(
        ["# What the pipeline costs", "", f"{today}, {description()}, Python {sys.version.split()[0]}.", "", *table, "",
         "`python tests/bench/pipeline.py` makes this table; --write puts it here. Each job is a process of its own,",
         "Spark's start and end included; memory is that of Python and Java together. Events are made up",
         "(`kproxy/testing/synthetic_events.py`, some 940 bytes a line); what-if has a rename and an error rule.", ""]
    )  # fmt: skip
    print(text)
    if options.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
