"""Calls of a trio task on a non-blocking socket, and the keep-alive of sockets.

The kernel's own times are two hours until it asks a silent peer and eleven minutes until it gives up, for which a dead
client would keep its place and its broker's. What listening sockets are told is inherited by those that they accept;
those to brokers are told when they are about a second old (timeouts.py): four system calls that a short connection does
without.
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
"""Bytes of one read: Python makes room for all that is asked for."""
IDLE = 60
"""Seconds of silence before the first question; less than the five minutes after which most firewalls forget."""
INTERVAL = 10
"""Seconds between questions."""
PROBES = 6
"""Questions without an answer after which the connection is broken: two minutes after the last word."""


async def attempt(sock: socket.SocketType, act: Callable[[], Any]) -> Any:
    """Repeat `act` on a non-blocking socket until it neither blocks nor wants TLS bytes first; return its result.

    For questions far shorter than an empty socket buffer: what blocks is always reading.
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
    """Read `size` bytes. Raises OSError, and EOFError when the other end closes before that."""
    parts = bytearray()
    while len(parts) < size:
        left = min(size - len(parts), MOST_AT_ONCE)
        more: bytes = await attempt(sock, lambda left=left: sock.recv(left))  # type: ignore[misc]
        if not more:
            raise EOFError(f"closed after {len(parts)} of {size} bytes")
        parts += more
    return bytes(parts)


def keep_alive(sock: socket.SocketType, idle: int | None = None, interval: int | None = None) -> None:
    """Have the kernel ask whether the peer is there; a socket of this machine needs no such thing."""
    if sock.family == UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, KEEPIDLE, IDLE if idle is None else idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL if interval is None else interval)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)


CLOSE_WAIT = 8
"""State of a TCP socket after a FIN of the other end (include/net/tcp_states.h)."""


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
    """Return True if the other end has closed, whether or not all before that was read. False if it is not known."""
    if sock is None or not HAS_TCP_STATE:
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == CLOSE_WAIT
    except OSError:
        return False


SO_ORIGINAL_DST = 80
"""linux/netfilter_ipv4.h, and the same number for IPv6 in linux/netfilter_ipv6/ip6_tables.h."""
IP_BIND_ADDRESS_NO_PORT = 24  # linux/in.h
IPV6_TRANSPARENT = 75  # linux/in6.h
SOCKADDR_IN, SOCKADDR_IN6 = Struct("!2xH4s8x"), Struct("!2xHI16sI")


# Transparent connections, diverted to kproxy by the kernel: their destinations, and how to go on from here.
#
# REDIRECT rewrites the destination and remembers it (netfilter's SO_ORIGINAL_DST); TPROXY leaves it as it is and gives
# the connection to a socket that may have addresses of others (IP_TRANSPARENT, ip(7)). kproxy's own connections carry a
# mark (SO_MARK, socket(7)), by which the firewall knows that they are not to be diverted again.
@dataclass(frozen=True, slots=True)
class Route:
    """Destination of a diverted connection, and the address to come from, if not kproxy's own."""

    destination: HostPort
    source: str | None = None


def destination(sock: socket.SocketType, config: Transparent) -> HostPort:
    """Return the address that the client wanted to reach. Raises OSError when the kernel does not know."""
    if config.by == "tproxy":
        return host_port(sock.getsockname())
    if ":" in host_port(sock.getpeername())[0]:
        port, _, address, _ = SOCKADDR_IN6.unpack(sock.getsockopt(socket.IPPROTO_IPV6, SO_ORIGINAL_DST, 28))
        return host_port((socket.inet_ntop(socket.AF_INET6, address), port))
    port, address = SOCKADDR_IN.unpack(sock.getsockopt(socket.IPPROTO_IP, SO_ORIGINAL_DST, 16))
    return socket.inet_ntop(socket.AF_INET, address), port


def why_not(sock: socket.SocketType, config: Transparent, own_ports: set[int]) -> str | None:
    """Return a reason not to connect to the destination, else None; `own_ports` are those that kproxy listens on."""
    try:
        host, port = destination(sock, config)
    except OSError:
        host, port = host_port(sock.getsockname())  # nothing was diverted: it wanted to come here
    if port in own_ports and is_own(host):
        return f"the destination {show((host, port))} is kproxy itself, going there would never end"
    return None


def is_own(host: str) -> bool:
    """Return True if this machine has the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as trial:
        try:
            trial.bind((host, 0))
        except OSError:
            return False
    return True


def pretend(sock: socket.SocketType, family: int) -> None:
    """Let the socket have addresses that are not this machine's. Raises OSError."""
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, IPV6_TRANSPARENT, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TRANSPARENT, 1)


def come_from(sock: socket.SocketType, family: int, source: str) -> None:
    """Connect from that address, by any port. Raises OSError."""
    pretend(sock, family)
    sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    sock.bind((f"::ffff:{source}" if family == socket.AF_INET6 and ":" not in source else source, 0))


def check_mark(cluster: str, mark: int) -> None:
    """Check that connections to brokers can be marked so. Raises InternalError when they cannot."""
    with closing(socket.socket()) as trial:
        try:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            text = f"connections to cluster {cluster} cannot be marked with {mark}: {why}; CAP_NET_ADMIN is needed"
            raise InternalError(f"{text}, or mark: 0 and a firewall that knows kproxy by its user") from error
