"""Listening sockets, served by the reactor."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import trio

from kproxy.base.errors import DocumentError
from kproxy.base.named_file import read_named, reason
from kproxy.base.sockets import HAS_REUSE
from kproxy.runtime.capacity import LogThrottle
from kproxy.runtime.io.reactor import IN, Reactor
from kproxy.runtime.io.socket_io import keep_alive, pretend
from kproxy.runtime.protocols import HostPort, host_port
from kproxy.runtime.upstreams.resolve import Endpoint

BACKLOG = 4096
"""Connections that the kernel completes before they are accepted (limit: somaxconn). Beyond this, a client counts
itself as connected, and its kernel retransmits the first bytes at growing intervals, up to half a minute."""
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
PAUSE = 0.1
"""Pause in seconds when descriptors or memory are used up. Until then, connections wait in the backlog."""

STREAM = int(socket.SOCK_STREAM)
OnAccept = Callable[[socket.SocketType, HostPort], object]


def listen(endpoint: Endpoint, transparent: bool = False) -> socket.socket:
    """Open a listening socket, also for foreign addresses if `transparent`. Raises OSError.

    Accepted sockets inherit its options, which saves a system call for each.
    """
    family, sockaddr = endpoint
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if HAS_REUSE:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keep_alive(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if sockaddr[0] == "::" else 1)
        if transparent:
            pretend(sock, family)
        sock.bind(sockaddr)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


class Acceptor:
    """Listening socket that passes each new, non-blocking connection to `arrived(socket, address)`. `node`: the node of
    its port, unless several share it."""

    def __init__(
        self, reactor: Reactor, sock: socket.socket, arrived: OnAccept, log: LogThrottle, node: int | None = None
    ) -> None:
        self.reactor, self.sock, self.arrived, self.log, self.node = reactor, sock, arrived, log, node
        self.fd, self.family = sock.fileno(), int(sock.family)
        self.address = host_port(sock.getsockname())
        self.closed = False
        reactor.add(self.fd, self.ready, IN)

    def ready(self, mask: int) -> None:
        try:  # `accept` would also create a socket.socket, which takes longer than the system call
            fd, address = self.sock._accept()  # type: ignore[attr-defined]
        except OSError as error:  # usually a client that has disconnected
            if error.errno in EXHAUSTED:
                self.pause(error)
            return
        sock = socket.SocketType(self.family, STREAM, 0, fd)
        sock.setblocking(False)
        self.arrived(sock, address)

    def pause(self, error: OSError) -> None:
        """Stop accepting for `PAUSE` seconds: descriptors or memory are used up."""
        self.log.warning("connections cannot be accepted for now", error=error.strerror)
        self.reactor.modify(self.fd, 0)
        self.reactor.call_at(monotonic() + PAUSE, self.resume)

    def resume(self) -> None:
        if not self.closed:
            self.reactor.modify(self.fd, IN)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.reactor.forget(self.fd)
            self.sock.close()


FORGOTTEN = 300.0
"""Seconds until clients have dropped a cached address: they refresh metadata after 5 minutes (metadata.max.age.ms)."""
BUSY = 60.0
"""Seconds until a port that could not be bound is tried again."""

Bind = Callable[[int, int], bool]
"""(port, node) → True if kproxy listens there now"""


# Pool of ports for nodes.
#
# A client that has cached an address must reach the same node there, also after a restart. So a node keeps its port as
# long as free ports remain. The first choice is `first + id`, which is the same on every kproxy of the same config even
# without a state file. Controllers (ids below -1) get ports from the top of the range to avoid conflicts. If all ports
# are taken, a port unused for `FORGOTTEN` seconds moves to another node.
#
# A broker may return any number of nodes, different ones each time. So the cost of finding a port does not depend on
# the number of taken ports. The search continues at the end of the last one, a port that cannot be bound is skipped for
# `BUSY` seconds, and `used` is in order of last use.
#
# The state file stores the port and the last address of each node, so that a restart changes neither. It is JSON,
# replaced atomically by a thread. An unreadable file stops the start instead of being replaced.
#
#     {"version": 1,
#      "ports": {"outside 9093-10092": {"1": 9094}},                  by listener and range: node id → port
#      "nodes": {"main": {"1": ["b1.example.com", 9092]}}}            by cluster: node id → address
class PortPool:
    """Ports of one range on one listener. `bind` opens ports, and `release` closes them."""

    def __init__(
        self, first: int, last: int, remembered: dict[int, int], bind: Bind, release: Callable[[int], None]
    ) -> None:
        self.first, self.last = first, last
        self.bind, self.release = bind, release
        owners = {port: node for node, port in remembered.items() if first <= port <= last}  # each port has one
        self.remembered = {node: port for port, node in owners.items()}
        self.taken = set(self.remembered.values())
        self.open: dict[int, int] = {}
        self.used: dict[int, float] = {}
        """Node with an open port → time of its last request or connection, oldest first."""
        self.busy: dict[int, float] = {}
        """Port that could not be bound → time of the next attempt, earliest first."""
        self.assignments = 0
        self.lowest, self.highest = first, last
        """Bounds of possibly free ports: all outside are taken or busy."""

    def ensure(self, node: int) -> int | None:
        """Return the node's open port; None if the range is exhausted. Raises OSError as `bind` does, if no port can be
        bound now."""
        port = self.open.get(node)
        if port is None:
            self.forgive()
            port = next((port for port in self.choices(node) if self.try_port(port, node)), None)
            if port is None:
                port = self.take_over(node)
            if port is None:
                return None
            before = self.remembered.get(node)
            if before is not None and before != port:
                self.free(before)
            if before != port:
                self.assignments += 1
            self.open[node] = self.remembered[node] = port
            self.taken.add(port)
        self.mark_used(node)
        return port

    def use(self, node: int) -> None:
        if node in self.open:
            self.mark_used(node)

    def mark_used(self, node: int) -> None:
        """Move the node to the end of the order of use."""
        self.used.pop(node, None)
        self.used[node] = monotonic()

    def choices(self, node: int) -> Iterator[int]:
        """Yield candidate ports for this node, best first."""
        if node in self.remembered:
            yield self.remembered[node]
        fixed = self.first + node
        if node >= 0 and fixed <= self.last and fixed not in self.taken:
            yield fixed
        if node >= 0:
            while self.lowest <= self.last:
                if self.lowest not in self.taken:
                    yield self.lowest
                self.lowest += 1
        else:
            while self.highest >= self.first:
                if self.highest not in self.taken:
                    yield self.highest
                self.highest -= 1

    def try_port(self, port: int, node: int) -> bool:
        """Bind the port, unless that failed within the last `BUSY` seconds; return True if it is bound."""
        if port in self.busy:
            return False
        if self.bind(port, node):
            return True
        self.busy[port] = monotonic() + BUSY
        return False

    def forgive(self) -> None:
        now = monotonic()
        while self.busy:
            port, until = next(iter(self.busy.items()))
            if until > now:
                return
            del self.busy[port]
            self.may_be_free(port)

    def free(self, port: int) -> None:
        self.taken.discard(port)
        self.may_be_free(port)

    def may_be_free(self, port: int) -> None:
        self.lowest, self.highest = min(self.lowest, port), max(self.highest, port)

    def lose(self, port: int) -> None:
        """Remove a port that now has another use. Its node gets another one on request."""
        for node in [node for node, its in self.open.items() if its == port]:
            del self.open[node], self.used[node]
            self.remembered.pop(node, None)
            self.taken.discard(port)
        self.busy[port] = monotonic() + BUSY

    def take_over(self, node: int) -> int | None:
        """Take the least recently used port; None if all were used within `FORGOTTEN`."""
        while self.used:
            other, when = next(iter(self.used.items()))
            if monotonic() - when < FORGOTTEN:
                return None
            port = self.open.pop(other)
            del self.remembered[other], self.used[other]
            self.taken.discard(port)
            self.release(port)
            if self.try_port(port, node):
                return port
        return None


VERSION = 1
MOST_STATE = 64 << 20  # bytes; a node takes about sixty

KnownPorts = dict[str, dict[int, int]]
KnownNodes = dict[str, dict[int, HostPort]]


def read_state(path: Path) -> tuple[KnownPorts, KnownNodes]:
    """Read (ports, nodes), both empty without a file. Raises DocumentError."""
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
    """Replace the file atomically. Raises OSError."""
    data: dict[str, Any] = {"version": VERSION, "ports": ports, "nodes": nodes}
    new = path.with_name(path.name + ".new")
    with new.open("w") as file:
        json.dump(data, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


class StateWriter:
    """Writer of the state file. It writes `snapshot()` some time after `changed()`, one write at a time."""

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
