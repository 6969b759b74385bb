"""A real Kafka broker, Kafka's own performance tools and confluent-kafka: MB/s, and the proxies' CPU per GB.

Strategy: a relay that rewrites no addresses would lose its clients to the broker after the first Metadata answer. So
the broker has a listener for each such relay, advertised at the relay's own port. Where the clients are really
connected is looked up in the kernel's socket table during every run, and a run with any other remote port is an error.
Each run has a topic of its own, which is removed after it; the broker's data is in memory where the machine has a
tmpfs for it. Targets take turns: produce, then consume the same records, then the next target; in another order each
round. Unmeasured runs through each target come first: the broker's JVM becomes faster for seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from kproxy.base.jars import java
from kproxy.testing.kafka import Kafka, KafkaListener
from kproxy.testing.one_request import brokers
from tests.lab.bench import frames
from tests.lab.bench.machine import Meter, PortWatch, Processes, first_answer, free_ports
from tests.lab.bench.perf_client import SIZE
from tests.lab.bench.rows import Row, Rows
from tests.lab.bench.targets import HERE, HOST, PORTS, RENAMED, TARGETS, with_before
from tests.lab.bench.tool_output import consumed, produced

PRODUCE, CONSUME, PRODUCE_ALL = "produce", "consume", "produce, acks=all"
LIBRDKAFKA_PRODUCE, LIBRDKAFKA_CONSUME = "produce, confluent-kafka", "consume, confluent-kafka"
NAMES = ("direct", "haproxy", "kproxy", "off", "rename")
BROKER_JVM = ("-Xms1g", "-Xmx1g")  # as Kafka's start script has it; the rest is Java's default
CLIENT_JVM = ("-Xms512m", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
NO_LIMIT = {"auto.create.topics.enable": "false", "max.connections": "100000"}
TIMEOUT = 300  # seconds for one client


@dataclass(frozen=True)
class Route:
    """Where a target's clients begin, the process to measure, and the ports they may be connected to."""

    name: str
    port: int
    pid: int | None
    allowed: frozenset[int]
    prefix: str

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


