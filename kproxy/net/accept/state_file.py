"""State file: which port stands for which node, and where that node was last, so that a restart changes neither.

JSON, replaced atomically, written in a thread; a file that cannot be read stops the start instead of being overwritten.

    {"version": 1,
     "ports": {"outside 9093-10092": {"1": 9094}},                  by listener and range: node id → port
     "nodes": {"main": {"1": ["b1.example.com", 9092]}}}            by cluster: node id → address
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from kproxy.errors import DocumentError
from kproxy.named_file import read_named, reason
from kproxy.net.driven import HostPort
from kproxy.net.loop.reactor import Reactor

VERSION = 1
MOST_STATE = 64 << 20
"""Bytes; a node takes some sixty."""

KnownPorts = dict[str, dict[int, int]]
KnownNodes = dict[str, dict[int, HostPort]]


def read_state(path: Path) -> tuple[KnownPorts, KnownNodes]:
    """Read (ports, nodes), empty when there is no file. Raises DocumentError."""
    try:
        data = json.loads(read_named(path, MOST_STATE))
    except FileNotFoundError:
        return {}, {}
    except OSError as error:
        raise unusable(path, reason(error)) from error
    except RecursionError:
        raise unusable(path, "it is nested too deep") from None
    except ValueError as error:
        raise unusable(path, str(error)) from error
    try:
        if data["version"] != VERSION:
            raise unusable(path, f"version is {data['version']}, expected {VERSION}")
        ports = {name: {int(node): int(port) for node, port in given.items()} for name, given in data["ports"].items()}
        nodes = {
            name: {int(node): (str(host), int(port)) for node, (host, port) in given.items()}
            for name, given in data["nodes"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise unusable(path, f"{type(error).__name__} {error}") from error
    return ports, nodes


def unusable(path: Path, problem: str) -> DocumentError:
    return DocumentError([f"{path}:1:1: the state file cannot be used ({problem}); repair it or move it away"])


def write_state(path: Path, ports: KnownPorts, nodes: KnownNodes) -> None:
    """Replace the file, all or nothing. Raises OSError."""
    data: dict[str, Any] = {"version": VERSION, "ports": ports, "nodes": nodes}
    new = path.with_name(path.name + ".new")
    with new.open("w") as file:
        json.dump(data, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


class StateWriter:
    """Writer of the state file: writes what `snapshot()` gives some time after `changed()`, never two at once."""

    def __init__(self, path: Path, reactor: Reactor, snapshot: Callable[[], tuple[KnownPorts, KnownNodes]]) -> None:
        self.path, self.reactor, self.snapshot = path, reactor, snapshot
        self.dirty = self.writing = False

    def changed(self) -> None:
        self.dirty = True
        if not self.writing:
            self.writing = True
            self.reactor.spawn(self.write)

    async def write(self) -> None:
        try:
            while self.dirty:
                self.dirty = False
                ports, nodes = self.snapshot()
                try:
                    await trio.to_thread.run_sync(write_state, self.path, ports, nodes)
                except OSError as error:
                    self.reactor.log.error("state file cannot be written", path=str(self.path), error=str(error))
        finally:
            self.writing = False
