"""Ports of one listener: its bootstrap port and a port for each node, and which addresses clients are given."""

from __future__ import annotations

import socket
from collections.abc import Generator, Iterable, Mapping, Sequence
from errno import EPERM
from functools import partial
from time import monotonic
from typing import Any, Literal

from structlog.typing import FilteringBoundLogger

from kproxy.config.document import ListenerConfig
from kproxy.errors import InternalError
from kproxy.net.dial.resolve import Endpoint, OwnPorts
from kproxy.net.driven import HostPort
from kproxy.net.loop.reactor import Reactor
from kproxy.net.reporting import LogThrottle
from kproxy.rules.kinds.advertise import Advertise, AdvertiseRule

from .acceptor import EXHAUSTED, Acceptor, OnAccept, listen
from .named_port import NamedPort, OnClient, Tenant
from .port_pool import BUSY, PortPool
from .preread import Preread
from .proxy_protocol import ProxyHeaders

PORTS = 1000
"""Ports for nodes when none are given: more than clusters have brokers, and room for ids that start high."""
LAST_PORT = 65535
TURN = 1024
"""Nodes that are given addresses in one turn of the loop, each port that has to be opened for one counted as `OPENING`:
a turn takes some milliseconds, and others must not wait for ten thousand ports."""
OPENING = 32
SHOWN = 10
"""Ports or nodes told one by one in the log; of more there is one line."""

ClientAddresses = dict[int, HostPort | None]
"""Node → where clients reach it; None: nowhere."""


