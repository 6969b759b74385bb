"""Everything that takes part: three brokers, a relay before each, kproxy with two workers, and clients.

Clients speak of `soak-…`, the brokers know `prod.soak-…`, and the same for groups and transactional ids. kproxy goes to
the brokers by way of the relays; the judge does not go through either.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kproxy.base.jars import java
from kproxy.protocol.table.api_keys import METADATA
from kproxy.testing.kafka import JVM, Kafka
from kproxy.testing.one_request import ask
from kproxy.testing.process import ROOM, Child, Proxy, free_port_with_room
from tests.lab.soak.relay import Relays
from tests.lab.soak.wallclock import WallClockOfOthers
from tests.support.topics import create_topics
from tests.support.wait import until

HOST = "127.0.0.1"
CLIENTS = f"{__package__}.clients"
PARTITIONS = 4
DISK = 192_000_000
"""Bytes of the file system that the audit is on. An hour's events took 46 MB, compressed."""
JAVA_SETTINGS = {
    "enable.idempotence": "true", "retries": 2147483647, "delivery.timeout.ms": 2147483647,
    "reconnect.backoff.max.ms": 1000,
}  # fmt: skip
RENAMES: list[dict[str, Any]] = [
    {"name": "topics have other names", "kind": "rename_topic", "topics": {"soak-*": "prod.soak-*"}},
    {"name": "groups have other names", "kind": "rename_group", "groups": {"*": "prod.*"}},
    {"name": "transactional ids have other names", "kind": "rename_transactional_id", "ids": {"*": "prod.*"}},
]
BROKER_SETTINGS = {
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "10000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
}
"""Of a cluster of the soak's own: a write that is acknowledged survives any one broker."""


@dataclass
class Clients:
    """The client processes, by name; each start of a name has a journal of its own."""

    bootstrap: str
    folder: Path
    running: dict[str, Child] = field(default_factory=dict)
    journals: dict[str, Path] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, name: str, program: str, **arguments: Any) -> None:
        """Start a script; a journal `name-N` for its N-th start."""
        with self.lock:
            count = sum(journal.startswith(f"{name}-") for journal in self.journals)
            journal = self.journals[f"{name}-{count}"] = self.folder / f"{name}-{count}.journal"
            given = json.dumps({"bootstrap": self.bootstrap, "journal": str(journal), **arguments})
            command = [sys.executable, "-m", f"{CLIENTS}.{program}", given]
            self.running[name] = Child(command, self.folder / f"{name}-{count}.log")

    def start_java(self, libs: Path, topic: str) -> None:
        """Kafka's own verifiable producer, with acks=all. Without retries, which it sets to 0, it is not idempotent."""
        settings = self.folder / "java.properties"
        settings.write_text("".join(f"{name}={value}\n" for name, value in JAVA_SETTINGS.items()))
        command = [java(), *JVM, "-cp", f"{libs}/*", "org.apache.kafka.tools.VerifiableProducer", "--topic", topic]
        command += ["--bootstrap-server", self.bootstrap, "--throughput", "50", "--command-config", str(settings)]
        self.running["java"] = Child(command, self.folder / "java.out")

    def stop(self, name: str, seconds: float = 60) -> int:
        """SIGTERM, and wait until it has finished; its exit code."""
        return self.running.pop(name).stop(seconds)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.running.pop(name).kill()

    def logs(self, lines: int = 5) -> str:
        """The last words of all."""
        words = {path.name: path.read_text(errors="replace").splitlines()[-lines:]
                 for path in sorted(self.folder.glob("*.log"))}  # fmt: skip
        return "\n".join(f"{name}:\n" + "\n".join(said) for name, said in words.items() if said)


class Scene:
    """`kafka` runs already. A context manager that starts the rest, without clients.

    `disk`: put the audit on a small file system of its own, where this process may mount one. `tag` is in the names of
    topics and groups, so that a cluster can be used more than once.
    """

    def __init__(self, kafka: Kafka, *, disk: bool, tag: str = "") -> None:
        self.kafka, self.tag = kafka, tag
        self.folder = Path(tempfile.mkdtemp(prefix="kproxy-soak-"))
        self.stack = ExitStack()
        self.stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.clock = WallClockOfOthers(self.folder)
        self.audit = self.folder / "disk" / "audit"
        self.small_disk = disk and self._mount()
        self.rules = self.folder / "rules.json"
        self.write_rules([])
        self.relays = Relays(sorted(kafka.ports("DIRECT")))

    def _mount(self) -> bool:
        folder = self.folder / "disk"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return False
        self.stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=False)
        return True

    def topic(self, word: str) -> str:
        """As clients say it; `prod.` in front as brokers do."""
        return f"soak-{word}{self.tag}"

    def write_rules(self, more: list[dict[str, Any]]) -> None:
        """The rule file, in one step."""
        text = json.dumps({"rules": RENAMES + more}, indent=1)
        written = self.rules.with_suffix(".new")
        written.write_text(text)
        written.replace(self.rules)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self) -> None:
        self.stack.enter_context(self.relays)
        self.proxy = Proxy(config=self._config())
        self.stack.callback(self.proxy.stop)
        with self.clock.preloaded():
            self.proxy.launch()
        self.proxy.start()
        clients = self.folder / "clients"
        clients.mkdir()
        self.clients = Clients(self.proxy.bootstrap, clients)
        self.stack.callback(self._kill_clients)

    def _config(self) -> Mapping[str, Any]:
        ports = self.relays.ports
        return {
            "clusters": {"main": {
                "bootstrap": [f"{HOST}:{port}" for port in ports.values()],
                "dial": {f"{HOST}:{broker}": f"{HOST}:{port}" for broker, port in ports.items()},
            }},
            "listeners": [{"name": "main", "bind": f"{HOST}:{free_port_with_room(ROOM)}", "cluster": "main"}],
            "workers": 2,
            "rules": [str(self.rules)],
            "audit": {"dir": str(self.audit), "flush": "200ms", "roll_age": "5s", "queue": 2000,
                      "level": "requests", "topology_every": "10s"},
            "state": str(self.folder / "state.json"),
            "instance": "soak",
            "log": {"format": "json"},
        }  # fmt: skip

    def _kill_clients(self) -> None:
        for name in list(self.clients.running):
            self.clients.kill(name)

    def create_topics(self, *words: str) -> None:
        """Past kproxy, with three replicas, two of which have to have a record that is acknowledged."""
        names = [f"prod.{self.topic(word)}" for word in words]
        in_sync = {"min.insync.replicas": "2"}
        create_topics(self.kafka.bootstrap(), *names, partitions=PARTITIONS, replicas=3, config=in_sync)

    def whole(self) -> bool:
        """Whether every replica of every partition is in sync, and all brokers say so."""
        for broker in self.kafka.brokers.values():
            try:
                address = f"{HOST}:{broker.ports['DIRECT']}"
                said = ask(address, METADATA, 9, {"topics": None, "allow_auto_topic_creation": False})
            except OSError:
                return False
            for topic in said["topics"]:
                for partition in topic["partitions"]:
                    if partition["leader_id"] < 0 or set(partition["isr_nodes"]) != set(partition["replica_nodes"]):
                        return False
        return True

    def wait_whole(self, seconds: float = 180) -> None:
        """Until then, so that one more broker may go."""
        until(lambda: self.whole() or time.sleep(0.1), seconds)

    def logs(self) -> str:
        """What helps to understand a failure."""
        with suppress(AttributeError):
            return f"{self.kafka.logs()}\nkproxy:\n{self.proxy.logs()}\nclients:\n{self.clients.logs()}"
        return self.kafka.logs()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.close()
