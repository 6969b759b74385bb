"""PROXY headers on their way in and out: a client's address as load balancers say, and as brokers are told.

An address that is not trusted is the client itself. If that sends a header all the same, it is no Kafka and no TLS,
and whoever reads its first bytes says so.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from kproxy.config.network import ProxyProtocol, ProxyVersion
from kproxy.net.driven import AddressPair, HostPort, host_port
from kproxy.rules.match import address_test

from .preread import Preread, PrereadKind
from .proxy_protocol import Header, binary, line, own, parse

HEADER = PrereadKind("proxy_header", "PROXY header", limited=False)


class ProxyHeaders:
    """Reader of PROXY headers before a listener: `arrived` gets each client with the address that its header names."""

    def __init__(self, config: ProxyProtocol, listener: str, preread: Preread, arrived: Any) -> None:
        self.listener, self.preread, self.arrived = listener, preread, arrived
        self.trusted = address_test(config.from_)

    def __call__(self, node: int | None, sock: socket.SocketType, address: Any) -> None:
        """Take a client; read its header first if its address is trusted."""
        near = host_port(address)
        if not self.trusted(near[0]):
            self.arrived(node, sock, address)
            return

        def heard(header: Header) -> None:
            sock.recv(header.size)
            self.arrived(node, sock, near if header.source is None else header.source)

        self.preread.begin(self.listener, HEADER, sock, near, parse, heard)


def greeting(version: ProxyVersion, origin: AddressPair | None) -> Callable[[socket.SocketType], bytes]:
    """Return what gives the first bytes of a connection to a broker; without origin it is kproxy's own connection."""
    if origin is not None:
        data = line(*origin) if version == "v1" else binary(*origin)
        return lambda sock: data
    if version == "v2":
        return lambda sock: own()
    return lambda sock: line(
        address(sock.getsockname()), address(sock.getpeername())
    )  # §2.1: the connection's own ends


def address(sockaddr: Any) -> HostPort:
    """Convert an address of the socket module, of a Unix socket, too."""
    return host_port(sockaddr) if isinstance(sockaddr, tuple) else (str(sockaddr), 0)
