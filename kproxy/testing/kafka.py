"""A real Apache Kafka of one or more brokers, on free ports of this machine.

Strategy: every process is broker and controller at once (KRaft, combined mode). The first log directory of its kind is
formatted by Kafka's own StorageTool, which starts a JVM; the others get a copy of it with their own ids, which is all
that differs. Kafka before 3.3 has no KRaft for use in earnest: there a ZooKeeper stands beside the brokers, and nothing
is formatted. Each broker has the listeners DIRECT (also used between brokers), CONTROLLER (KRaft), and the ones asked
for: a proxy is put in front of a listener of its own, so that whoever connects to that one past the proxy can be told
apart.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from kproxy.base.errors import InternalError
from kproxy.base.jars import java
from kproxy.testing.ask import brokers
from kproxy.testing.jars import KAFKA_VERSION, archive_options, kafka_libs
from kproxy.testing.kafka_processes import HOST, Broker, ZooKeeper

from .process import free_ports

#: Small heap and the quick compiler: a broker then starts in two seconds and is fast enough for tests.
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_START_TIMEOUT = 180.0  # seconds; two are usual, a machine with two cores and much else to do may need many more

#: The first release whose KRaft is meant for use (KIP-833).
_KRAFT_SINCE = (3, 3)

#: What makes a small cluster quick: little to create, nothing to wait for.
FAST = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
    "log.cleaner.dedupe.buffer.size": "4194304",  # the default takes half of our heap
    "log.segment.delete.delay.ms": "500",
    "leader.imbalance.check.interval.seconds": "3600",  # leaders move when a test says so
}

BY_RACK = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""Selector with which brokers send clients of a rack to a replica there (KIP-392)."""

_formatted: dict[tuple[object, ...], dict[str, bytes]] = {}
"""Files that StorageTool has written, by name, for each release, settings and users: it takes a JVM, for seconds."""


@dataclass(frozen=True)
class KafkaListener:
    """A listener that every broker of a cluster gets, on a port of its own.

    `protocol` is Kafka's security protocol, `properties` are its settings without `listener.name.…` in front,
    `advertise` is the host it is advertised under, `advertise_port` the port if not its own: that of a plain relay in
    front of it (one broker only, since all brokers would get it).
    """

    name: str
    protocol: str = "PLAINTEXT"
    properties: Mapping[str, str] = field(default_factory=dict)
    advertise: str = HOST
    advertise_port: int | None = None


