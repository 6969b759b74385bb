"""Transparent connections, diverted to kproxy by the kernel: their destinations, and how to go on from here.

REDIRECT rewrites the destination and remembers it (netfilter's SO_ORIGINAL_DST); TPROXY leaves it as it is and gives
the connection to a socket that may have addresses of others (IP_TRANSPARENT, ip(7)). kproxy's own connections carry a
mark (SO_MARK, socket(7)), by which the firewall knows that they are not to be diverted again.
"""

from __future__ import annotations

import socket
from contextlib import closing
from dataclasses import dataclass
from struct import Struct

from kproxy.base.errors import InternalError
from kproxy.runtime.config.network import Transparent

from .driven import HostPort, host_port, show

SO_ORIGINAL_DST = 80
"""linux/netfilter_ipv4.h, and the same number for IPv6 in linux/netfilter_ipv6/ip6_tables.h."""
IP_BIND_ADDRESS_NO_PORT = 24  # linux/in.h
IPV6_TRANSPARENT = 75  # linux/in6.h
SOCKADDR_IN, SOCKADDR_IN6 = Struct("!2xH4s8x"), Struct("!2xHI16sI")


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
