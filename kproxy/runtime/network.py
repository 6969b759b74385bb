"""Network of one config: its clusters and listeners as they serve, and the change from one config to the next.

Strategy. Parts that are equal in both configs stay as they are. Changed parts are new objects, and connections keep the
listener and the cluster that they began with. All steps that can fail come first: files are read when the change is
made, `open` opens ports and compares clusters. `commit` cannot fail, and does not yield. A start is the change from an
empty config.

Nodes. Each port belongs to a node id, and the address of a node comes from Metadata of its cluster. A cluster that is
reached in another way is asked for its id, at the old place and at the new one (`cluster_identity`). With the same id,
its nodes stay known. With another id the config is refused, unless that is allowed: connections to the old cluster are
closed then, since a client must not use two clusters at the same time. If an id is unknown, only the nodes are
forgotten: connections to nodes go to a bootstrap server until the next Metadata response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from kproxy.base.errors import UnusableSetting
from kproxy.runtime.config.network import ClusterConfig, ListenerConfig, is_reached_alike
from kproxy.runtime.io.scheduler import Background, a_few_at_a_time
from kproxy.runtime.listeners.listener import Listener
from kproxy.runtime.upstreams.resolve import REASON, OwnPorts
from kproxy.runtime.upstreams.upstream import NodeLocator, Upstream

from .cluster_identity import (
    ClusterFate,
    Comparison,
    Ends,
    FormerListeners,
    Move,
    compare,
    describe,
    moves,
    refuse_moves,
    successions,
    without_successor,
)
from .protocols import ConnectionPhase, show

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kproxy.app.config.document import Config
    from kproxy.app.workers.pool_network import PoolChange
    from kproxy.app.workers.supervisor_client import RemotePortChange
    from kproxy.runtime.io.reactor import Reactor
    from kproxy.runtime.listeners.port_service import PortChange

    from .capacity import ConnectionCounts
    from .connection import Connection
    from .server import Server

LOOPBACK = "127.0.0.1"


class ServedNetwork(NamedTuple):
    """Clusters and listeners of one config, by name. `locators` are those of clusters with transparent listeners."""

    upstreams: Mapping[str, Upstream]
    locators: Mapping[str, NodeLocator]
    listeners: Mapping[str, Listener]


NO_NETWORK = ServedNetwork({}, {}, {})


class ConfigChange:
    """Change to `config` of a process that has ports: they are opened, and clusters that are reached in another way are
    compared, before anything is put in force."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.fates: dict[str, ClusterFate] = {}
        """Fates of the clusters that are in both configs and are reached in another way."""
        self.successions: list[Move] = []
        """Listeners with the clusters that their clients have reached so far."""
        self.moves: list[Move] = []
        """Those of clusters that are reached in another way."""
        self.removed: list[ListenerConfig] = []
        """Listeners without a successor in the new config, the newest last."""
        self.used: set[str] = set()
        """Clusters of the new config that succeed a used one: its clients have received brokers."""
        self.moved: list[str] = []
        """Descriptions of the listeners that lead to another cluster, once that is allowed."""
        self.ports: PortChange | RemotePortChange | None = None
        self.commit_parts: Callable[[], object] = lambda: None
        """Updates the other parts of the process once the config is in force; cannot fail."""

    def find_moves(
        self, former: FormerListeners, listeners: Iterable[ListenerConfig], clusters: Mapping[str, ClusterConfig]
    ) -> dict[str, ClusterConfig]:
        """Find the successions to listeners in force and to removed ones. Return clusters of removed ones."""
        former.expire()
        before, known = [*former.listeners.values(), *listeners], {**former.clusters, **clusters}
        found = self.successions = successions(before, self.config)
        self.moves = moves(found, known, self.config)
        self.removed = without_successor(before, self.config)
        return {move.before: known[move.before] for move in self.moves if move.before not in clusters}

    def follow_removed(self, former: FormerListeners, clusters: Mapping[str, ClusterConfig]) -> None:
        """Remember the listeners that this config removes, and those removed before that have no successor."""
        in_use, kept = self.in_use(), {one.name for one in self.removed}
        for name in [name for name in former.listeners if name not in kept]:
            former.remove(name)
        former.add([one for one in self.removed if in_use.get(one.cluster)], clusters)

    @property
    def report(self) -> PoolChange | None:
        """Return the change in the form sent to workers, if there are any."""
        return None

    def prepare(self) -> PortChange | RemotePortChange:
        """Return the ports of the config, not opened yet."""
        raise NotImplementedError

    def check(self) -> None:
        """Check the parts of the config that need open ports. Raises UnusableSetting."""

    def ends(self) -> Mapping[tuple[str, str], Ends]:
        """Return the pairs of clusters to compare, by their names in the config in force and in the new one."""
        raise NotImplementedError

    def in_use(self) -> Mapping[str, bool]:
        """Return for each cluster in force whether clients have received its brokers."""
        raise NotImplementedError

    async def open(self, *, allow_cluster_change: bool = True) -> None:
        """Open the ports of new listeners, and ask for the ids of clusters that are reached in another way. Raises
        UnusableSetting, and ConfigRefused for listeners that lead to another cluster unless `allow_cluster_change`.
        Nothing has changed then."""
        ports = self.prepare()
        await ports.open()
        self.ports = ports
        try:
            self.check()
            found = await compare(self.ends())
            self.fates.update({old: each.fate for (old, new), each in found.items() if old == new})
            unasked = Comparison("", (), shared=False)
            compared = {move: found.get((move.before, move.after), unasked) for move in self.moves}
            in_use = {**{move.before: True for move in self.successions}, **self.in_use()}
            if not allow_cluster_change:
                refuse_moves(compared, in_use)
            changed = {move for move, each in compared.items() if each.fate == "changed"}
            self.used = {one.after for one in self.successions if in_use[one.before] and one not in changed}
            self.moved = [describe(move, each) for move, each in compared.items() if each.fate == "changed"]
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """Close the ports that `open` has bound."""
        if self.ports is not None:
            self.ports.undo()
            self.ports = None


