"""Frames against a broker stand-in: the proxies' CPU per exchange, for sizes and numbers in flight.

Strategy: the load is a small C program that sends one frame over and over and reads the answers, so that the proxy is
most of what happens. Targets take turns within each case, in another order each round. A short unmeasured run comes
first, since kproxy compiles what it needs for a message version when it meets it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kproxy.protocol.table.api_keys import METADATA
from kproxy.testing.one_request import ask
from tests.lab.bench import frames
from tests.lab.bench.machine import Meter, Processes, first_answer, free_ports
from tests.lab.bench.rows import Row, Rows
from tests.lab.bench.targets import HERE, PORTS, RENAMED, TARGETS, tool, with_before

MOST_TARGETS = 30
WARM_UP = 0.2  # seconds; one second on a new process costs 10 to 20 % more than the next


@dataclass(frozen=True)
class Case:
    """`frame` is sent, `in_flight` at once on each of `connections`; mode conns: a connection for each.

    `also` are targets besides direct, HAProxy and kproxy.
    """

    name: str
    frame: str
    in_flight: int = 1
    connections: int = 1
    mode: str = "run"
    also: tuple[str, ...] = ()


RENAME, RULES, WORKERS = ("rename",), ("rules",), ("workers",)
ONE, FIFTY, MANY = "200 B, 1 in flight", "200 B, 1 in flight on 50 connections", "200 B, 32 in flight"
TWO_HUNDRED, SIXTEEN = "200 B, 4 in flight on 200 connections", "16 kB, 16 in flight"
METADATA_CASE = "Metadata of 100 topics × 10 partitions"
METADATA_LARGE = "Metadata of 1,000 topics × 10 partitions on 20 brokers"
PRODUCERS = {count: f"16 kB, 5 in flight, producers: {count}" for count in (1, 10, 100)}
CONNECT = "connect, ApiVersions, close"
CASES = (
    Case(ONE, "produce9-200", also=RULES),
    Case(FIFTY, "produce9-200", connections=50, also=WORKERS),
    Case(TWO_HUNDRED, "produce9-200", 4, 200, also=WORKERS),
    Case(MANY, "produce9-200", 32, also=RULES),
    Case(f"{MANY}, Produce 12", "produce12-200", 32, also=RENAME),
    Case("Fetch 17, small answers, 32 in flight", "fetch17", 32, also=RENAME),
    *(Case(name, "produce9-16000", 5, count, also=WORKERS) for count, name in PRODUCERS.items()),
    Case(SIXTEEN, "produce9-16000", 16),
    Case(f"{SIXTEEN}, Produce 12", "produce12-16000", 16, also=RENAME),
    Case("100 kB, 8 in flight", "produce9-100000", 8),
    Case("1 MB, 4 in flight", "produce9-1000000", 4),
    Case("1 MB, 4 in flight, Produce 12", "produce12-1000000", 4, also=RENAME),
    Case("Fetch 17, 1 MB answers, 4 in flight", "fetch17-large", 4, also=RENAME),
    Case(METADATA_CASE, "metadata", also=RENAME),
    Case(METADATA_LARGE, "metadata-large", also=RENAME),
    Case(CONNECT, "api-versions", connections=8, mode="conns"),
)


def compiled_load(folder: Path) -> Path:
    """The load program, in that folder."""
    program = folder / "load"
    subprocess.run([tool("gcc", "gcc"), "-O2", "-o", str(program), str(HERE / "load.c"), "-lpthread"], check=True)
    return program


class StandIns:
    """The load program, its frames, and two broker stand-ins; the large one answers Fetch with 1 MB."""

    def __init__(self, processes: Processes) -> None:
        self.processes, self.folder = processes, processes.folder
        self.load = compiled_load(self.folder)
        self.next_port = free_ports(PORTS * MOST_TARGETS)
        self.small, self.large = self.ports(), self.ports()
        self.files = self._make_frames()
        for name, port in (("small", self.small), ("large", self.large)):
            processes.start(f"stand-in-{name}", self.load, "mock", port, self.files[f"answers-{name}"])
            first_answer(port, frames.api_versions())

    def ports(self) -> int:
        """The first of PORTS that are nobody else's."""
        self.next_port += PORTS
        return self.next_port - PORTS

    def start(self, target: str, upstream: int) -> tuple[subprocess.Popen[Any], int]:
        """A new process of that target, and its port."""
        port = self.ports()
        process = self.processes.start(f"{target}-{port}", *TARGETS[target].command(self.folder, port, upstream))
        return process, port

    def run(self, case: Case, port: int, seconds: float) -> Row:
        words: list[object] = [self.load, case.mode, port, self.files[case.frame], seconds]
        words += [case.in_flight, case.connections] if case.mode == "run" else [case.connections]
        output = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, check=True, text=True).stdout
        row: Row = json.loads(output)
        if row["bad"] > row["n"] / 100 or not row["n"]:
            raise RuntimeError(f"{case.name} on port {port}: {row}")
        return row

    def measured(self, case: Case, process: subprocess.Popen[Any] | None, port: int, seconds: float, turn: int) -> Row:
        """One run, with the CPU of that process for an exchange in `us`, and `rate`; the first turn warms up before."""
        if turn == 0:
            self.run(case, port, min(seconds, WARM_UP))
        with Meter(process and process.pid, (each.pid for each in self.processes.running)) as meter:
            row = self.run(case, port, seconds)
        if process:
            row["us"] = meter.used / row["n"] * 1e6
        return row | {"rate": row["n"] / row["seconds"], "others": meter.others}

    def _make_frames(self) -> dict[str, Path]:
        contents = {
            "answers-small": frames.answers(self.small, 100),
            "answers-large": frames.answers(self.large, 1_000_000, topics=1000, nodes=20),
            "fetch17": frames.fetch(17),
            "fetch17-large": frames.fetch(17),
            "metadata": frames.metadata(),
            "metadata-large": frames.metadata(),
            "api-versions": frames.api_versions(),
        }
        for version in (9, 12):
            for size in (200, 16_000, 100_000, 1_000_000):
                contents[f"produce{version}-{size}"] = frames.produce(version, size)
                same = frames.produce(version, size, frames.RENAMED + frames.TOPIC)
                contents[f"produce{version}-{size}-same-name"] = same
        for name, data in contents.items():
            (self.folder / name).write_bytes(data)
        return {name: self.folder / name for name in contents}


