"""Upstream: a cluster to connect to, with its bootstrap servers, its nodes, and their addresses."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from errno import EINPROGRESS
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.cooperative import defer_free, free_after, yielding
from kproxy.base.errors import DecodeError, InternalError, UnusableSetting
from kproxy.protocol import decode_response
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import API_VERSIONS, METADATA
from kproxy.runtime.capacity import ConnectionCounts, LogThrottle
from kproxy.runtime.config.network import ClusterConfig
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.scheduler import in_a_turn
from kproxy.runtime.io.side import Side
from kproxy.runtime.io.sniff import greeting
from kproxy.runtime.io.socket_io import Route, check_mark
from kproxy.runtime.io.tls import BrokerTls, TlsSide
from kproxy.runtime.protocols import HostPort, host_port, show
from kproxy.session.cluster import VERSION, all_topics_request, brokers_request
from kproxy.session.commands import AskVersions
from kproxy.session.rewrite.context import MOST_NODES, is_reachable
from kproxy.session.rewrite.versions import MAX_VERSIONS_RESPONSE
from kproxy.session.sasl.login import request_frame

from .dialler import DialOptions, Race, Topology, connect
from .own_connection import MAX_METADATA, Login, OwnCredentials, own_connection, send_request
from .resolve import OwnPorts, Resolver

if TYPE_CHECKING:
    from kproxy.record.fanout import ClusterMetadata
    from kproxy.runtime.connection import Connection

    from .dialler import Caller

AVOIDED = 30.0
"""Seconds that an unreachable bootstrap server is tried last."""


class Upstream:
    """Cluster to connect to. `topology`: its nodes, as learned from responses."""

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
        """kproxy's own listen addresses. None until they are known."""
        self.leads_back = False
        """True if connections to its brokers come back to this kproxy through other proxies."""
        self.first = 0
        self.failed: dict[HostPort, float] = {}

    def use_timeouts(self, connect_timeout: float, handshake_timeout: float) -> None:
        """Set the timeouts in seconds for new connections and handshakes."""
        self.connect_timeout, self.handshake_timeout = connect_timeout, handshake_timeout
        if self.tls is not None:
            self.tls.timeout = handshake_timeout

    def servers(self, node: int | None) -> list[HostPort]:
        """Return the servers to try for this node, best first; None: for any.

        An unknown node (restored port, name from SNI) is replaced by a bootstrap server. A wrong broker answers
        NOT_LEADER_OR_FOLLOWER, so clients send Metadata, and its response contains the node.
        """
        known = None if node is None else self.topology.nodes.get(node)
        if known is not None:
            return [self.overrides.get(known, known)]
        return self.bootstrap_servers() if len(self.bootstrap) > 1 else self.bootstrap

    def bootstrap_servers(self) -> list[HostPort]:
        """Return the bootstrap servers in round-robin order, with recently failed ones last."""
        count = len(self.bootstrap)
        self.first = (self.first + 1) % count
        turned = self.bootstrap[self.first :] + self.bootstrap[: self.first]
        if not self.failed:
            return turned
        limit = monotonic() - AVOIDED
        return sorted(turned, key=lambda server: self.failed.get(server, 0.0) > limit)

    @property
    def prepares(self) -> bool:
        """Return True if a TCP connection needs TLS or a login before its use."""
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
        """Try all servers. `begun`: socket with a pending connect to the first one."""

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
        """Connect without a race; return (socket, True if it is already connected), which is usual on the same host."""
        endpoints = self.resolver.known(server)
        if not endpoints:
            return None, False
        try:
            sock, code = connect(endpoints[0], options)
        except OSError:  # the race reports the reason
            return None, False
        if code not in (0, EINPROGRESS):
            sock.close()
            return None, False
        return sock, code == 0

    def note(self, race: Race, winner: HostPort | None) -> None:
        now = monotonic()
        for server in race.servers:
            if show(server) in race.tried and server in self.bootstrap:  # other addresses are unbounded
                self.failed[server] = now
        if winner is not None:
            self.failed.pop(winner, None)


