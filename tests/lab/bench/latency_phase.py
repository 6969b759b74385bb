"""What a proxy adds to the latency of small Produce requests on a real Kafka, at fixed rates.

Strategy: open loop. Requests are sent when they are due, whatever the answers do, and latencies count from then, so a
stall is paid by all that were due meanwhile. Rates are parts of what the broker answers directly on as many
connections when each sends the next request as soon as it has its answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.lab.bench import frames
from tests.lab.bench.frames_phase import compiled_load
from tests.lab.bench.kafka_phase import KafkaBench, Route
from tests.lab.bench.machine import Meter
from tests.lab.bench.rows import Row, Rows

PARTS = (25, 50, 75)
"""Percents of direct's maximum."""
CONNECTIONS = 20
NAMES = ("direct", "haproxy", "kproxy")
WARM_UP = 2.0  # seconds at the maximum, for the broker's JVM


def case_name(part: int) -> str:
    return f"latency at {part} % of direct's maximum"


class Load:
    """The load program with one Produce request of 200 bytes to a topic that is there."""

    def __init__(self, folder: Path, bench: KafkaBench) -> None:
        self.program, self.frame = compiled_load(folder), folder / "latency-frame"
        self.frame.write_bytes(frames.produce(9, 200, "latency"))
        admin = AdminClient({"bootstrap.servers": bench.kafka.bootstrap(), "log_level": 0})
        for done in admin.create_topics([NewTopic("latency", 1, 1)]).values():
            done.result()

    def run(self, *words: object) -> Row:
        command = [str(word) for word in (self.program, *words)]
        row: Row = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
        if row["bad"]:
            raise RuntimeError(f"{command[1:]}: {row}")
        return row

    def most(self, route: Route, seconds: float) -> float:
        """Requests per second, each connection sending one after the other."""
        row = self.run("run", route.port, self.frame, seconds, 1, CONNECTIONS)
        return row["n"] / row["seconds"]


def measure(folder: Path, rows: Rows, *, rounds: int, seconds: float) -> None:
    """`rounds` of all rates, twice `seconds` each."""
    with KafkaBench(folder) as bench:
        load = Load(folder, bench)
        routes = bench.turns(0, NAMES)
        for route in routes:
            load.most(route, WARM_UP)
        for turn in range(rounds):
            most = load.most(routes[0], seconds)
            for part in PARTS:
                for route in bench.turns(turn, NAMES):
                    ours = [each.pid for each in bench.processes.running]
                    ours += [broker.child.pid for broker in bench.kafka.brokers.values() if broker.child]
                    with Meter(route.pid, ours) as meter:
                        row = load.run("open", route.port, load.frame, 2 * seconds, most * part / 100, CONNECTIONS)
                    row |= {"rate": row["n"] / row["seconds"], "us": meter.used / row["n"] * 1e6}
                    rows.add(case_name(part), route.name, row | {"others": meter.others})
            print(f"latency: round {turn + 1} of {rounds}, direct's maximum {most:,.0f}/s", file=sys.stderr)
