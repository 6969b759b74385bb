"""Ports of one listener: its bootstrap port, one port per node, and the addresses for clients."""

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
"""Default number of node ports: more than clusters have brokers, with room for ids that start high."""
LAST_PORT = 65535
TURN = 1024
"""Nodes that receive addresses in one turn of the loop. Each port to open counts as `OPENING`. A turn takes some
milliseconds, and others must not wait for ten thousand ports."""
OPENING = 32
SHOWN = 10  # ports or nodes that are logged one by one; more are one line

ClientAddresses = dict[int, HostPort | None]
"""Node → its address for clients; None: no address."""


class ListenerPorts:
    """Ports of one listener. `port` is the bootstrap port, known once it is bound (the config may contain 0).

    `stage` opens sockets, which accept clients from `begin` on. Earlier connections wait in the kernel. `use` sets the
    callback for clients, at the start and at each config change of the listener. `number` is unique among all ports
    objects of this process, including earlier ones of the same listener.
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
        """Port bound for a prepared config, and not yet served → its node, its sockets."""
        self.promised: dict[int, bool] = {}
        """Open port that a prepared config needs, here or elsewhere → True if its close is deferred."""
        self.former: list[Advertise] = []
        """Advertise settings of earlier configs. Their ports stay open as long as connections use them."""
        self.left = False
        """True once the listener is removed or has moved. It opens no more ports, but knows its former ones."""
        self.by_port: dict[int, list[Acceptor]] = {}
        self.ranges: dict[tuple[int, int], PortPool] = {}
        self.opened: list[tuple[int, int | None]] = []
        """(port, node) not logged yet. `refused`: those that could not be bound, with the reason."""
        self.refused: list[tuple[int, int | None, str]] = []
        self.busy: dict[int, float] = {}
        """Fixed port that could not be bound → time of the next attempt."""

    # ---- ports

    def use(self, config: ListenerConfig, arrived: OnClient, named: NamedPort | None) -> None:
        """Pass new clients to `arrived`, with this config of the listener. `named`: shared port if clients select a
        listener by host name."""
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
        """Return the handler for clients of this node's port; None: a port of any node."""
        return partial(self.arrived, None) if node is None else partial(self.accepted, node)

    def resolved(self, endpoints: list[Endpoint]) -> None:
        """Store the resolved addresses of `bind`."""
        self.endpoints = endpoints if self.port else endpoints[:1]  # port 0 is one port, on one address

    def stage(self, port: int, node: int | None) -> None:
        """Bind a port that is served from `begin` on. An open port stays open until then. Raises OSError."""
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
        """Keep a port open until `begin`, `give` or `unstage`. Until then, a close is deferred."""
        self.promised.setdefault(port, False)

    def begin(self) -> None:
        """Serve the staged ports: their config is in force now."""
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
        """Close the staged ports, and ports with a deferred close."""
        staged, self.staged = self.staged, {}
        for _, sockets in staged.values():
            close_all(sockets)
        promised, self.promised = self.promised, {}
        for port, is_over in promised.items():
            if is_over:
                self.close_port(port)

    def give(self, port: int) -> list[Acceptor]:
        """Hand a port over to another listener: remove it here without closing it."""
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
        """Return the use of a port under this config of the listener, for messages; empty: none."""
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

    def close_all(self) -> None:
        """Close all ports for good: the listener is removed."""
        self.left = True
        self.close()

    def prune(self) -> None:
        """Close the ports that only earlier configs used."""
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
        """Bind the fixed node ports of rules, as far as possible: clients may have cached them before a restart. Yields
        between batches."""
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
        """Bind the ports from the state file. Yields between batches."""
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
        """Return all advertise settings of the config and rules for this listener."""
        return [*([self.config.advertise] if self.config.advertise else ()), *self.rules]

    def bind(self, port: int, node: int | None) -> bool:
        """Listen on `port`; return False if this port is not available. Raises OSError if no port can be bound now."""
        if port in self.by_port or port in self.staged or self.left:  # may be bound for another config's node
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
        """Bind the port, unless that failed within the last `BUSY` seconds. Raises OSError as `bind` does."""
        now = monotonic()
        if self.busy.get(port, 0.0) > now:
            return False
        if self.bind(port, node):
            return True
        self.busy[port] = now + BUSY
        return False

    def bind_now(self, port: int, node: int | None) -> bool:
        """Bind the port if it is free; return False if no port can be bound now."""
        try:
            self.bind(port, node)
        except OSError:
            return False
        return True

    def log_ports(self) -> None:
        """Log the ports that were opened or refused since the last call."""
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
        """Close `port` and forget it. The close of a promised port is deferred."""
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
        """Accept a client of a node's port, and mark the port as used."""
        for ports in self.ranges.values():
            ports.use(node)
        self.arrived(node, sock, address)

    def known_ranges(self, rules: Sequence[Advertise]) -> set[tuple[int, int]]:
        """Return the (first, last) port ranges of this listener's config and these rules."""
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
        """Return the number of port assignments so far, to detect changes."""
        return sum(ports.assignments for ports in self.ranges.values())

    # ---- addresses for clients

    def client_addresses(
        self, nodes: Iterable[int], advertise: Advertise, local_host: str
    ) -> Generator[None, None, ClientAddresses]:
        """Find addresses of these nodes for clients that have connected to `local_host`. Yields between batches."""
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
        hidden = [node for node, address in addresses.items() if address is None]
        self.log_hidden_nodes([node for node in hidden if advertise.by_range or advertise.whole_address(node)])
        return addresses

    def log_hidden_nodes(self, nodes: Sequence[int]) -> None:
        """Log nodes without a port. `nodes` of the config hides the unlisted nodes on purpose: these are not logged."""
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
        """Return the last advertised addresses of a removed listener; None for nodes without one."""
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
        """Return the default advertise setting: without rules that select clients by more than the listener."""
        name, cluster = self.config.name, self.config.cluster
        for rule in self.rules:
            if not isinstance(rule, AdvertiseRule) or rule.always_holds(name, cluster):
                return rule
        return self.config.advertise

    def known_addresses(self, nodes: Mapping[int, HostPort]) -> dict[int, HostPort]:
        """Return the addresses of these nodes by the default setting. `nodes`: addresses of the brokers. Ports are not
        opened for this, so nodes without a port yet are left out."""
        way = self.common_way()
        if way is False:
            return dict(nodes)
        addresses = {node: self.known_address(node, way) for node in nodes}
        return {node: address for node, address in addresses.items() if address is not None}

    def known_address(self, node: int, advertise: Advertise) -> HostPort | None:
        """Return the address of a node for clients, if it has one already."""
        if advertise.by_range:
            ports = self.ranges.get(self.range_for(advertise))
            port = None if ports is None else ports.open.get(node)
            return None if port is None else (advertise.host or self.config.bind.host, port)
        address = advertise.whole_address(node)
        if address is None or (advertise.nodes is not None and address.port not in self.by_port):
            return None
        return address.host, address.port


def by_name(named: NamedPort, listener: str, arrived: OnClient) -> OnClient:
    """Return a handler that selects the listener of bootstrap clients by host name. A node's port belongs to one
    listener."""

    def accepted(node: int | None, sock: socket.SocketType, address: Any) -> None:
        if node is None:
            named.arrived(listener, sock, address)
        else:
            arrived(node, sock, address)

    return accepted


def is_foreign(config: ListenerConfig) -> bool:
    """Return True if the listener's sockets accept connections to foreign addresses."""
    return config.transparent is not None and config.transparent.by == "tproxy"


def turn_away(node: int | None, sock: socket.SocketType, address: Any) -> None:
    """Close the connection of a client before a handler is set."""
    sock.close()


def close_all(sockets: Iterable[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def fixed_ports(advertise: Advertise) -> dict[int, int | None]:
    """Return port → node; None if several nodes share it and are distinguished by TLS server names."""
    nodes_by_port: dict[int, int | None] = {}
    for node, address in (advertise.nodes or {}).items():
        nodes_by_port[address.port] = None if address.port in nodes_by_port else node
    return nodes_by_port
