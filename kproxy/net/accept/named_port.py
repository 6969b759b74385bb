"""TLS port whose clients say by the name of a host which listener they want: several clusters behind one port.

The name is read before the handshake, so that certificates, who may come in, and all else are those of the listener.
A client that asks for a name which no listener has gets TLS's own alert for that (RFC 6066 §3).
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from kproxy.config.document import ListenerConfig
from kproxy.config.network import closeness, plain_name
from kproxy.net.driven import HostPort, host_port
from kproxy.net.socket.tls import HANDSHAKE, SentHeader, stranger
from kproxy.rules.kinds.advertise import Advertise

from .client_hello import LONGEST, ClientHello, parse
from .preread import Preread, PrereadKind, Refusal

HELLO = PrereadKind("tls", "TLS ClientHello")
UNRECOGNIZED_NAME = bytes.fromhex("1503030002 02 70")
"""RFC 8446 §5.1 and §6: a record of type alert with a fatal one, 112."""

OnClient = Callable[[int | None, socket.SocketType, Any], object]
"""(node or None for the bootstrap port, the client's socket, its address as the socket module gives it)"""


@dataclass(frozen=True)
class Tenant:
    """Listener behind the port. `ways`: how brokers may appear to its clients."""

    config: ListenerConfig
    ways: Callable[[], list[Advertise]]
    arrived: OnClient

    def closeness(self, name: str) -> int:
        """Return how closely the listener's names describe `name`; 0: not at all. A broker's own name is before any
        wildcard."""
        if any(way.sni_node(name) is not None for way in self.ways()):
            return 2
        return max((closeness(pattern, name) for pattern in self.config.hosts), default=0)


class NamedPort:
    """Port of several listeners, its `tenants`."""

    def __init__(self, preread: Preread) -> None:
        self.preread = preread
        self.tenants: list[Tenant] = []

    def arrived(self, listener: str, sock: socket.SocketType, address: Any) -> None:
        """Take a client of the port; `listener` is the one that has bound it."""
        client = host_port(address)
        self.preread.begin(listener, HELLO, sock, client, first_words, partial(self.heard, listener, sock, client))

    def heard(self, listener: str, sock: socket.SocketType, client: HostPort, hello: ClientHello) -> None:
        """Give the client to the listener whose host its ClientHello names, or refuse it."""
        tenant = None if hello.name is None else self.serving(plain_name(hello.name))
        if tenant is not None:
            tenant.arrived(None, sock, client)
            return
        with suppress(OSError):
            sock.recv(LONGEST)  # closing over unread bytes would be a reset, and the alert would be lost
            sock.send(UNRECOGNIZED_NAME)
        demand = "names no host" if hello.name is None else f"asks for {hello.name!r}, which nobody serves here,"
        self.preread.refuse(listener, sock, client, "sni", f"client {demand} in its TLS handshake")

    def serving(self, name: str) -> Tenant | None:
        """Return the listener that describes the name most closely; None: none does."""
        closest = max(self.tenants, key=lambda tenant: tenant.closeness(name))
        return closest if closest.closeness(name) else None


def first_words(data: bytes) -> ClientHello | None:
    """Parse a ClientHello. Raises BadHello, and Refusal for first bytes that are no TLS."""
    if data[0] != HANDSHAKE:
        error = stranger(data[:4])
        raise Refusal(str(error), "proxy_header" if isinstance(error, SentHeader) else "tls")
    return parse(data)
