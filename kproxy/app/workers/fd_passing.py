"""Accepted connections on their way to a worker: a queue in the kernel, one message with a descriptor for each.

Strategy. The supervisor keeps the worker's end open as well: if a worker dies or hangs, the supervisor takes the
remaining connections back and gives them to another worker. Each connection has exactly one owner, because taking a
message is atomic. The queue is as long as the kernel's socket buffer allows, some 270 connections.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable, Iterator, Mapping

import msgspec

from kproxy.base.sockets import HAS_HAND_OVER
from kproxy.runtime.capacity import LogThrottle
from kproxy.runtime.io.reactor import IN, Reactor
from kproxy.runtime.listeners.sni_port import OnClient
from kproxy.runtime.protocols import HostPort

LONGEST = 4096
"""Bytes of a message; names of listeners have at most 100, of hosts 255."""
ROOM = socket.CMSG_LEN(4) if HAS_HAND_OVER else 0
"""For one descriptor."""
FULL = {errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS}
"""No room for now; the last one: a user may have at most as many descriptors in flight as open files."""


class HandedClient(msgspec.Struct, frozen=True, array_like=True):
    """Client that has connected to a listener, to the port of `node` or, if None, to the bootstrap port.

    `broker`: address of that node; None: not known. `ports`, `topology`: numbers of the listener's ports and of its
    topology when the client connected. `full`: max_connections is reached, so another connection must be closed for
    this client.
    """

    listener: str
    node: int | None
    family: int
    client: HostPort
    broker: HostPort | None
    ports: int = 0
    topology: int = 0
    full: bool = False


class HandOver:
    """Queue of connections to one worker, with both its ends. `far` is the worker's."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)

    def put(self, handed: HandedClient, sock: socket.socket) -> bool:
        """Hand the connection over, and close our end of it; return False if the queue is full."""
        try:
            socket.send_fds(self.near, [_encode(handed)], [sock.fileno()])
        except OSError as error:
            if error.errno not in FULL:
                raise
            return False
        sock.close()
        return True

    def take_back(self) -> Iterator[tuple[HandedClient, socket.socket]]:
        """Yield the connections that wait to be taken, oldest first."""
        while (taken := take(self.far)) is not None:
            handed, sock = taken
            if sock is not None:
                yield handed, sock

    def close(self) -> None:
        """Close both ends, and with them the waiting connections."""
        self.near.close()
        self.far.close()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(HandedClient).decode


def take(queue: socket.socket) -> tuple[HandedClient, socket.socket | None] | None:
    """Take the next connection, None if the queue is empty; without its socket at the limit of open files.

    Raises EOFError when the other end is closed.
    """
    try:
        data, given, _, _ = queue.recvmsg(LONGEST, ROOM, socket.MSG_CMSG_CLOEXEC)  # recv_fds forgets the flag
    except BlockingIOError:
        return None
    except ConnectionError:
        data = b""
    if not data:
        raise EOFError
    handed = _decode(data)
    if not given:
        return handed, None
    sock = socket.socket(handed.family, socket.SOCK_STREAM, 0, int.from_bytes(given[0][2], sys.byteorder))
    sock.setblocking(False)
    return handed, sock


class Arrivals:
    """Worker's end of the queue: `arrived` takes the clients of each listener, `met` the addresses of their nodes.

    `crowd` is called with True before a client that needs another connection to be closed, and with False after each.
    """

    def __init__(
        self, queue: socket.socket, reactor: Reactor, arrived: Mapping[str, OnClient],
        met: Callable[[str, int, HostPort], object], changed: Callable[[], object], log: LogThrottle,
        crowd: Callable[[bool], object] = bool,
    ) -> None:  # fmt: skip
        queue.setblocking(False)
        self.queue, self.reactor, self.log = queue, reactor, log
        self.arrived, self.met, self.changed, self.crowd = arrived, met, changed, crowd
        self.taken = 0
        reactor.add(queue.fileno(), self.ready, IN)

    def ready(self, mask: int) -> bool:
        """Take one connection; return False if the queue was empty."""
        try:
            taken = take(self.queue)
        except EOFError:
            self.close()
            return False
        if taken is None:
            return False
        handed, sock = taken
        self.taken += 1
        self.changed()
        if sock is None:
            self.log.warning("a connection is lost, no more files may be open", key=handed.listener)
            return True
        arrived = self.arrived.get(handed.listener)
        if arrived is None:  # the supervisor hands over only connections of listeners that the worker has
            self.log.warning("connection closed, its listener does not exist", key=handed.listener)
            sock.close()
            return True
        if handed.node is not None and handed.broker is not None:
            self.met(handed.listener, handed.node, handed.broker)
        self.crowd(handed.full)
        arrived(handed.node, sock, handed.client)
        self.crowd(False)
        return True

    def take_all(self) -> None:
        while self.queue.fileno() >= 0 and self.ready(IN):
            pass

    def close(self) -> None:
        """Stop taking connections, close the queue."""
        if self.queue.fileno() >= 0:
            self.reactor.remove(self.queue.fileno())
            self.queue.close()