class KafkaBench:
    """A broker with all targets in front of it; a context manager."""

    def __init__(self, folder: Path, extra: Sequence[str] = ()) -> None:
        self.folder, self.names = folder, (*with_before(NAMES), *extra)
        self.processes = Processes(folder)
        self.stack = ExitStack()
        self.runs = 0

    def __enter__(self) -> KafkaBench:
        with ExitStack() as stack:
            first = free_ports(PORTS * len(self.names))
            ports = {name: first + PORTS * i for i, name in enumerate(self.names)}
            plain = [name for name in self.names if name in TARGETS and TARGETS[name].plain]
            listeners = [KafkaListener(name.upper(), advertise_port=ports[name]) for name in plain]
            memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            data = stack.enter_context(tempfile.TemporaryDirectory(prefix="kproxy-bench-", dir=memory))
            settings = {"log.dirs": f"{data}/log", **NO_LIMIT}
            self.kafka = stack.enter_context(Kafka(listeners=listeners, properties=settings, jvm=BROKER_JVM))
            self.admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap(), "log_level": 0})
            stack.enter_context(self.processes)
            self.routes = [self._route(name, ports[name], name in plain) for name in self.names]
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.__exit__(None, None, None)

    def _route(self, name: str, port: int, plain: bool) -> Route:
        (broker,) = self.kafka.brokers.values()
        if name == "direct":
            port = broker.ports["DIRECT"]
            return Route(name, port, None, frozenset({port}), "")
        upstream = broker.ports[name.upper() if plain else "DIRECT"]
        process = self.processes.start(name, *TARGETS[name].command(self.folder, port, upstream))
        first_answer(port, frames.api_versions())
        nodes = {int(address.rsplit(":", 1)[1]) for address in brokers(f"{HOST}:{port}").values()}
        own = frozenset({port, *nodes})
        if own & set(broker.ports.values()):
            raise RuntimeError(f"{name} tells clients of the broker's own port: {sorted(nodes)}")
        return Route(name, port, process.pid, own, RENAMED if name.endswith("rename") else "")

    # ---- one run

    def client(self, route: Route, gb: float, *command: object) -> tuple[str, Row]:
        """Run a client to its end: what it printed, and the proxy's CPU seconds per GB."""
        self.runs += 1
        name = f"client-{self.runs}"
        ours = [process.pid for process in self.processes.running]
        ours += [broker.child.pid for broker in self.kafka.brokers.values() if broker.child]
        with Meter(route.pid, ours) as meter:
            process = self.processes.start(name, *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            with PortWatch(process.pid) as watch:
                output, _ = process.communicate(timeout=TIMEOUT)
        self.processes.running.remove(process)
        if process.returncode:
            raise RuntimeError(f"{route.name}: {command[-6:]} ended with {process.returncode}: {output[-500:]}")
        if not watch.seen or watch.seen - route.allowed:
            raise RuntimeError(f"{route.name}: remote ports {sorted(watch.seen)}, expected {sorted(route.allowed)}")
        row = {"others": meter.others}
        return output, row | {"cpu_gb": meter.used / gb} if route.pid else row

    def java_tool(self, route: Route, gb: float, name: str, *options: object) -> tuple[str, Row]:
        command = [java(), *CLIENT_JVM, "-cp", f"{self.kafka.libs}/*", f"org.apache.kafka.tools.{name}"]
        return self.client(route, gb, *command, "--bootstrap-server", route.address, *options)

    def produce(self, route: Route, topic: str, records: int, acks: str = "1") -> Row:
        options = ["--topic", topic, "--num-records", records, "--record-size", SIZE, "--throughput", -1]
        options += ["--warmup-records", records // 6]
        options += ["--command-property", f"acks={acks}", "linger.ms=5", "batch.size=65536"]
        output, row = self.java_tool(route, records * SIZE / 1e9, "ProducerPerformance", *options)
        return row | {"mbs": produced(output, records)}

    def consume(self, route: Route, topic: str, records: int) -> Row:
        options = ["--topic", topic, "--num-records", records, "--hide-header", "--timeout", 30000]
        output, row = self.java_tool(route, records * SIZE / 1e9, "ConsumerPerformance", *options)
        return row | {"mbs": consumed(output, records)}

    def librdkafka(self, verb: str, route: Route, topic: str, records: int) -> Row:
        command = [sys.executable, HERE / "perf_client.py", verb, route.address, topic, records]
        output, row = self.client(route, records * SIZE / 1e9, *command)
        return row | {"mbs": records * SIZE / 2**20 / json.loads(output)["seconds"]}

    # ---- many

    def topic(self, route: Route, number: int) -> str:
        """A new topic of one partition, by the name that clients of that route use."""
        name = f"load-{route.name}-{number}"
        for done in self.admin.create_topics([NewTopic(route.prefix + name, 1, 1)]).values():
            done.result()
        return name

    def remove(self, route: Route, topic: str) -> None:
        for done in self.admin.delete_topics([route.prefix + topic], operation_timeout=10).values():
            done.result()

    def turns(self, number: int, names: Sequence[str]) -> list[Route]:
        routes = [route for route in self.routes if route.name in names]
        return routes[number % len(routes) :] + routes[: number % len(routes)]


def measure(folder: Path, rows: Rows, *, rounds: int, records: int, extra: Sequence[str] = ()) -> None:
    """`rounds` of Kafka's own tools and of confluent-kafka with `records` each, then acks=all once."""
    with KafkaBench(folder, extra) as bench:
        for number in range(-1, rounds):  # the first is to warm up
            for route in bench.turns(number, bench.names):
                topic = bench.topic(route, number)
                made, read = bench.produce(route, topic, records), bench.consume(route, topic, records)
                bench.remove(route, topic)
                if number >= 0:
                    rows.add(PRODUCE, route.name, made)
                    rows.add(CONSUME, route.name, read)
            print(f"kafka: round {number + 1} of {rounds}", file=sys.stderr)
        for route in bench.turns(0, ("direct", "haproxy", "kproxy", "rename")):
            topic = bench.topic(route, rounds)
            rows.add(PRODUCE_ALL, route.name, bench.produce(route, topic, records, "all"))
            bench.remove(route, topic)
        for number in range(rounds + 1, 2 * rounds + 1):
            for route in bench.turns(number, ("off", "rename")):
                topic = bench.topic(route, number)
                rows.add(LIBRDKAFKA_PRODUCE, route.name, bench.librdkafka("produce", route, topic, records))
                rows.add(LIBRDKAFKA_CONSUME, route.name, bench.librdkafka("consume", route, topic, records))
                bench.remove(route, topic)
            print(f"confluent-kafka: round {number - rounds} of {rounds}", file=sys.stderr)
