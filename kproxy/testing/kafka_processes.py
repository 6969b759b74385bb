"""The processes of a cluster: Kafka's brokers, and ZooKeeper for those before 3.3, which do not run in earnest without
it. Both come from the jars that Kafka publishes."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kproxy.base.jars import java
from kproxy.testing.jars import archive_options
from kproxy.testing.process import Child

from .process import free_port

HOST = "127.0.0.1"

_LOG = "-Dorg.slf4j.simpleLogger."
_LOGGING = (
    f"{_LOG}defaultLogLevel=warn",
    f"{_LOG}showDateTime=true",
    f"{_LOG}log.org.apache.kafka.clients.NetworkClient=error",  # brokers that are not there yet, again and again
)
_TICK = 500
"""Milliseconds of ZooKeeper's tick; sessions last up to twenty of them."""
_START_TIMEOUT = 60.0  # seconds until ZooKeeper listens; one is usual


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
        self.child.stop(30)
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
        self.child.wait_until(self._listens, _START_TIMEOUT, "ZooKeeper")

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
