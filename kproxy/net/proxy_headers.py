"""PROXY headers on their way in and out: who a client is, as load balancers say, and as brokers are told.

What comes from elsewhere is a client itself. If that sends a header all the same, it is no Kafka and no TLS, and
whoever reads its first bytes says so.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from kproxy.network_config import ProxyProtocol, ProxyVersion
from kproxy.rules.match import address_test

from .driven import HostPort, Origin, host_port
from .lobby import Lobby, Wanted
from .proxy_protocol import Header, binary, line, own, parse

HEADER = Wanted("proxy_header", "PROXY header", limited=False)


class ProxyHeaders:
    """`arrived` is told of each client, with the address that the header names."""

    def __init__(self, config: ProxyProtocol, listener: str, lobby: Lobby, arrived: Any) -> None:
        self.listener, self.lobby, self.arrived = listener, lobby, arrived
        self.trusted = address_test(config.from_)

    def __call__(self, node: int | None, sock: socket.SocketType, address: Any) -> None:
        """Somebody has connected."""
        near = host_port(address)
        if not self.trusted(near[0]):
            self.arrived(node, sock, address)
            return

        def heard(header: Header) -> None:
            sock.recv(header.size)
            self.arrived(node, sock, near if header.source is None else header.source)

        self.lobby.listen(self.listener, HEADER, sock, near, parse, heard)


def greeting(version: ProxyVersion, origin: Origin | None) -> Callable[[socket.SocketType], bytes]:
    """What a new connection to a broker says first; without origin it is kproxy's own."""
    if origin is not None:
        data = line(*origin) if version == "v1" else binary(*origin)
        return lambda sock: data
    if version == "v2":
        return lambda sock: own()
    return lambda sock: line(
        address(sock.getsockname()), address(sock.getpeername())
    )  # §2.1: the connection's own ends


def address(sockaddr: Any) -> HostPort:
    """As the socket module gives it, also for Unix sockets."""
    return host_port(sockaddr) if isinstance(sockaddr, tuple) else (str(sockaddr), 0)