class NetworkChange(ConfigChange):
    """Change of `server` to another config. Raises UnusableSetting when it is made, and nothing has changed then."""

    def __init__(self, server: Server, config: Config) -> None:
        super().__init__(config)
        self.server = server
        self.before = before = server.network
        upstreams = {name: self.upstream(name, mark) for name, mark in config.marks().items()}
        transparent = {each.cluster for each in config.listeners if each.transparent is not None}
        locators: dict[str, NodeLocator] = {}
        for name in transparent:
            old = before.locators.get(name)
            same = old is not None and old.upstream is upstreams[name]
            locators[name] = old if old is not None and same else NodeLocator(upstreams[name], server.log)
        listeners: dict[str, Listener] = {}
        for index, each in enumerate(config.listeners):
            known, upstream = before.listeners.get(each.name), upstreams[each.cluster]
            made = Listener(server, each, upstream, locators.get(each.cluster), index, known)
            same = known is not None and known.word == made.word and known.upstream is upstream
            listeners[each.name] = known if known is not None and same else made
        self.after = ServedNetwork(upstreams, locators, listeners)
        self.former: dict[str, Upstream] = {}
        """Clusters of removed listeners that are compared."""
        if server.alone:  # otherwise the supervisor compares them
            former = self.find_moves(server.former, self.listeners_before(), self.clusters_before())
            for name, cluster in former.items():
                with suppress(UnusableSetting):  # files of the old config may be gone: the cluster cannot be asked
                    self.former[name] = Upstream(
                        name, cluster, server.reactor, server.counts, config.limits.connect_timeout,
                        config.limits.handshake_timeout, cluster.mark or 0,
                    )  # fmt: skip

    def listeners_before(self) -> list[ListenerConfig]:
        return [one.config for one in self.before.listeners.values()]

    def clusters_before(self) -> dict[str, ClusterConfig]:
        return {name: upstream.config for name, upstream in self.before.upstreams.items()}

    def upstream(self, name: str, mark: int) -> Upstream:
        """Return the cluster of this name. The current object is reused if it is reached in the same way."""
        config, server = self.config, self.server
        cluster = config.clusters[name]
        known = self.before.upstreams.get(name)
        if known is not None and known.config == cluster and known.mark == mark:
            return known
        made = make_upstream(name, config, mark, server.reactor, server.counts, server.own)
        if known is not None:
            self.fates[name] = "kept" if is_reached_alike(known.config, made.config) else "forgotten"
        return made

    def prepare(self) -> PortChange | RemotePortChange:
        service = self.server.port_service
        return service.prepare(self.config, {name: one.arrived for name, one in self.after.listeners.items()})

    def check(self) -> None:
        check_bootstrap(self.after.upstreams.values(), self.server.port_service.own.has)

    def ends(self) -> Mapping[tuple[str, str], Ends]:
        """Return the pairs of clusters to compare. Empty in a worker: the supervisor compares them."""
        pairs = [(name, name) for name, fate in self.fates.items() if fate == "forgotten"] if self.server.alone else []
        pairs += [(move.before, move.after) for move in self.moves]
        known = {**self.former, **self.before.upstreams}
        return {(old, new): (known[old], self.after.upstreams[new]) for old, new in pairs if old in known}

    def in_use(self) -> Mapping[str, bool]:
        return {name: upstream.topology.is_used for name, upstream in self.before.upstreams.items()}

    def commit(self) -> None:
        """Put the change in force for new connections. Cannot fail."""
        server, after, ports = self.server, self.after, self.ports
        limits = self.config.limits
        if server.alone:
            self.follow_removed(server.former, self.clusters_before())
        for name, upstream in after.upstreams.items():
            known = self.before.upstreams.get(name)
            if known is not None and self.fates.get(name) == "kept":
                upstream.topology = known.topology
            upstream.topology.most = limits.max_nodes
            upstream.topology.was_used |= name in self.used
            upstream.use_timeouts(limits.connect_timeout, limits.handshake_timeout)
        for each in self.config.listeners:
            after.listeners[each.name].config = each
            after.listeners[each.name].use_timeout(limits.handshake_timeout)
        server.network = after
        if ports is None:
            return
        ports.commit()
        server.port_service.set_topologies({name: one.topology for name, one in after.upstreams.items()})
        for one in (*self.before.listeners.values(), *server.retired.listeners):
            name = one.name
            if after.listeners.get(name) is one or one.gone is not None:
                continue
            one.left_ports = ports.left.get(name)
            if name in ports.left:
                one.gone = "listener_removed", f"listener {name} is no longer there"
            elif self.fates.get(one.upstream.name) == "changed":
                one.gone = "cluster_changed", f"cluster {one.upstream.name} is another one now"
        follow_locators(server)