class ListenerPorts:
    """Ports of one listener. `port` is the bootstrap port, known once `open` has bound it (the config may say 0)."""

    def __init__(
        self, config: ListenerConfig, reactor: Reactor, arrived: OnClient, preread: Preread, log: FilteringBoundLogger,
        named: NamedPort | None = None, own: OwnPorts | None = None,
    ) -> None:  # fmt: skip
        self.config, self.reactor, self.log = config, reactor, log
        self.own = own or OwnPorts()
        self.name = config.name
        self.rules: Sequence[Advertise] = ()
        self.foreign = config.transparent is not None and config.transparent.by == "tproxy"
        self.shares = named is not None and bool(named.tenants)
        if named is not None:
            named.tenants.append(Tenant(config, self.ways, arrived))
            arrived = by_name(named, self.name, arrived)
        headers = config.proxy_protocol
        self.arrived = arrived if headers is None else ProxyHeaders(headers, self.name, preread, arrived)
        self.seldom = LogThrottle(log.bind(listener=config.name))
        self.endpoints: list[Endpoint] = []
        self.port = config.bind.port
        self.by_port: dict[int, list[Acceptor]] = {}
        self.ranges: dict[tuple[int, int], PortPool] = {}
        self.opened: list[tuple[int, int | None]] = []
        """(port, node) that the log has not told of yet; `refused`: those that could not be bound, with the reason."""
        self.refused: list[tuple[int, int | None, str]] = []
        self.busy: dict[int, float] = {}
        """Fixed port of a node that could not be bound → when it may be tried again."""

    # ---- ports

    def open(self, endpoints: list[Endpoint]) -> None:
        """Bind the bootstrap port, unless another listener has it for both, and the ports of nodes with a fixed
        address. Raises InternalError."""
        self.endpoints = endpoints if self.port else endpoints[:1]  # port 0 is one port, on one address
        if self.shares:
            self.by_port[self.port] = []
        else:
            self.open_or_fail(self.port, None, "")
        advertise = self.config.advertise
        if advertise:
            fixed = fixed_ports(advertise)
            for node, address in (advertise.nodes or {}).items():
                self.open_or_fail(address.port, fixed[address.port], f" of node {node}")

    def open_or_fail(self, port: int, node: int | None, whose: str) -> None:
        """Listen on a port without which kproxy does not begin. Raises InternalError."""
        try:
            self.open_port(port, node)
        except OSError as error:
            where = f"{self.config.bind.host} port {port}{whose}"
            why = f"{error.strerror}, CAP_NET_ADMIN is needed" if error.errno == EPERM else error.strerror
            raise InternalError(f"listener {self.name} cannot bind {where}: {why}") from error

    def open_for(self, rules: Sequence[Advertise]) -> Generator[None]:
        """Bind the ports of nodes that rules fix, as far as it goes: clients may have them since before a restart.
        Others may have their turn where it yields."""
        self.rules = [
            rule
            for rule in rules
            if not isinstance(rule, AdvertiseRule) or rule.may_hold(self.name, self.config.cluster)
        ]
        for rule in self.rules:
            work = 0
            for port, node in fixed_ports(rule).items():
                if port in self.by_port:
                    continue
                if not self.bind_now(port, node):
                    break
                work += OPENING
                if work >= TURN:
                    work = 0
                    yield
        self.log_ports()

    def restore(self, first: int, last: int, remembered: Mapping[int, int]) -> Generator[None]:
        """Bind the ports that were in use before. Others may have their turn where it yields."""
        ports = self.range_of(first, last, remembered)
        for count, node in enumerate(list(ports.remembered), 1):
            try:
                ports.ensure(node)
            except OSError:
                break
            if not count * OPENING % TURN:
                yield
        self.log_ports()

    def ways(self) -> list[Advertise]:
        """Return the ways in which brokers may appear to clients here."""
        return [*([self.config.advertise] if self.config.advertise else ()), *self.rules]

    def open_port(self, port: int, node: int | None) -> None:
        """Listen on `port` for connections to `node`. Raises OSError."""
        if port in self.by_port:
            return
        arrived: OnAccept = partial(self.arrived, None) if node is None else partial(self.accepted, node)
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
        for acceptor in acceptors:
            self.own.add(acceptor.address)

    def bind(self, port: int, node: int | None) -> bool:
        """Listen on `port`; return False if that port cannot be had. Raises OSError when none can be had for now."""
        if port in self.by_port:
            return False
        try:
            self.open_port(port, node)
        except OSError as error:
            self.refused.append((port, node, error.strerror or str(error)))
            if error.errno in EXHAUSTED:  # not the port's fault: others cannot be bound either
                raise
            return False
        self.opened.append((port, node))
        return True

    def bind_fixed(self, port: int, node: int | None) -> bool:
        """Bind the port, unless that failed a short time ago. Raises OSError as `bind` does."""
        now = monotonic()
        if self.busy.get(port, 0.0) > now:
            return False
        if self.bind(port, node):
            return True
        self.busy[port] = now + BUSY
        return False

    def bind_now(self, port: int, node: int | None) -> bool:
        """Bind the port if it is free; return False if no port can be bound for now."""
        try:
            self.bind(port, node)
        except OSError:
            return False
        return True

    def log_ports(self) -> None:
        """Log what became of the ports since the last time."""
        opened, self.opened = self.opened, []
        refused, self.refused = self.refused, []
        if len(opened) > SHOWN:
            nodes = [node for _, node in opened[:SHOWN]]
            self.log.info("nodes have ports", listener=self.name, count=len(opened), nodes=nodes)
        else:
            for port, node in opened:
                self.log.info("node has a port", listener=self.name, port=port, node=node)
        if len(refused) > SHOWN:
            ports = [port for port, _, _ in refused[:SHOWN]]
            self.seldom.info("ports cannot be bound", count=len(refused), ports=ports, error=refused[0][2])
        else:
            for port, node, error in refused:
                self.seldom.info("port cannot be bound", key=port, port=port, node=node, error=error)

    def close_port(self, port: int) -> None:
        """Listen on `port` no more, and forget it."""
        for acceptor in self.by_port.pop(port, ()):
            self.own.discard(acceptor.address)
            acceptor.close()

    def close(self) -> None:
        for port in list(self.by_port):
            self.close_port(port)

    def accepted(self, node: int, sock: socket.SocketType, address: Any) -> None:
        """Take a client of a node's port, which stays that node's."""
        for ports in self.ranges.values():
            ports.use(node)
        self.arrived(node, sock, address)

    def known_ranges(self, rules: Sequence[Advertise]) -> set[tuple[int, int]]:
        """Return the (first, last) ranges of ports that this listener's config and these rules have."""
        ways = [*([self.config.advertise] if self.config.advertise else ()), *rules]
        return {self.range_for(way) for way in ways if way.by_range}

    def range_for(self, advertise: Advertise) -> tuple[int, int]:
        ports = advertise.ports
        return (ports.first, ports.last) if ports else (self.port + 1, min(self.port + PORTS, LAST_PORT))

    def ports_of(self, advertise: Advertise) -> PortPool:
        return self.range_of(*self.range_for(advertise), {})

    def range_of(self, first: int, last: int, remembered: Mapping[int, int]) -> PortPool:
        if (first, last) not in self.ranges:
            self.ranges[first, last] = PortPool(first, last, dict(remembered), self.bind, self.close_port)
        return self.ranges[first, last]

    def remembered(self) -> dict[tuple[int, int], dict[int, int]]:
        """Return node → port, by (first, last) range."""
        return {ends: dict(ports.remembered) for ends, ports in self.ranges.items()}

    @property
    def assignments(self) -> int:
        """Return how often a node was given a port, so that changes can be noticed."""
        return sum(ports.assignments for ports in self.ranges.values())

    # ---- addresses for clients

    def client_addresses(
        self, nodes: Iterable[int], advertise: Advertise, local_host: str
    ) -> Generator[None, None, ClientAddresses]:
        """Find where clients that have connected to `local_host` reach these nodes. Others may have their turn where it
        yields."""
        addresses: ClientAddresses = {}
        fixed = fixed_ports(advertise)
        work = 0
        for node in nodes:
            before = len(self.opened) + len(self.refused)
            try:
                addresses[node] = self.client_address(node, advertise, local_host, fixed)
            except OSError:
                addresses[node] = None
            work += 1 + OPENING * (len(self.opened) + len(self.refused) - before)
            if work >= TURN:
                work = 0
                yield
        self.log_ports()
        self.log_hidden_nodes([node for node, address in addresses.items() if address is None])
        return addresses

    def log_hidden_nodes(self, nodes: Sequence[int]) -> None:
        event = "node cannot be given an address, clients will not see it"
        if len(nodes) > SHOWN:
            self.seldom.warning(event, node=nodes[0], nodes=nodes[:SHOWN], count=len(nodes))
        else:
            for node in nodes:
                self.seldom.warning(event, key=node, node=node)

    def client_address(
        self, node: int, advertise: Advertise, local_host: str, fixed_nodes: Mapping[int, int | None]
    ) -> HostPort | None:
        if advertise.by_range:
            port = self.ports_of(advertise).ensure(node)
            return None if port is None else (advertise.host or local_host, port)
        address = advertise.whole_address(node)
        if address is None:
            return None
        closed = advertise.nodes is not None and address.port not in self.by_port
        if closed and not self.bind_fixed(address.port, fixed_nodes[address.port]):
            return None
        return address.host, address.port

    # ---- addresses for people

    def common_way(self) -> Advertise | Literal[False]:
        """Return how brokers appear to clients here, those apart that a rule selects by more than the listener."""
        name, cluster = self.config.name, self.config.cluster
        for rule in self.rules:
            if not isinstance(rule, AdvertiseRule) or rule.always_holds(name, cluster):
                return rule
        return self.config.advertise

    def known_addresses(self, nodes: Mapping[int, HostPort]) -> dict[int, HostPort]:
        """Return where clients reach these nodes by the common way; nothing is opened for that, so nodes that clients
        have not been told of yet are left out. `nodes`: where brokers say that they are."""
        way = self.common_way()
        if way is False:
            return dict(nodes)
        addresses = {node: self.known_address(node, way) for node in nodes}
        return {node: address for node, address in addresses.items() if address is not None}

    def known_address(self, node: int, advertise: Advertise) -> HostPort | None:
        """Return where clients reach a node, if they do already."""
        if advertise.by_range:
            ports = self.ranges.get(self.range_for(advertise))
            port = None if ports is None else ports.open.get(node)
            return None if port is None else (advertise.host or self.config.bind.host, port)
        address = advertise.whole_address(node)
        if address is None or (advertise.nodes is not None and address.port not in self.by_port):
            return None
        return address.host, address.port


def by_name(named: NamedPort, listener: str, arrived: OnClient) -> OnClient:
    """Return a handler that sends clients of the bootstrap port to the listener whose host they name; a node's port is
    one listener's already."""

    def accepted(node: int | None, sock: socket.SocketType, address: Any) -> None:
        if node is None:
            named.arrived(listener, sock, address)
        else:
            arrived(node, sock, address)

    return accepted


def fixed_ports(advertise: Advertise) -> dict[int, int | None]:
    """Return port → node; None when several nodes share it (their TLS names tell them apart)."""
    nodes_by_port: dict[int, int | None] = {}
    for node, address in (advertise.nodes or {}).items():
        nodes_by_port[address.port] = None if address.port in nodes_by_port else node
    return nodes_by_port