FRESH = 30.0
"""Seconds that a response is cached. A broker with a new version has closed its connections, which evicts the entry;
its features can change within this time."""
VERSIONS_RETRY = 0.5
"""Seconds without a new request after a failure, since clients retry faster."""
VERSIONS_TIMEOUT = 5.0
"""Seconds for a response on an open connection."""
MOST = 1024
"""Maximum cached responses; a broker has about five."""
CORRELATION_BYTES = 4

BrokerKey = HostPort | int | None
"""Broker by address or node id. None: any broker of the cluster."""


# Cache of ApiVersions responses of a cluster's brokers, requested by kproxy itself.
#
# The responses are for clients that have not authenticated yet, so their requests cause no load on brokers. One request
# serves all clients that wait for its response. It uses a separate connection without a login, since ApiVersions needs
# no authentication (KIP-35).
class CachedVersions(NamedTuple):
    """Cached ApiVersions response, valid `until` a time of `monotonic()`.

    `body`: bytes after the correlation id. None: the request failed with `reason`.
    """

    until: float
    body: bytes | None
    reason: str = ""


class BrokerVersions:
    """Cache of ApiVersions answers of one cluster."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.known: BoundedMap[tuple[BrokerKey, AskVersions], CachedVersions] = BoundedMap(MOST)
        self.waiting: dict[tuple[BrokerKey, AskVersions], list[Connection]] = {}

    def ask(self, requester: Connection, what: AskVersions) -> None:
        """Call `requester.versions_known` or `requester.unreachable`, now or later, unless it is closed by then."""
        broker_key = self.broker_key(requester)
        key = broker_key, what
        answer = self.known.get(key)
        if answer is not None and monotonic() < answer.until:
            self.report(requester, answer)
        elif key in self.waiting:
            self.waiting[key].append(requester)
        else:
            self.waiting[key] = [requester]
            self.upstream.reactor.spawn(
                self.find, key, requester.node if isinstance(broker_key, int) else None, requester.route
            )

    def broker_key(self, requester: Connection) -> BrokerKey:
        if requester.route is not None:
            return requester.route.destination
        return requester.node if requester.node in self.upstream.topology.nodes else None

    def forget(self, requester: Connection) -> None:
        """Evict the responses of a broker that has closed a connection, since it may return with another version."""
        broker_key = self.broker_key(requester)
        for key in [key for key in self.known if key[0] in (broker_key, None)]:
            del self.known[key]

    async def find(self, key: tuple[BrokerKey, AskVersions], node: int | None, route: Route | None) -> None:
        """Send the request, cache the response, and pass it to all waiting requesters."""
        upstream, what = self.upstream, key[1]
        try:
            with trio.fail_after(upstream.connect_timeout + VERSIONS_TIMEOUT):
                async with own_connection(upstream, node=node, route=route, anonymous=True) as sock:
                    frame = await send_request(sock, question(what), MAX_VERSIONS_RESPONSE)
            answer = CachedVersions(monotonic() + FRESH, frame[CORRELATION_BYTES:])
        except (OSError, trio.TooSlowError) as error:
            answer = CachedVersions(
                monotonic() + VERSIONS_RETRY, None, str(error) or "no answer to ApiVersions in time"
            )
        finally:
            waiting = self.waiting.pop(key)
        self.known[key] = answer
        for requester in waiting:
            self.report(requester, answer)

    def report(self, requester: Connection, answer: CachedVersions) -> None:
        if requester.closed:
            return
        try:
            if answer.body is None:
                requester.unreachable(answer.reason)
            else:
                requester.versions_known(answer.body)
        except Exception as error:  # only this connection ends
            self.upstream.reactor.log.error("a connection did not receive the brokers' versions", exc_info=error)
            requester.crashed(error)


def question(what: AskVersions) -> bytes:
    """Build the ApiVersions request for `what`, with its size prefix."""
    struct = layout.body(API_VERSIONS, what.version, "request")
    body = struct.defaults()
    for name in ("client_software_name", "client_software_version"):
        if name in body:
            body[name] = "kproxy" if what.valid else ""
    return request_frame(API_VERSIONS, what.version, body)


METADATA_TIMEOUT = 30.0
"""Seconds for a complete response; for a large cluster it has about 10 MB."""
BROKERS_ONLY = 1 << 20  # bytes of a response without topics, if the cluster may have at most 1,000 nodes
NODE_BYTES = 1024  # bytes per node of limits.max_nodes, for larger clusters
POLL_RETRY = 5.0
"""Seconds until the next request after a failure."""
EVERY = 300.0
"""Seconds between two requests, as in clients (metadata.max.age.ms)."""


# Poller of each cluster's topics for the recorded topology, on kproxy's own connection, and locator of nodes by
# address.
#
# A cluster that requires authentication does not respond if kproxy does not log in itself. Then only responses to
# clients are recorded.
#
# For regular listeners, kproxy learns the nodes from the Metadata responses that it rewrites. At transparent listeners
# responses pass unread, and a diverted connection has only a destination address. So kproxy periodically requests
# Metadata, resolves the names of the brokers, and finds the node of a connection by its destination. The node is
# unknown before the first response, and if brokers do not respond.
class MetadataPoller:
    """Poller of one cluster's Metadata; `picture` receives the responses. `request` builds the requests.

    A response beyond `longest` bytes is not read. Both sizes are logged, and the next request follows after `every`
    seconds.
    """

    def __init__(
        self, upstream: Upstream, picture: ClusterMetadata | NodeLocator, every: float, log: FilteringBoundLogger,
        request: Callable[[], bytes] = all_topics_request, longest: int = MAX_METADATA,
    ) -> None:  # fmt: skip
        self.upstream, self.picture, self.every = upstream, picture, every
        self.request, self.longest = request, longest
        self.log = log.bind(cluster=upstream.name)

    async def run(self) -> None:
        """Poll every `every` seconds until cancelled, and sooner after most failures."""
        logged = False
        while True:
            try:
                with trio.fail_after(METADATA_TIMEOUT):
                    await self.ask()
                logged, pause = False, self.every
            except (OSError, DecodeError, trio.TooSlowError) as error:
                if not logged:
                    self.log.info("topology cannot be asked for", reason=str(error) or "no answer in time")
                logged, pause = True, min(POLL_RETRY, self.every)
                if isinstance(error, (ConnectionError, DecodeError)):  # the next response will be the same
                    pause = self.every
            await trio.sleep(pause)

    async def ask(self) -> None:
        """Send one request on a separate connection. Raises OSError and DecodeError."""
        async with own_connection(self.upstream) as sock:
            frame = await send_request(sock, self.request(), self.longest)
        # Decoding takes seconds for a large cluster, so it is done in a thread. librdkafka's mock sends an extra byte.
        read = partial(decode_response, frame, METADATA, VERSION, trailing=True)
        bodies = [(await trio.to_thread.run_sync(read)).body]

        def learn() -> None:
            body = defer_free(bodies.pop())  # the only reference, so it is freed in slices
            self.picture.learn(body, lambda name: None, own=True)

        await in_a_turn(self.upstream.reactor, f"cluster {self.upstream.name}", lambda: free_after(len(frame), learn))


class NodeLocator(MetadataPoller):
    """Locator of one cluster. `nodes`: node ids from Metadata by IP address and port."""

    def __init__(self, upstream: Upstream, log: FilteringBoundLogger) -> None:
        longest = max(BROKERS_ONLY, NODE_BYTES * upstream.topology.most)
        super().__init__(upstream, self, EVERY, log, brokers_request, longest)
        self.named: dict[int, HostPort] = {}
        self.nodes: dict[HostPort, int] = {}

    def learn(self, body: Mapping[str, Any], broker_name: object, own: bool = False) -> None:
        """Store the brokers of a response, up to the node limit."""
        nodes = [(one["node_id"], one["host"], one["port"]) for one in yielding(body["brokers"])]
        reachable = [(node, (host, port)) for node, host, port in yielding(nodes) if is_reachable(host, port)]
        self.named = dict(reachable[: self.upstream.topology.most])

    async def ask(self) -> None:
        """Request the brokers and resolve their addresses. Raises OSError and DecodeError."""
        await super().ask()
        before, self.nodes = self.nodes, {}
        for node, address in self.named.items():
            with suppress(OSError):  # unresolved brokers are skipped
                endpoints = self.upstream.resolver.known(address) or await self.upstream.resolver.look_up(address)
                self.nodes.update({host_port(sockaddr): node for _, sockaddr in endpoints})
        if self.nodes != before:
            self.log.info("nodes found", nodes=sorted(set(self.nodes.values())))
