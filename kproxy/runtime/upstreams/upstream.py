"""Upstream: a cluster as something to connect to, with its bootstrap servers, its nodes, and how to reach them."""

from __future__ import annotations

import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from errno import EINPROGRESS
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, Protocol

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import DecodeError, InternalError, UnusableSetting
from kproxy.protocol import decode_response
from kproxy.protocol.breath import each, freeing, keep
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

from .dialler import Caller, Dialler, DialOptions, Race, Topology, connect
from .own_connection import MAX_METADATA, Login, OwnCredentials, own_connection, send_request
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


FRESH = 30.0
"""Seconds for which an answer is kept: a broker that comes back with another version has ended its connections, and is
asked anew then; its features may change meanwhile."""
VERSIONS_RETRY = 0.5
"""Seconds for which nobody is asked again after a failure: clients come back sooner."""
VERSIONS_TIMEOUT = 5.0
"""Seconds that an answer may take, once there is a connection."""
MOST = 1024
"""Answers kept; a broker gives some five."""
CORRELATION_BYTES = 4

BrokerKey = HostPort | int | None
"""A broker: the address, its node id, or any of the cluster."""


# Answers of a cluster's brokers to ApiVersions, asked for by kproxy itself and kept for a while.
#
# They are for clients that have not authenticated yet: what these send costs no broker anything, however many they are.
# One question is asked for all clients that wait for its answer, on a connection of its own and without a login, which
# brokers want none for (KIP-35).
class CachedVersions(NamedTuple):
    """Answer to ApiVersions in the cache, valid `until` a time of `monotonic()`.

    `body` is all behind the correlation id; None: no answer came, `reason` says why.
    """

    until: float
    body: bytes | None
    reason: str = ""


class VersionsRequester(Protocol):
    """Connection that waits for the versions of its broker."""

    node: int | None
    route: Route | None

    @property
    def closed(self) -> bool:
        """Return True if the versions are needed no more."""

    def versions_known(self, answer: bytes) -> None: ...
    def unreachable(self, reason: str, refused: bool = False) -> None: ...
    def crashed(self, error: Exception) -> None: ...


class BrokerVersions:
    """Cache of ApiVersions answers of one cluster."""

    def __init__(self, upstream: Dialler) -> None:
        self.upstream = upstream
        self.known: OrderedDict[tuple[BrokerKey, AskVersions], CachedVersions] = OrderedDict()
        self.waiting: dict[tuple[BrokerKey, AskVersions], list[VersionsRequester]] = {}

    def ask(self, requester: VersionsRequester, what: AskVersions) -> None:
        """Call `requester.versions_known` or `requester.unreachable`, now or later, unless it is closed by then."""
        place = self.place(requester)
        key = place, what
        answer = self.known.get(key)
        if answer is not None and monotonic() < answer.until:
            self.tell(requester, answer)
        elif key in self.waiting:
            self.waiting[key].append(requester)
        else:
            self.waiting[key] = [requester]
            self.upstream.reactor.spawn(
                self.find, key, requester.node if isinstance(place, int) else None, requester.route
            )

    def place(self, requester: VersionsRequester) -> BrokerKey:
        if requester.route is not None:
            return requester.route.destination
        return requester.node if requester.node in self.upstream.topology.nodes else None

    def forget(self, requester: VersionsRequester) -> None:
        """Drop the answers of a broker that has ended a connection: it may have another version when it is back."""
        place = self.place(requester)
        for key in [key for key in self.known if key[0] in (place, None)]:
            del self.known[key]

    async def find(self, key: tuple[BrokerKey, AskVersions], node: int | None, route: Route | None) -> None:
        """Ask the broker, keep its answer, and give it to all that wait for it."""
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
        self.known.move_to_end(key)
        if len(self.known) > MOST:
            self.known.popitem(last=False)
        for requester in waiting:
            self.tell(requester, answer)

    def tell(self, requester: VersionsRequester, answer: CachedVersions) -> None:
        if requester.closed:
            return
        try:
            if answer.body is None:
                requester.unreachable(answer.reason)
            else:
                requester.versions_known(answer.body)
        except Exception as error:  # it ends that one; the others still hear
            self.upstream.reactor.log.error("a connection cannot be told of versions", exc_info=error)
            requester.crashed(error)