def measure(
    folder: Path, rows: Rows, cases: Sequence[Case], *, rounds: int, seconds: float, extra: Sequence[str]
) -> None:
    """All of these cases, `rounds` times; `extra` targets besides HAProxy and kproxy."""
    with Processes(folder) as processes:
        stand_ins = StandIns(processes)
        running: dict[tuple[str, int], tuple[subprocess.Popen[Any] | None, int]] = {}
        for upstream in (stand_ins.small, stand_ins.large):
            running["direct", upstream] = (None, upstream)
            also = sorted({name for case in cases for name in case.also})
            for target in ("haproxy", *with_before(["kproxy", *also]), *extra):
                running[target, upstream] = stand_ins.start(target, upstream)
                first_answer(running[target, upstream][1], frames.api_versions())
        if ("rename", stand_ins.small) in running:
            check_rewritten(running["rename", stand_ins.small][1], stand_ins.small)
        for turn in range(rounds):
            for case in cases:
                upstream = stand_ins.large if case.frame.endswith("-large") else stand_ins.small
                names = ["direct", "haproxy", *with_before(["kproxy", *case.also]), *extra]
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    process, port = running[name, upstream]
                    rows.add(case.name, name, stand_ins.measured(case, process, port, seconds, turn))
            print(f"frames: round {turn + 1} of {rounds}", file=sys.stderr)


def check_rewritten(port: int, upstream: int) -> None:
    """Raises RuntimeError unless the Metadata answer on that port names no broker-side topic and no broker's port."""
    body = {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    answer = ask(f"127.0.0.1:{port}", METADATA, 12, body)
    names = [topic["name"] for topic in answer["topics"]]
    ports = {broker["port"] for broker in answer["brokers"]}
    if len(names) != 100 or any(name.startswith(RENAMED) for name in names) or upstream in ports or len(ports) != 3:
        raise RuntimeError(f"not rewritten: {len(names)} topics {names[:3]}, ports {sorted(ports)}")
