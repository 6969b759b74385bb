"""The ports of one listener: its bootstrap port and a port for each node, and which addresses clients are given."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from errno import EPERM
from functools import partial
from typing import Any

from structlog.typing import FilteringBoundLogger

from kproxy.config import ListenerConfig
from kproxy.errors import WeDidWrong
from kproxy.rules.kinds.advertise import Advertise, AdvertiseRule

from .acceptor import Acceptor, listen
from .driven import HostPort
from .lobby import Lobby
from .named_port import NamedPort, Tenant
from .ports import NodePorts
from .proxy_headers import ProxyHeaders
from .reactor import Reactor
from .resolve import Endpoint
from .throttle import Throttle

PORTS = 1000
"""Ports for nodes when none are given: more than clusters have brokers, and room for ids that start high."""
LAST_PORT = 65535

Arrived = Callable[[int | None, socket.SocketType, Any], object]
"""(node or None for the bootstrap port, the client's socket, its address as the socket module gives it)"""
Arriving = Callable[[socket.SocketType, Any], object]
Places = dict[int, HostPort | None]
"""Node → where clients reach it; None: nowhere."""


class Doors:
    """`port` is the bootstrap port, known once `open` has bound it (the config may say 0)."""

    def __init__(
        self, config: ListenerConfig, reactor: Reactor, arrived: Arrived, lobby: Lobby, log: FilteringBoundLogger,
        named: NamedPort | None = None,
    ) -> None:  # fmt: skip
        self.config, self.reactor, self.log = config, reactor, log
        self.name = config.name
        self.rules: Sequence[Advertise] = ()
        self.foreign = config.transparent is not None and config.transparent.by == "tproxy"
        self.shares = named is not None and bool(named.tenants)
        if named is not None:
            named.tenants.append(Tenant(config, self.ways, arrived))
            arrived = by_name(named, self.name, arrived)
        headers = config.proxy_protocol
        self.arrived = arrived if headers is None else ProxyHeaders(headers, self.name, lobby, arrived)
        self.seldom = Throttle(log.bind(listener=config.name))
        self.endpoints: list[Endpoint] = []
        self.port = config.bind.port
        self.by_port: dict[int, list[Acceptor]] = {}
        self.ranges: dict[tuple[int, int], NodePorts] = {}

    # ---- ports

    def open(self, endpoints: list[Endpoint]) -> None:
        """Bind the bootstrap port, unless another listener has it for both, and the ports of nodes with a fixed
        address. Raises WeDidWrong."""
        self.endpoints = endpoints if self.port else endpoints[:1]  # port 0 is one port, on one address
        try:
            if self.shares:
                self.by_port[self.port] = []
            else:
                self.unlock(self.port, None)
            advertise = self.config.advertise
            if advertise:
                for address in (advertise.nodes or {}).values():
                    self.unlock(address.port, fixed_node(advertise, address.port))
        except OSError as error:
            where = f"{self.config.bind.host} port {self.port}"
            why = f"{error.strerror}, CAP_NET_ADMIN is needed" if error.errno == EPERM else error.strerror
            raise WeDidWrong(f"listener {self.name} cannot bind {where} or a port of its nodes: {why}") from error

    def open_for(self, rules: Sequence[Advertise]) -> None:
        """Bind the ports of nodes that rules fix, as far as it goes: clients may have them since before a restart."""
        self.rules = [
            rule
            for rule in rules
            if not isinstance(rule, AdvertiseRule) or rule.may_hold(self.name, self.config.cluster)
        ]
        for rule in self.rules:
            for address in (rule.nodes or {}).values():
                self.bind(address.port, fixed_node(rule, address.port))

    def ways(self) -> list[Advertise]:
        """How brokers may appear to clients here."""
        return [*([self.config.advertise] if self.config.advertise else ()), *self.rules]

    def unlock(self, port: int, node: int | None) -> None:
        """Listen on `port` for connections to `node`. Raises OSError."""
        if port in self.by_port:
            return
        arrived: Arriving = partial(self.arrived, None) if node is None else partial(self.came, node)
        acceptors: list[Acceptor] = []
        try:
            for family, sockaddr in self.endpoints:
                sock = listen((family, (sockaddr[0], port, *sockaddr[2:])), self.foreign)
                acceptors.append(Acceptor(self.reactor, sock, arrived, self.seldom))
                if not port:
                    self.port = port = sock.getsockname()[1]
        except OSError:
            for acceptor in acceptors:
                acceptor.close()
            raise
        self.by_port[port] = acceptors

    def bind(self, port: int, node: int | None) -> bool:
        if port in self.by_port:
            return False
        try:
            self.unlock(port, node)
        except OSError as error:
            self.log.info("port cannot be bound", listener=self.name, port=port, node=node, error=error.strerror)
            return False
        self.log.info("node has a port", listener=self.name, port=port, node=node)
        return True

    def lock(self, port: int) -> None:
        """Listen there no more."""
        for acceptor in self.by_port.pop(port, ()):
            acceptor.close()

    def close(self) -> None:
        for port in list(self.by_port):
            self.lock(port)

    def came(self, node: int, sock: socket.SocketType, address: Any) -> None:
        """A client has connected to a node's port: it stays that node's."""
        for ports in self.ranges.values():
            ports.use(node)
        self.arrived(node, sock, address)

    def known_ranges(self, rules: Sequence[Advertise]) -> set[tuple[int, int]]:
        """The ranges of ports that this listener's config and these rules have."""
        ways = [*([self.config.advertise] if self.config.advertise else ()), *rules]
        return {self.range_for(way) for way in ways if way.nodes is None and way.sni is None}

    def range_for(self, advertise: Advertise) -> tuple[int, int]:
        ports = advertise.ports
        return (ports.first, ports.last) if ports else (self.port + 1, min(self.port + PORTS, LAST_PORT))

    def ports_of(self, advertise: Advertise) -> NodePorts:
        return self.range_of(*self.range_for(advertise), {})

    def range_of(self, first: int, last: int, remembered: Mapping[int, int]) -> NodePorts:
        if (first, last) not in self.ranges:
            self.ranges[first, last] = NodePorts(first, last, dict(remembered), self.bind, self.lock)
        return self.ranges[first, last]

    def remembered(self) -> dict[tuple[int, int], dict[int, int]]:
        """Node → port, by range."""
        return {ends: dict(ports.remembered) for ends, ports in self.ranges.items()}

    def of_nodes(self) -> dict[int, int]:
        """Node → port that is open for it, over all ranges."""
        return {node: port for ports in self.ranges.values() for node, port in ports.open.items()}

    # ---- addresses for clients

    def places(self, nodes: Mapping[int, HostPort], advertise: Advertise, local_host: str) -> Places:
        """Where clients that have connected to `local_host` reach these nodes."""
        found = {node: self.place(node, advertise, local_host) for node in nodes}
        for node, place in found.items():
            if place is None:
                self.seldom.warning("node cannot be given an address, clients will not see it", key=node, node=node)
        return found

    def place(self, node: int, advertise: Advertise, local_host: str) -> HostPort | None:
        if advertise.sni is not None:
            address = advertise.sni_address(node) if node >= 0 else None
            return (address.host, address.port) if address else None
        if advertise.nodes is not None:
            fixed = advertise.nodes.get(node)
            if fixed is None:
                return None
            if fixed.port not in self.by_port and not self.bind(fixed.port, fixed_node(advertise, fixed.port)):
                return None
            return fixed.host, fixed.port
        port = self.ports_of(advertise).ensure(node)
        return None if port is None else (advertise.host or local_host, port)


def by_name(named: NamedPort, listener: str, arrived: Arrived) -> Arrived:
    """Who comes to the bootstrap port says which listener of several it wants; to a node's port, that is told by it."""

    def came(node: int | None, sock: socket.SocketType, address: Any) -> None:
        if node is None:
            named.arrived(listener, sock, address)
        else:
            arrived(node, sock, address)

    return came


def fixed_node(advertise: Advertise, port: int) -> int | None:
    """The node that a fixed port stands for; None when several share it (their TLS names tell them apart)."""
    nodes = [node for node, address in (advertise.nodes or {}).items() if address.port == port]
    return nodes[0] if len(nodes) == 1 else None
