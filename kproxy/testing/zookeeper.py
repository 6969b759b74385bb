"""ZooKeeper for Kafka before 3.3, which does not run in earnest without it: one process, from the jars that Kafka
brings."""

from __future__ import annotations

import socket
from pathlib import Path

from kproxy.testing.jars import java
from kproxy.testing.ports import free_port
from kproxy.testing.process import Child

_HOST = "127.0.0.1"
_TICK = 500
"""Milliseconds of ZooKeeper's tick; sessions last up to twenty of them."""
_START_TIMEOUT = 60.0  # seconds; one is usual


class ZooKeeper:
    """A process of ZooKeeper, the only one of its ensemble, that keeps its data in `folder`; `address` is the one for
    brokers."""

    def __init__(self, libs: Path, folder: Path) -> None:
        self._libs, self._folder, self._port = libs, folder, free_port()
        self.address = f"{_HOST}:{self._port}"
        self.child: Child | None = None

    def start(self, options: tuple[str, ...]) -> None:
        """Start the process with these options of the JVM, and wait until it listens."""
        self._folder.mkdir(parents=True)
        config = self._folder / "zoo.cfg"
        config.write_text(
            f"dataDir={self._folder}\nclientPortAddress={_HOST}\nclientPort={self._port}\ntickTime={_TICK}\n"
            "maxClientCnxns=0\nadmin.enableServer=false\n"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [java(), *options, "-Dzookeeper.jmx.log4j.disable=true", "-cp", f"{self._libs}/*", main, str(config)]
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
            socket.create_connection((_HOST, self._port), timeout=1).close()
        except OSError:
            return False
        return True
