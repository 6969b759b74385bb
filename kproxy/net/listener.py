"""One listener of the config: its bootstrap port, a port for each node, and what becomes of those who connect."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from kproxy.config import ListenerConfig
from kproxy.errors import WeDidWrong
from kproxy.rules.facts import Facts, subject_name
from kproxy.rules.kinds.advertise import Advertise, AdvertiseRule

from .acceptor import Acceptor, listen
from .connection import Connection
from .driven import HostPort, host_port, show
from .ports import NodePorts
from .resolve import Endpoint
from .side import Side
from .throttle import Throttle
from .tls import ClientSocket, ClientTls, reason
from .tls_side import TlsSide
from .upstream import Upstream

if TYPE_CHECKING:
    from .server import Server

PORTS = 1000
"""Ports for nodes when none are given: more than clusters have brokers, and room for ids that start high."""
LAST_PORT = 65535


class Listener:
    """`port` is the bootstrap port, known once `open` has bound it (the config may say 0)."""

    def __init__(self, server: Server, config: ListenerConfig, upstream: Upstream) -> None:
        self.server, self.config, self.upstream = server, config, upstream
        self.name = config.name
        self.log = Throttle(server.log.bind(listener=config.name))
        self.tls = None
        if config.tls is not None:
            self.tls = ClientTls(config.tls, server.limits.handshake_timeout, server.log.bind(listener=config.name))
        self.side: type[Side] = Side if self.tls is None else TlsSide
        self.endpoints: list[Endpoint] = []
        self.port = config.bind.port
        self.doors: dict[int, list[Acceptor]] = {}
        self.ranges: dict[tuple[int, int], NodePorts] = {}

    # ---- ports

    def open(self, endpoints: list[Endpoint]) -> None:
        """Bind the bootstrap port, and the ports of nodes with a fixed address. Raises WeDidWrong."""
        self.endpoints = endpoints if self.port else endpoints[:1]  # port 0 is one port, on one address
        try:
            self.unlock(self.port, None)
            advertise = self.config.advertise
            if advertise:
                for address in (advertise.nodes or {}).values():
                    self.unlock(address.port, fixed_node(advertise, address.port))
        except OSError as error:
            where = f"{self.config.bind.host} port {self.port}"
            raise WeDidWrong(
                f"listener {self.name} cannot bind {where} or a port of its nodes: {error.strerror}"
            ) from error

    def open_for(self, rules: Sequence[Advertise]) -> None:
        """Bind the ports of nodes that rules fix, as far as it goes: clients may have them since before a restart."""
        for rule in rules:
            if not isinstance(rule, AdvertiseRule) or rule.may_hold(self.name, self.upstream.name):
                for address in (rule.nodes or {}).values():
                    self.bind(address.port, fixed_node(rule, address.port))

    def unlock(self, port: int, node: int | None) -> None:
        """Listen on `port` for connections to `node`. Raises OSError."""
        if port in self.doors:
            return
        acceptors: list[Acceptor] = []
        try:
            for family, sockaddr in self.endpoints:
                sock = listen((family, (sockaddr[0], port, *sockaddr[2:])))
                acceptors.append(Acceptor(self.server.reactor, sock, partial(self.arrived, node), self.log))
                if not port:
                    self.port = port = sock.getsockname()[1]
        except OSError:
            for acceptor in acceptors:
                acceptor.close()
            raise
        self.doors[port] = acceptors

    def bind(self, port: int, node: int | None) -> bool:
        if port in self.doors:
            return False
        try:
            self.unlock(port, node)
        except OSError as error:
            self.server.log.info("port cannot be bound", listener=self.name, port=port, node=node, error=error.strerror)
            return False
        self.server.log.info("node has a port", listener=self.name, port=port, node=node)
        return True

    def lock(self, port: int) -> None:
        """Listen there no more."""
        for acceptor in self.doors.pop(port, ()):
            acceptor.close()

    def close(self) -> None:
        for port in list(self.doors):
            self.lock(port)

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

    # ---- addresses for clients

    def ensure(self, nodes: Mapping[int, HostPort], connection: Connection) -> dict[int, HostPort | None]:
        """Where the clients of this connection reach these nodes; None: nowhere."""
        changed = self.upstream.topology.learn(nodes)
        advertise = self.server.advertise(self, connection.facts, connection.session.rules)
        assert advertise, "a session that does not rewrite addresses asks for none"
        known = {port: set(ports.remembered) for port, ports in self.ranges.items()}
        places = {node: self.place(node, advertise, connection) for node in nodes}
        for node, place in places.items():
            if place is None:
                self.log.warning("node cannot be given an address, clients will not see it", key=node, node=node)
        if changed or known != {port: set(ports.remembered) for port, ports in self.ranges.items()}:
            self.server.state_changed()
        return places

    def place(self, node: int, advertise: Advertise, connection: Connection) -> HostPort | None:
        if advertise.sni is not None:
            address = advertise.sni_address(node) if node >= 0 else None
            return (address.host, address.port) if address else None
        if advertise.nodes is not None:
            fixed = advertise.nodes.get(node)
            if fixed is None:
                return None
            if fixed.port not in self.doors and not self.bind(fixed.port, fixed_node(advertise, fixed.port)):
                return None
            return fixed.host, fixed.port
        port = self.ports_of(advertise).ensure(node)
        return None if port is None else (advertise.host or connection.local_host, port)

    # ---- connections

    def arrived(self, node: int | None, sock: socket.socket, address: Any) -> None:
        """A client has connected; `address` is as the socket module gives it."""
        server = self.server
        client: HostPort = address if len(address) == 2 else host_port(address)
        refusal = server.refusal(client)
        if refusal is not None:
            self.refuse(sock, client, *refusal)
        elif self.tls is None:
            self.begin(sock, client, node)
        else:
            server.handshaking += 1
            server.reactor.spawn(self.shake_hands, self.tls, sock, client, node)

    async def shake_hands(self, tls: ClientTls, sock: socket.socket, client: HostPort, node: int | None) -> None:
        try:
            secured = await tls.handshake(sock)
        except (OSError, ValueError) as error:
            self.refuse(sock, client, "tls", f"TLS handshake failed: {reason(error)}")
            return
        finally:
            self.server.handshaking -= 1
        refusal = self.server.refusal(client)
        if refusal is not None:
            self.refuse(secured, client, *refusal)
        else:
            self.begin(secured, client, node)

    def refuse(self, sock: socket.socket, client: HostPort, cause: str, why: str) -> None:
        self.server.counts.refused[cause] += 1
        self.log.warning("connection refused", key=cause, cause=cause, reason=why, client=show(client))
        sock.close()

    def begin(self, sock: socket.socket, client: HostPort, node: int | None) -> None:
        """Give the connection its session."""
        server, sni, certificate = self.server, None, None
        if isinstance(sock, ClientSocket):
            sni, certificate = sock.sni, subject_name(sock.getpeercert())
        facts = Facts(self.name, self.upstream.name, client[0], sni, certificate, node)
        if sni is not None and node is None:
            node = self.node_by_name(sni, facts)
            facts = replace(facts, node=node)
        elif node is not None:
            for ports in self.ranges.values():
                ports.use(node)
        try:
            session = server.session_factory(self.name, facts, node)
        except BaseException:
            sock.close()
            raise
        connection = Connection(server, self, facts, session, client, node, monotonic())
        server.began(connection)
        try:
            connection.client.attach(sock)
            server.taps.opened(connection)
            connection.begin()
        except BaseException as error:
            connection.end("crashed", str(error))
            raise

    def node_by_name(self, sni: str, facts: Facts) -> int | None:
        advertise = self.server.advertise(self, facts, None)
        return advertise.sni_node(sni) if advertise and advertise.needs_tls else None


def fixed_node(advertise: Advertise, port: int) -> int | None:
    """The node that a fixed port stands for; None when several share it (their TLS names tell them apart)."""
    nodes = [node for node, address in (advertise.nodes or {}).items() if address.port == port]
    return nodes[0] if len(nodes) == 1 else None
