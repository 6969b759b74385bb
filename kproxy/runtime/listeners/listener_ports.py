"""Ports of one listener: its bootstrap port and a port for each node, and which addresses clients are given."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Literal

from structlog.typing import FilteringBoundLogger

from kproxy.rules.kinds.advertise import Advertise, AdvertiseRule
from kproxy.runtime.capacity import LogThrottle
from kproxy.runtime.config.network import ListenerConfig
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.sniff import Preread, ProxyHeaders
from kproxy.runtime.protocols import HostPort
from kproxy.runtime.upstreams.resolve import Endpoint, OwnPorts

from .port_pool import BUSY, EXHAUSTED, Acceptor, OnAccept, PortPool, listen
from .sni_port import NamedPort, OnClient, Tenant

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
    """Ports of one listener. `port` is the bootstrap port, known once it is bound (the config may say 0).

    Sockets are opened first (`stage`), and accept nobody before `begin`: what connects meanwhile waits in the kernel.
    `use` says who gets those who connect, at the beginning and whenever the listener's config changes. `number` tells
    them from all other ports that this process has had, also of the same listener.
    """

    numbers = itertools.count(1)

    def __init__(
        self, config: ListenerConfig, reactor: Reactor, preread: Preread, log: FilteringBoundLogger,
        own: OwnPorts | None = None,
    ) -> None:  # fmt: skip
        self.config, self.reactor, self.preread, self.log = config, reactor, preread, log
        self.own = own or OwnPorts()
        self.name, self.number = config.name, next(self.numbers)
        self.rules: Sequence[Advertise] = ()
        self.foreign = is_foreign(config)
        self.arrived: OnClient = turn_away
        self.seldom = LogThrottle(log.bind(listener=config.name))
        self.endpoints: list[Endpoint] = []
        self.port = config.bind.port
        self.staged: dict[int, tuple[int | None, list[socket.socket]]] = {}
        """Port that is bound for a config that is made ready, and not yet served → its node, its sockets."""
        self.promised: dict[int, bool] = {}
        """Port that is open and that such a config needs, here or elsewhere → True if it was to be closed meanwhile."""
        self.former: list[Advertise] = []
        """Ways of earlier configs, whose ports stay open while there are connections that know of them."""
        self.left = False
        """True once the listener is gone, or somewhere else: it opens no more ports, and knows those that it had."""
        self.by_port: dict[int, list[Acceptor]] = {}
        self.ranges: dict[tuple[int, int], PortPool] = {}
        self.opened: list[tuple[int, int | None]] = []
        """(port, node) that the log has not told of yet; `refused`: those that could not be bound, with the reason."""
        self.refused: list[tuple[int, int | None, str]] = []
        self.busy: dict[int, float] = {}
        """Fixed port of a node that could not be bound → when it may be tried again."""

    # ---- ports

    def use(self, config: ListenerConfig, arrived: OnClient, named: NamedPort | None) -> None:
        """Give those who connect from now on to `arrived`, as this config of the listener has it. `named`: its port if
        clients name a host there."""
        before = self.config.advertise
        if before and before != config.advertise and before not in self.former:
            self.former.append(before)
        self.config = config
        if named is not None:
            named.tenants.append(Tenant(config, self.ways, arrived))
            arrived = by_name(named, self.name, arrived)
        headers = config.proxy_protocol
        self.arrived = arrived if headers is None else ProxyHeaders(headers, self.name, self.preread, arrived)
        fixed = fixed_ports(config.advertise) if config.advertise else {}
        for port, acceptors in self.by_port.items():
            if port in fixed and port != self.port:
                self.lose(port)
            for acceptor in acceptors:
                if port == self.port:
                    acceptor.arrived = partial(self.arrived, None)
                elif port in fixed or acceptor.node is None:
                    acceptor.node = fixed.get(port)
                    acceptor.arrived = self.handler(acceptor.node)

    def handler(self, node: int | None) -> OnAccept:
        """Return what takes the clients of a port of this node, or of any if it is None."""
        return partial(self.arrived, None) if node is None else partial(self.accepted, node)

    def resolved(self, endpoints: list[Endpoint]) -> None:
        """Note the addresses of its `bind`."""
        self.endpoints = endpoints if self.port else endpoints[:1]  # port 0 is one port, on one address

    def stage(self, port: int, node: int | None) -> None:
        """Bind a port, to be served from `begin` on; one that is open stays so until then. Raises OSError."""
        if self.by_port.get(port):
            self.promise(port)
        if port in self.staged or port in self.promised:
            return
        sockets: list[socket.socket] = []
        try:
            for family, sockaddr in self.endpoints:
                sockets.append(listen((family, (sockaddr[0], port, *sockaddr[2:])), self.foreign))
                if not port:
                    self.port = port = sockets[0].getsockname()[1]
        except OSError:
            close_all(sockets)
            raise
        self.staged[port] = node, sockets

    def promise(self, port: int) -> None:
        """Keep a port open until `begin`, `give` or `unstage`, whatever becomes of it meanwhile."""
        self.promised.setdefault(port, False)

    def begin(self) -> None:
        """Serve the ports that are bound for the config that is in force now."""
        self.promised.clear()
        for port in list(self.staged):
            self.serve(port)

    def serve(self, port: int) -> None:
        node, sockets = self.staged.pop(port)
        handler = self.handler(node)
        self.by_port[port] = acceptors = [Acceptor(self.reactor, sock, handler, self.seldom, node) for sock in sockets]
        for acceptor in acceptors:
            self.own.add(acceptor.address)

    def unstage(self) -> None:
        """Close the ports that are bound and not yet served, and those that only a promise has kept open."""
        staged, self.staged = self.staged, {}
        for _, sockets in staged.values():
            close_all(sockets)
        promised, self.promised = self.promised, {}
        for port, is_over in promised.items():
            if is_over:
                self.close_port(port)

    def give(self, port: int) -> list[Acceptor]:
        """Give a port to another listener: forget it, and leave it open."""
        self.lose(port)
        self.promised.pop(port, None)
        return self.by_port.pop(port)

    def take(self, port: int, node: int | None, acceptors: list[Acceptor]) -> None:
        self.by_port[port] = acceptors
        for acceptor in acceptors:
            acceptor.log, acceptor.node, acceptor.arrived = self.seldom, node, self.handler(node)

    def lose(self, port: int) -> None:
        for ports in self.ranges.values():
            ports.lose(port)

    def needs(self, port: int, config: ListenerConfig) -> str:
        """Return what this listener needs a port for under this config of it; empty: for nothing."""
        if port == self.port:
            return f"listener {self.name}"
        ways = [*([config.advertise] if config.advertise else ()), *self.rules]
        if any(port in fixed_ports(way) for way in ways):
            return f"a node of listener {self.name}"
        for ends in {self.range_for(way) for way in ways if way.by_range} & self.ranges.keys():
            for node, its in self.ranges[ends].open.items():
                if its == port:
                    return f"node {node} of listener {self.name}"
        return ""

    def leave(self) -> None:
        """Close all ports for good, because the listener is gone."""
        self.left = True
        self.close()

    def prune(self) -> None:
        """Close the ports that only earlier configs had."""
        former, self.former = self.former, []
        ranges, kept = self.known_ranges(self.rules), {self.port}
        for way in self.ways():
            kept.update(fixed_ports(way))
        for way in former:
            ends = self.range_for(way) if way.by_range else None
            gone = set(fixed_ports(way))
            if ends is not None and ends not in ranges and ends in self.ranges:
                gone.update(self.ranges.pop(ends).open.values())
            for ports in self.ranges.values():
                kept.update(ports.open.values())
            for port in gone - kept:
                self.close_port(port)

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

    def bind(self, port: int, node: int | None) -> bool:
        """Listen on `port`; return False if that port cannot be had. Raises OSError when none can be had for now."""
        if port in self.by_port or port in self.staged or self.left:  # it may be bound for another config's node
            return False
        try:
            self.stage(port, node)
            self.serve(port)
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
        """Listen on `port` no more, and forget it; one that is promised goes when the promise does."""
        if port in self.promised:
            self.promised[port] = True
            return
        for acceptor in self.by_port.pop(port, ()):
            self.own.discard(acceptor.address)
            acceptor.close()

    def close(self) -> None:
        self.unstage()
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
        if self.left:
            return self.last_addresses(nodes, advertise, local_host)
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

    def last_addresses(self, nodes: Iterable[int], advertise: Advertise, local_host: str) -> ClientAddresses:
        """Return where clients of a listener that is gone were told that these nodes are; None for all others."""
        addresses: ClientAddresses = {}
        for node in nodes:
            if advertise.by_range:
                ports = self.ranges.get(self.range_for(advertise))
                port = None if ports is None else ports.open.get(node)
                addresses[node] = None if port is None else (advertise.host or local_host, port)
            else:
                address = advertise.whole_address(node)
                addresses[node] = None if address is None else (address.host, address.port)
        return addresses

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


def is_foreign(config: ListenerConfig) -> bool:
    """Return True if a listener's sockets take connections to addresses of others."""
    return config.transparent is not None and config.transparent.by == "tproxy"


def turn_away(node: int | None, sock: socket.SocketType, address: Any) -> None:
    """Close the connection of a client that has come before anybody is there to take it."""
    sock.close()


def close_all(sockets: Iterable[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def fixed_ports(advertise: Advertise) -> dict[int, int | None]:
    """Return port → node; None when several nodes share it (their TLS names tell them apart)."""
    nodes_by_port: dict[int, int | None] = {}
    for node, address in (advertise.nodes or {}).items():
        nodes_by_port[address.port] = None if address.port in nodes_by_port else node
    return nodes_by_port
