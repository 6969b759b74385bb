"""Listening sockets, served by the reactor."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from time import monotonic

from kproxy.base.sockets import HAS_REUSE
from kproxy.runtime.driven import HostPort, host_port
from kproxy.runtime.io.reactor import IN, Reactor
from kproxy.runtime.io.socket_io import keep_alive
from kproxy.runtime.reporting import LogThrottle
from kproxy.runtime.transparent import pretend
from kproxy.runtime.upstreams.resolve import Endpoint

BACKLOG = 4096
"""Connections that the kernel completes while we are busy: its own limit (somaxconn). Beyond them a client takes itself
to be connected, and its kernel repeats its first bytes at longer and longer intervals, half a minute in the end."""
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
PAUSE = 0.1
"""Seconds without accepting when descriptors or memory are used up; connections wait in the backlog meanwhile."""

STREAM = int(socket.SOCK_STREAM)
OnAccept = Callable[[socket.SocketType, HostPort], object]


def listen(endpoint: Endpoint, transparent: bool = False) -> socket.socket:
    """Open a listening socket, also for connections to addresses of others if `transparent`. Raises OSError.

    Accepted sockets inherit its options, which saves a call for each.
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
    """Listening socket that gives each new connection, non-blocking, to `arrived(socket, address)`. `node`: the one
    that its port stands for, if it is one only."""

    def __init__(
        self, reactor: Reactor, sock: socket.socket, arrived: OnAccept, log: LogThrottle, node: int | None = None
    ) -> None:
        self.reactor, self.sock, self.arrived, self.log, self.node = reactor, sock, arrived, log, node
        self.fd, self.family = sock.fileno(), int(sock.family)
        self.address = host_port(sock.getsockname())
        self.closed = False
        reactor.add(self.fd, self.ready, IN)

    def ready(self, mask: int) -> None:
        try:  # `accept` is this and a socket of a class that takes longer to make than the kernel takes for all of it
            fd, address = self.sock._accept()  # type: ignore[attr-defined]
        except OSError as error:  # mostly a client that is gone again
            if error.errno in EXHAUSTED:
                self.rest(error)
            return
        sock = socket.SocketType(self.family, STREAM, 0, fd)
        sock.setblocking(False)
        self.arrived(sock, address)

    def rest(self, error: OSError) -> None:
        """Accept nothing for `PAUSE` seconds: descriptors or memory are used up."""
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