def follow_locators(server: Server) -> None:
    """Stop the locators of removed clusters and start those of new ones, a few at a time."""
    server.reactor.spawn(a_few_at_a_time, locators_in_turns(server))


def locators_in_turns(server: Server) -> Iterator[None]:
    """Stop or start one locator in each step. The config may change between steps."""
    for name, (locator, task) in list(server.locating.items()):
        if server.network.locators.get(name) is not locator and server.locating.get(name) == (locator, task):
            task.stop()
            del server.locating[name]
            yield
    for name, locator in list(server.network.locators.items()):
        if name not in server.locating and server.network.locators.get(name) is locator:
            server.locating[name] = locator, Background(server.reactor.spawn, locator.run)
            yield


class Retired:
    """Listeners of earlier configs that still have connections."""

    def __init__(self, prune: Callable[[str], object]) -> None:
        self.prune = prune
        self.listeners: set[Listener] = set()
        self.of_name = Counter[str]()

    def add(self, listener: Listener) -> None:
        if listener not in self.listeners:
            self.listeners.add(listener)
            self.of_name[listener.name] += 1

    def close_unused(self, listener: Listener) -> None:
        """Close the ports that only earlier configs of this listener had, unless it still has connections."""
        if not listener.connections and listener in self.listeners:
            name = listener.name
            self.listeners.discard(listener)
            self.of_name[name] -= 1
            if not self.of_name[name]:
                del self.of_name[name]
                self.prune(name)


def make_upstream(
    name: str, config: Config, mark: int, reactor: Reactor, counts: ConnectionCounts, own: OwnPorts | None
) -> Upstream:
    """Return the cluster of this name, as the config has it. Raises UnusableSetting."""
    limits = config.limits
    made = Upstream(name, config.clusters[name], reactor, counts, limits.connect_timeout, limits.handshake_timeout,
                    mark, limits.max_nodes)  # fmt: skip
    made.own = own
    return made


def check_bootstrap(upstreams: Iterable[Upstream], is_own: Callable[[object], bool]) -> None:
    """Raise UnusableSetting when a cluster's bootstrap server is this kproxy."""
    for upstream in upstreams:
        for number, server in enumerate(upstream.bootstrap):
            addresses = [sockaddr for _, sockaddr in upstream.resolver.known(server) or ()]
            if server[0].lower().rstrip(".") == "localhost":  # RFC 6761 §6.3; other names are resolved later
                addresses.append((LOOPBACK, server[1]))
            if any(is_own(sockaddr) for sockaddr in addresses):
                where = ("clusters", upstream.name, "bootstrap", number)
                text = f"cluster {upstream.name} cannot have {show(server)} as a bootstrap server: {REASON}"
                raise UnusableSetting(where, text)


def end_connections(server: Server, connections: Iterable[Connection]) -> Iterator[None]:
    """End the connections of removed listeners, one in each step. Connections of removed listeners answer requests in
    flight first. Connections to a changed cluster are closed."""
    now, timeout = monotonic(), server.limits.drain_timeout
    drained: list[Connection] = []

    def out_of_time() -> None:
        text = f"responses did not come within {timeout:g} s"
        server.for_each(drained, lambda connection: connection.end("drain_timeout", text))

    server.reactor.call_at(now + timeout, out_of_time)
    for connection in connections:
        listener = connection.listener
        if listener.gone is None or connection.phase is not ConnectionPhase.OPEN:
            continue
        cause, reason = listener.gone
        if cause == "cluster_changed":
            connection.close(cause, reason)
        elif connection.leaving is None:
            connection.drain(now, cause, reason)
            drained.append(connection)
        yield
