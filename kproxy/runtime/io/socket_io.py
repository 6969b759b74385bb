"""Socket calls for trio tasks on non-blocking sockets, and TCP keep-alive.

By default the kernel probes a silent peer after two hours, and gives up eleven minutes later. Until then a dead client
would occupy its place and its broker connection. Accepted sockets inherit the options of the listening socket. Sockets
to brokers get them at an age of about a second (`timeouts.py`), which saves four system calls for short connections.
"""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from struct import Struct
from typing import Any

import trio

from kproxy.base.errors import InternalError
from kproxy.base.sockets import HAS_TCP_STATE, KEEPIDLE, UNIX
from kproxy.runtime.config.network import Transparent
from kproxy.runtime.protocols import HostPort, host_port, show

MOST_AT_ONCE = 1 << 16
"""Maximum bytes of one read: Python allocates the requested size."""
IDLE = 60
"""Seconds of silence before the first probe; most firewalls forget a connection after five minutes."""
INTERVAL = 10  # seconds between probes
PROBES = 6
"""Unanswered probes before the connection fails: two minutes after the last bytes."""


async def attempt(sock: socket.SocketType, act: Callable[[], Any]) -> Any:
    """Repeat `act` on a non-blocking socket until it neither blocks nor needs TLS bytes first; return its result.

    For requests far smaller than an empty socket buffer: only reads block.
    """
    while True:
        try:
            return act()
        except (BlockingIOError, ssl.SSLWantReadError):
            await trio.lowlevel.wait_readable(sock)
        except ssl.SSLWantWriteError:
            await trio.lowlevel.wait_writable(sock)


async def send(sock: socket.SocketType, data: bytes) -> None:
    """Send all bytes of `data`. Raises OSError."""
    while data:
        done: int = await attempt(sock, lambda data=data: sock.send(data))  # type: ignore[misc]
        data = data[done:]


async def exactly(sock: socket.SocketType, size: int) -> bytes:
    """Read `size` bytes. Raises OSError, or EOFError if the other end closes before that."""
    parts = bytearray()
    while len(parts) < size:
        left = min(size - len(parts), MOST_AT_ONCE)
        more: bytes = await attempt(sock, lambda left=left: sock.recv(left))  # type: ignore[misc]
        if not more:
            raise EOFError(f"closed after {len(parts)} of {size} bytes")
        parts += more
    return bytes(parts)


def keep_alive(sock: socket.SocketType, idle: int | None = None, interval: int | None = None) -> None:
    """Enable TCP keep-alive. Unix sockets do not need it."""
    if sock.family == UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, KEEPIDLE, IDLE if idle is None else idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL if interval is None else interval)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)


CLOSE_WAIT = 8
"""TCP state after a FIN of the other end (include/net/tcp_states.h)."""


TCP_STATE = Struct("=2xB21xI")  # of Linux's TCP_INFO: retransmits, unacknowledged segments
LOST_RETRANSMITS = 5  # of the same bytes, without an ACK: 6 s in a local network


def is_lost(sock: Any) -> bool:
    """Return True if the other end has not acknowledged retransmitted bytes; False if it only does not read them.

    The kernel ends such a connection after 15 minutes. With TCP_USER_TIMEOUT it would also end those of slow readers.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_STATE.size)
    except OSError:
        return False
    if len(info) < TCP_STATE.size:
        return False
    retransmits, unacked = TCP_STATE.unpack(info)
    return bool(unacked) and retransmits >= LOST_RETRANSMITS


def has_sent_fin(sock: socket.SocketType | None) -> bool:
    """Return True if the other end has closed, even if data before that is unread. False if it is unknown."""
    if sock is None or not HAS_TCP_STATE:
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == CLOSE_WAIT
    except OSError:
        return False


SO_ORIGINAL_DST = 80
"""linux/netfilter_ipv4.h; the number for IPv6 in linux/netfilter_ipv6/ip6_tables.h is the same."""
IP_BIND_ADDRESS_NO_PORT = 24  # linux/in.h
IPV6_TRANSPARENT = 75  # linux/in6.h
SOCKADDR_IN, SOCKADDR_IN6 = Struct("!2xH4s8x"), Struct("!2xHI16sI")


# Transparent connections: the kernel diverts them to kproxy, which finds their original destinations.
#
# REDIRECT rewrites the destination, and netfilter stores the original one (SO_ORIGINAL_DST). TPROXY keeps the
# destination. It passes the connection to a socket that may bind foreign addresses (IP_TRANSPARENT, ip(7)). kproxy's
# own connections have a mark (SO_MARK, socket(7)), so the firewall does not divert them again.
@dataclass(frozen=True, slots=True)
class Route:
    """Destination of a diverted connection. `source`: address to connect from; None: kproxy's own."""

    destination: HostPort
    source: str | None = None


def destination(sock: socket.SocketType, config: Transparent) -> HostPort:
    """Return the address that the client connected to. Raises OSError if the kernel does not know it."""
    if config.by == "tproxy":
        return host_port(sock.getsockname())
    if ":" in host_port(sock.getpeername())[0]:
        port, _, address, _ = SOCKADDR_IN6.unpack(sock.getsockopt(socket.IPPROTO_IPV6, SO_ORIGINAL_DST, 28))
        return host_port((socket.inet_ntop(socket.AF_INET6, address), port))
    port, address = SOCKADDR_IN.unpack(sock.getsockopt(socket.IPPROTO_IP, SO_ORIGINAL_DST, 16))
    return socket.inet_ntop(socket.AF_INET, address), port


def why_not(sock: socket.SocketType, config: Transparent, own_ports: set[int]) -> str | None:
    """Return a reason not to connect to the destination, or None. `own_ports`: ports that kproxy listens on."""
    try:
        host, port = destination(sock, config)
    except OSError:
        host, port = host_port(sock.getsockname())  # not diverted: the client connected to kproxy itself
    if port in own_ports and is_own(host):
        return f"the destination {show((host, port))} is kproxy itself: connections would loop"
    return None


def is_own(host: str) -> bool:
    """Return True if the address belongs to this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as trial:
        try:
            trial.bind((host, 0))
        except OSError:
            return False
    return True


def pretend(sock: socket.SocketType, family: int) -> None:
    """Allow the socket to bind addresses of other machines. Raises OSError."""
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, IPV6_TRANSPARENT, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TRANSPARENT, 1)


def come_from(sock: socket.SocketType, family: int, source: str) -> None:
    """Bind the socket to `source`, with any port. Raises OSError."""
    pretend(sock, family)
    sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    sock.bind((f"::ffff:{source}" if family == socket.AF_INET6 and ":" not in source else source, 0))


def check_mark(cluster: str, mark: int) -> None:
    """Check that connections to brokers can have this mark. Raises InternalError if not."""
    with closing(socket.socket()) as trial:
        try:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            text = f"connections to cluster {cluster} cannot be marked with {mark}: {why}; CAP_NET_ADMIN is needed"
            raise InternalError(f"{text}, or mark: 0 and a firewall that knows kproxy by its user") from error