class Kafka:
    """A cluster of `brokers` processes; a context manager that starts it and removes everything again.

    `listeners` come in addition to DIRECT; `properties` are broker settings; `scram` maps users to passwords for
    SCRAM-SHA-256 and SCRAM-SHA-512 (not with ZooKeeper); `jvm` are Java's options for the brokers; `racks` are where
    they stand, in their order, from where clients that say their rack then read. Raises MissingTool without Java or
    Maven.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        listeners: Sequence[KafkaListener] = (),
        properties: Mapping[str, str] | None = None,
        scram: Mapping[str, str] | None = None,
        first_node: int = 1,
        version: str = KAFKA_VERSION,
        jvm: Sequence[str] = JVM,
        racks: Sequence[str] = (),
    ) -> None:
        self._jvm = jvm
        self.libs = kafka_libs(version)
        self.listeners = (KafkaListener("DIRECT"), *listeners)
        self._properties, self._scram = dict(properties or {}), dict(scram or {})
        self._folder = Path(tempfile.mkdtemp(prefix="kproxy-kafka-"))
        self.cluster_id = _new_id()
        with_zookeeper = tuple(map(int, version.split(".")[:2])) < _KRAFT_SINCE
        self.zookeeper = ZooKeeper(self.libs, self._folder / "zookeeper") if with_zookeeper else None
        if self.zookeeper and scram:
            raise InternalError(f"Kafka {version} runs with ZooKeeper here, which has no SCRAM users at its start")
        names = [listener.name for listener in self.listeners] + ([] if self.zookeeper else ["CONTROLLER"])
        ports = free_ports(brokers * len(names))
        self.brokers = {
            node: Broker(node, {name: ports.pop() for name in names}, self._folder / f"broker-{node}")
            for node in range(first_node, first_node + brokers)
        }
        self.racks = dict(zip(self.brokers, racks, strict=False))

    def bootstrap(self, listener: str = "DIRECT") -> str:
        """Return `host:port,…` of all brokers on that listener."""
        return ",".join(f"{HOST}:{broker.ports[listener]}" for broker in self.brokers.values())

    def ports(self, listener: str) -> set[int]:
        """Return the ports of that listener, of all brokers."""
        return {broker.ports[listener] for broker in self.brokers.values()}

    def start(self) -> None:
        """Format the log directories or start ZooKeeper, start all brokers at once, and wait until each knows all of
        them."""
        for broker in self.brokers.values():
            broker.folder.mkdir(parents=True)
            (broker.folder / "server.properties").write_text(self._server_properties(broker))
        if self.zookeeper:
            self.zookeeper.start(JVM)
        else:
            self._format()
        for broker in self.brokers.values():
            broker.start(self.libs, self._jvm)
        for broker in self.brokers.values():
            self._wait(broker)

    def stop_broker(self, node: int, *, kill: bool = False) -> None:
        """Stop one broker, in order or by SIGKILL."""
        self.brokers[node].stop(kill=kill)

    def start_broker(self, node: int) -> None:
        """Start a stopped broker again, on the ports and with the data that it had, and wait until it serves."""
        self.brokers[node].start(self.libs, self._jvm)
        self._wait(self.brokers[node])

    def stop(self) -> None:
        """Kill all processes of the cluster and remove its data."""
        for broker in self.brokers.values():
            broker.stop(kill=True)
        if self.zookeeper:
            self.zookeeper.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def logs(self, lines: int = 15) -> str:
        """Return the last lines of each broker's log."""
        tails = [(broker.node, broker.child.tail(lines)) for broker in self.brokers.values() if broker.child]
        return "\n".join(f"broker {node}:\n{tail}" for node, tail in tails)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _server_properties(self, broker: Broker) -> str:
        replicas = str(min(3, len(self.brokers)))
        settings = {
            **self._who_it_is(broker),
            "inter.broker.listener.name": "DIRECT",
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in broker.ports.items()),
            "advertised.listeners": ",".join(
                f"{x.name}://{x.advertise}:{x.advertise_port or broker.ports[x.name]}" for x in self.listeners
            ),
            "listener.security.protocol.map": ",".join(
                [f"{x.name}:{x.protocol}" for x in self.listeners] + ["CONTROLLER:PLAINTEXT"]
            ),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": "1",
            **FAST,
        }
        if broker.node in self.racks:
            settings |= {"broker.rack": self.racks[broker.node], "replica.selector.class": BY_RACK}
        for listener in self.listeners:
            prefix = f"listener.name.{listener.name.lower()}."
            settings |= {prefix + key: value for key, value in listener.properties.items()}
        settings |= self._properties | {"log.dirs": str(self._data(broker))}
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def _who_it_is(self, broker: Broker) -> dict[str, str]:
        """Return the settings that differ between KRaft and ZooKeeper."""
        if self.zookeeper:
            return {"broker.id": str(broker.node), "zookeeper.connect": self.zookeeper.address}
        voters = ",".join(f"{b.node}@{HOST}:{b.ports['CONTROLLER']}" for b in self.brokers.values())
        return {
            "process.roles": "broker,controller",
            "node.id": str(broker.node),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
        }

    def _data(self, broker: Broker) -> Path:
        """Return the broker's log directory: no two brokers share one, wherever `log.dirs` puts them."""
        return Path(self._properties.get("log.dirs", self._folder)) / f"broker-{broker.node}" / "data"

    def _format(self) -> None:
        """Give every broker a formatted log directory. But for ids, release and settings determine its content."""
        kind = (self.libs, *sorted(self._properties.items()), *sorted(self._scram.items()))
        if kind not in _formatted:
            first = next(iter(self.brokers.values()))
            self._run_format(first)
            _formatted[kind] = {file.name: file.read_bytes() for file in self._data(first).iterdir()}
        for broker in self.brokers.values():
            data = self._data(broker)
            data.mkdir(parents=True, exist_ok=True)
            for name, content in _formatted[kind].items():
                (data / name).write_bytes(content)
            (data / "meta.properties").write_text(
                f"version=1\ncluster.id={self.cluster_id}\nnode.id={broker.node}\ndirectory.id={_new_id()}\n"
            )

    def _run_format(self, broker: Broker) -> None:
        options = (*archive_options(self.libs), *JVM)
        command = [java(), *options, "-cp", f"{self.libs}/*", "kafka.tools.StorageTool", "format"]
        command += ["-t", self.cluster_id, "-c", str(broker.folder / "server.properties")]
        for user, password in self._scram.items():
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                command += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InternalError(f"the log directory could not be formatted:\n{(done.stdout + done.stderr)[-2000:]}")

    def _wait(self, broker: Broker) -> None:
        expected = sum(other.child is not None for other in self.brokers.values())
        address = f"{HOST}:{broker.ports['DIRECT']}"
        assert broker.child is not None
        broker.child.wait_until(lambda: _brokers_known(address) >= expected, _START_TIMEOUT, f"broker {broker.node}")


def _new_id() -> str:
    """Return a UUID as Kafka writes it; not with a dash first, which its tools would take for an option."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return _new_id() if text.startswith("-") else text


def _brokers_known(address: str) -> int:
    """Return how many brokers the one at this address lists; 0 when it cannot be reached."""
    try:
        return len(brokers(address))
    except OSError:
        return 0
