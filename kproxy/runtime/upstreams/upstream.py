"""Upstream: a cluster as something to connect to, with its bootstrap servers, its nodes, and how to reach them."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from errno import EINPROGRESS
from time import monotonic

from kproxy.base.errors import InternalError, UnusableSetting
from kproxy.runtime.config.network import ClusterConfig
from kproxy.runtime.driven import HostPort, show
from kproxy.runtime.io.proxy_protocol import greeting
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.side import Side
from kproxy.runtime.io.tls import BrokerTls
from kproxy.runtime.io.tls_side import TlsSide
from kproxy.runtime.reporting import ConnectionCounts, LogThrottle
from kproxy.runtime.transparent import check_mark
from kproxy.session.rewrite.context import MOST_NODES

from .broker_versions import BrokerVersions
from .dialler import DialOptions, Race, connect
from .dialling import Caller, Topology
from .own_connection import Login, OwnCredentials
from .resolve import OwnPorts, Resolver

AVOIDED = 30.0
"""Seconds that a bootstrap server which was not reachable is tried after the others."""


class Upstream:
    """Cluster to connect to. `topology` is what connections have learnt of its nodes."""

    def __init__(
        self, name: str, config: ClusterConfig, reactor: Reactor, counts: ConnectionCounts,
        connect_timeout: float, handshake_timeout: float, mark: int = 0, max_nodes: int = MOST_NODES,
    ) -> None:  # fmt: skip
        self.mark = mark
        if mark:
            try:
                check_mark(name, mark)
            except InternalError as error:
                raise UnusableSetting(("clusters", name, "mark"), str(error)) from error
        self.name, self.config, self.reactor, self.counts = name, config, reactor, counts
        self.connect_timeout, self.handshake_timeout = connect_timeout, handshake_timeout
        self.log = LogThrottle(reactor.log.bind(cluster=name))
        self.resolver = Resolver()
        self.topology = Topology(max_nodes)
        self.versions = BrokerVersions(self)
        self.tls = None
        if config.tls is not None:
            try:
                self.tls = BrokerTls(config.tls, handshake_timeout, reactor.step, reactor.log.bind(cluster=name))
            except InternalError as error:
                raise UnusableSetting(("clusters", name, "tls"), f"cluster {name}: {error}") from error
        self.credentials = OwnCredentials(config.sasl) if config.sasl is not None else None
        self.side: type[Side] = Side if self.tls is None else TlsSide
        self.overrides: Mapping[HostPort, HostPort] = {tuple(a): tuple(b) for a, b in config.dial.items()}  # type: ignore[misc]
        bootstrap = [(address.host, address.port) for address in config.bootstrap]
        self.bootstrap: list[HostPort] = [self.overrides.get(server, server) for server in bootstrap]
        self.own: OwnPorts | None = None
        """Where kproxy listens itself, once it is known."""
        self.leads_back = False
        """Whether connections to its brokers come back to this kproxy, by way of others."""
        self.first = 0
        self.failed: dict[HostPort, float] = {}

    def use_timeouts(self, connect_timeout: float, handshake_timeout: float) -> None:
        """Set the seconds that connections and handshakes may take from now on."""
        self.connect_timeout, self.handshake_timeout = connect_timeout, handshake_timeout
        if self.tls is not None:
            self.tls.timeout = handshake_timeout

    def servers(self, node: int | None) -> list[HostPort]:
        """Return the servers to try for this node, best first; None: for any.

        A node that is not known yet (its port was restored, its name came by SNI) is replaced by a bootstrap server: a
        wrong broker answers NOT_LEADER_OR_FOLLOWER, and clients then ask Metadata, which makes it known.
        """
        known = None if node is None else self.topology.nodes.get(node)
        if known is not None:
            return [self.overrides.get(known, known)]
        return self.bootstrap_servers() if len(self.bootstrap) > 1 else self.bootstrap

    def bootstrap_servers(self) -> list[HostPort]:
        """Return the bootstrap servers, each in its turn the first; those that failed of late come last."""
        count = len(self.bootstrap)
        self.first = (self.first + 1) % count
        turned = self.bootstrap[self.first :] + self.bootstrap[: self.first]
        if not self.failed:
            return turned
        limit = monotonic() - AVOIDED
        return sorted(turned, key=lambda server: self.failed.get(server, 0.0) > limit)

    @property
    def prepares(self) -> bool:
        """Return True if there is something to do between a TCP connection and its use."""
        return self.tls is not None or self.credentials is not None

    def dial(self, caller: Caller) -> None:
        """Call `caller.connected` or `.unreachable`, now or later; until then `caller.race` can be cancelled."""
        if self.leads_back:
            self.counts.unreachable[self.name] += 1
            caller.unreachable(f"cluster {self.name} leads back to kproxy itself")
            return
        route, version = caller.route, self.config.proxy_protocol
        if route is None:
            servers, source = self.servers(caller.node), None
        else:
            servers, source = [self.overrides.get(route.destination, route.destination)], route.source
        options = DialOptions(
            None if version is None else greeting(version, caller.origin), self.mark, source, self.own
        )
        plain = not self.prepares and options.greet is None and not self.failed
        begun, through = self.begin(servers[0], options) if plain else (None, False)
        if begun is not None and through:
            caller.connected(begun, servers[0])
        else:
            self.race(caller, servers, begun, options)

    def race(
        self, caller: Caller, servers: list[HostPort], begun: socket.SocketType | None, options: DialOptions
    ) -> None:
        """Try all servers; `begun` is on its way to the first."""

        def won(sock: socket.SocketType, server: HostPort) -> None:
            if (race.tried or self.failed) and caller.route is None:
                self.note(race, server)
            if self.credentials is None or caller.anonymous:
                caller.connected(sock, server)
                return
            login = caller.race = Login(self, caller, sock, server)
            self.reactor.spawn(login.run, self.credentials)

        def lost(tried: dict[str, str]) -> None:
            if caller.route is None:
                self.note(race, None)
            self.counts.unreachable[self.name] += 1
            self.log.warning("no broker could be reached", key=caller.node, node=caller.node, tried=tried)
            caller.unreachable("; ".join(f"{server}: {reason}" for server, reason in tried.items()))

        race = Race(self.reactor, self.resolver, self.tls, self.connect_timeout, servers, won, lost, options)
        caller.race = race
        race.start(begun)

    def begin(self, server: HostPort, options: DialOptions) -> tuple[socket.SocketType | None, bool]:
        """Connect without a race; return a socket, and whether it is connected already, as it mostly is on one host."""
        endpoints = self.resolver.known(server)
        if not endpoints:
            return None, False
        try:
            sock, code = connect(endpoints[0], options)
        except OSError:  # the race will say why
            return None, False
        if code not in (0, EINPROGRESS):
            sock.close()
            return None, False
        return sock, code == 0

    def note(self, race: Race, winner: HostPort | None) -> None:
        now = monotonic()
        for server in race.servers:
            if show(server) in race.tried and server in self.bootstrap:  # of others there is no end
                self.failed[server] = now
        if winner is not None:
            self.failed.pop(winner, None)
