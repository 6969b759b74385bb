"""Real Apache Kafka of one or more brokers on free ports of this machine, from Kafka's published jars.

Each process is broker and controller (KRaft, combined mode). Kafka's StorageTool, in a JVM, formats the first log
directory of a kind; the others get a copy with their own ids. Kafka before 3.3 runs with ZooKeeper.

A broker loads some ten thousand classes at its start. `make jars` records them in an archive (class data sharing, JEP
350), which halves the work of a start. Java ignores an archive of another Java or of other jars.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from kproxy.base.errors import InternalError
from kproxy.base.jars import jars, java
from kproxy.testing.process import Child

from .one_request import brokers
from .process import free_port, free_ports

#: The newest version of which both artifacts below could be fetched whole.
KAFKA_VERSION = "4.4.0"

_DEPENDENCIES = """\
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>"""


def kafka_libs(version: str = KAFKA_VERSION) -> Path:
    """Return the folder that holds the jars of Kafka's broker, clients and tools in `version`; see
    `kproxy.base.jars.jars`."""
    return jars("kafka", version, _DEPENDENCIES.format(version=version), "kafka-clients-*.jar")


def class_archive(libs: Path) -> Path:
    """Return the path of the archive for this folder of jars and this Java, whether it exists or not."""
    home = Path(os.path.realpath(java())).parent.parent
    built = (home / "release").stat() if (home / "release").exists() else home.stat()
    return libs.with_name(f"{libs.name}-{built.st_size:x}-{int(built.st_mtime):x}.jsa")


def archive_options(libs: Path) -> tuple[str, ...]:
    """Return the options of a JVM whose class path begins with all jars of `libs`; empty without an archive."""
    file = class_archive(libs)
    return (f"-XX:SharedArchiveFile={file}", "-Xlog:disable") if file.exists() else ()


HOST = "127.0.0.1"

_LOG = "-Dorg.slf4j.simpleLogger."
_LOGGING = (
    f"{_LOG}defaultLogLevel=warn",
    f"{_LOG}showDateTime=true",
    f"{_LOG}log.org.apache.kafka.clients.NetworkClient=error",  # else a line per failed attempt
)
_TICK = 500
"""Milliseconds of ZooKeeper's tick; sessions last up to twenty of them."""
_ZOOKEEPER_START_TIMEOUT = 60.0  # seconds until ZooKeeper listens; one is usual


@dataclass
class Broker:
    """One Kafka process: its node id, its port by listener, its folder and, once started, its process."""

    node: int
    ports: dict[str, int]
    folder: Path
    child: Child | None = None

    def start(self, libs: Path, jvm: Sequence[str]) -> None:
        """Start the process, and return before the broker is ready."""
        command = [java(), *archive_options(libs), *jvm, *_LOGGING, "-cp", f"{libs}/*", "kafka.Kafka"]
        command.append(str(self.folder / "server.properties"))
        self.child = Child(command, self.folder / "log")

    def stop(self, *, kill: bool = False) -> None:
        """End the process in order (leaders move first), or at once by SIGKILL."""
        if self.child is None:
            return
        if kill:
            self.child.kill()
        self.child.stop(_STOP_TIMEOUT)
        self.child = None


class ZooKeeper:
    """A process of ZooKeeper, the only one of its ensemble, that keeps its data in `folder`; `address` is the one for
    brokers."""

    def __init__(self, libs: Path, folder: Path) -> None:
        self._libs, self._folder, self._port = libs, folder, free_port()
        self.address = f"{HOST}:{self._port}"
        self.child: Child | None = None

    def start(self, jvm: Sequence[str]) -> None:
        """Start the process with these options of the JVM, and wait until it listens."""
        self._folder.mkdir(parents=True)
        config = self._folder / "zoo.cfg"
        config.write_text(
            f"dataDir={self._folder}\nclientPortAddress={HOST}\nclientPort={self._port}\ntickTime={_TICK}\n"
            "maxClientCnxns=0\nadmin.enableServer=false\n"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [java(), *jvm, *_LOGGING, "-Dzookeeper.jmx.log4j.disable=true", "-cp", f"{self._libs}/*", main]
        command.append(str(config))
        self.child = Child(command, self._folder / "log")
        self.child.wait_until(self._listens, _ZOOKEEPER_START_TIMEOUT, "ZooKeeper")

    def stop(self) -> None:
        """Kill the process, if there is one."""
        if self.child is not None:
            self.child.kill()
            self.child.stop()
        self.child = None

    def _listens(self) -> bool:
        try:
            socket.create_connection((HOST, self._port), timeout=1).close()
        except OSError:
            return False
        return True


#: Small heap and the quick compiler: a broker then starts in two seconds and is fast enough for tests.
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_START_TIMEOUT = 180.0  # seconds; two are usual, a busy machine with two cores may need many more

_STOP_TIMEOUT = 120.0  # seconds; three are usual, a broker that archives its classes needs more

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
    "leader.imbalance.check.interval.seconds": "3600",  # only tests move leaders
}

BY_RACK = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""Selector with which brokers direct clients of a rack to a replica in the same rack (KIP-392)."""

_formatted: dict[tuple[object, ...], dict[str, bytes]] = {}
"""Files that StorageTool has written, by name, for each release, settings and users: it takes a JVM, for seconds."""


@dataclass(frozen=True)
class KafkaListener:
    """A listener of every broker of a cluster, each on a separate port.

    `protocol` is Kafka's security protocol, `properties` are its settings without `listener.name.…` in front.
    `advertise` is the advertised host. `advertise_port` is the advertised port if it differs: that of a plain relay in
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
    SCRAM-SHA-256 and SCRAM-SHA-512 (not with ZooKeeper); `jvm` are Java's options for the brokers; `racks` are the
    brokers' racks, in order; clients that send their rack then read from the broker in it. Raises MissingTool without
    Java or Maven.
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
            made = self._data(first)
            files = (file for file in made.rglob("*") if file.is_file())
            _formatted[kind] = {str(file.relative_to(made)): file.read_bytes() for file in files}
            shutil.rmtree(made)  # Kafka 4.4 writes a read-only file in a subfolder
        for broker in self.brokers.values():
            data = self._data(broker)
            data.mkdir(parents=True, exist_ok=True)
            for name, content in _formatted[kind].items():
                (data / name).parent.mkdir(exist_ok=True)
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