def question(what: AskVersions) -> bytes:
    """Build the ApiVersions request that `what` describes, its size in front."""
    struct = layout.body(API_VERSIONS, what.version, "request")
    body = struct.defaults()
    for name in ("client_software_name", "client_software_version"):
        if name in body:
            body[name] = "kproxy" if what.valid else ""
    return request_frame(API_VERSIONS, what.version, body)


METADATA_TIMEOUT = 30.0
"""Seconds that all of an answer may take; of a large cluster it has some ten MB."""
BROKERS_ONLY = 1 << 20  # bytes of a response without topics, if the cluster may have at most 1,000 nodes
NODE_BYTES = 1024  # of a larger cluster, for each node of limits.max_nodes
POLL_RETRY = 5.0
"""Seconds to the next question when the cluster could not be asked."""
EVERY = 300.0
"""Seconds between two questions; clients ask for new brokers as often (metadata.max.age.ms)."""


class MetadataConsumer(Protocol):
    """Consumer of answers to Metadata."""

    def learn(self, body: Mapping[str, Any], broker_name: Callable[[str], str | None], own: bool = False) -> object: ...


# Poller of each cluster's topics, on a connection of kproxy's own, for the record of its topology, and locator of nodes
# by their addresses.
#
# A cluster that wants authentication, and at which kproxy does not log in itself, does not answer; then what clients
# are shown has to do.
#
# For listeners that are not transparent, answers are rewritten, and what they say is known from that. At transparent
# ones they pass unread, and where a diverted connection goes is an address only. So kproxy asks Metadata for the
# brokers now and then, looks their names up, and finds the node of a connection by its destination. Until then, and
# where the brokers do not answer it, there is none.
class MetadataPoller:
    """Poller of one cluster's Metadata; `picture` learns the responses. `request` makes the requests.

    A response beyond `longest` bytes is not read. The log names both sizes, and the next request follows after `every`
    seconds.
    """

    def __init__(
        self, upstream: Upstream, picture: MetadataConsumer, every: float, log: FilteringBoundLogger,
        request: Callable[[], bytes] = all_topics_request, longest: int = MAX_METADATA,
    ) -> None:  # fmt: skip
        self.upstream, self.picture, self.every = upstream, picture, every
        self.request, self.longest = request, longest
        self.log = log.bind(cluster=upstream.name)

    async def run(self) -> None:
        """Ask every so often, until cancelled."""
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
        """Send one request on a connection of its own. Raises OSError and DecodeError."""
        async with own_connection(self.upstream) as sock:
            frame = await send_request(sock, self.request(), self.longest)
        # Decoding takes seconds for a large cluster, so it is done in a thread. librdkafka's mock sends an extra byte.
        read = partial(decode_response, frame, METADATA, VERSION, trailing=True)
        bodies = [(await trio.to_thread.run_sync(read)).body]

        def learn() -> None:
            body = keep(bodies.pop())  # which nobody else has, so that it is freed in pieces
            self.picture.learn(body, lambda name: None, own=True)

        await in_a_turn(self.upstream.reactor, f"cluster {self.upstream.name}", lambda: freeing(len(frame), learn))


class NodeLocator(MetadataPoller):
    """Locator of one cluster. `nodes` are those that the brokers have named, by IP address and port."""

    def __init__(self, upstream: Upstream, log: FilteringBoundLogger) -> None:
        longest = max(BROKERS_ONLY, NODE_BYTES * upstream.topology.most)
        super().__init__(upstream, self, EVERY, log, brokers_request, longest)
        self.named: dict[int, HostPort] = {}
        self.nodes: dict[HostPort, int] = {}

    def learn(self, body: Mapping[str, Any], broker_name: object, own: bool = False) -> None:
        """Take the brokers of an answer; of more than a cluster may have, the first ones."""
        nodes = [(one["node_id"], one["host"], one["port"]) for one in each(body["brokers"])]
        reachable = [(node, (host, port)) for node, host, port in each(nodes) if is_reachable(host, port)]
        self.named = dict(reachable[: self.upstream.topology.most])

    async def ask(self) -> None:
        """Ask, and find the addresses of all brokers that are named. Raises OSError and DecodeError."""
        await super().ask()
        before, self.nodes = self.nodes, {}
        for node, address in self.named.items():
            with suppress(OSError):  # of those that cannot be found, nobody gets the address
                endpoints = self.upstream.resolver.known(address) or await self.upstream.resolver.look_up(address)
                self.nodes.update({host_port(sockaddr): node for _, sockaddr in endpoints})
        if self.nodes != before:
            self.log.info("nodes found", nodes=sorted(set(self.nodes.values())))
