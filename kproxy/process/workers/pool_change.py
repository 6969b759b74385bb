"""Change of a supervisor's network to another config: what it owns is opened here, workers make the rest ready.

Strategy. The same as in one process (`net.network`), in two halves. The supervisor binds ports, and asks for the ids of
clusters that are reached in another way, so that all workers get one answer. Workers read files and make clusters and
listeners, when they are asked to prepare. Once all of them are ready, the supervisor puts its half in force, in one
step of the loop, and tells the workers to do so with theirs; each gets clients again when it has done it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kproxy.config.document import Config
from kproxy.errors import UnusableSetting
from kproxy.net.accept.port_change import PortChange
from kproxy.net.capacity import find_capacity, log_capacity
from kproxy.net.dial.upstream import Upstream
from kproxy.net.network import ClusterFate, find_fates

from .dispatcher import words_of
from .messages import NetworkTerms, pack
from .pool_network import PoolNetwork


class PoolChange:
    """Change of `network` to another config, of which the workers are told, too. Blocks when it is made. Raises
    UnusableSetting, and nothing has changed then."""

    def __init__(self, network: PoolNetwork, config: Config) -> None:
        self.network, self.config, self.packed = network, config, pack(config)
        before = network.config
        self.words = words_of(config, network.dispatcher.words)
        self.ports: PortChange | None = None
        self.fates: dict[str, ClusterFate] = {}
        """Fates of clusters that are reached elsewhere; of all others what is known is kept."""
        self.ends: dict[str, tuple[Upstream, Upstream]] = {}
        for name, cluster in config.clusters.items():
            old = before.clusters.get(name)
            if old is not None and (old.bootstrap != cluster.bootstrap or old.dial != cluster.dial):
                self.fates[name] = "forgotten"
                new = self.upstream(name, config)
                try:
                    self.ends[name] = self.upstream(name, before), new
                except UnusableSetting:  # files of before may be gone: it cannot be asked
                    continue

    @property
    def told(self) -> PoolChange:
        """Return what workers are told of it."""
        return self

    def upstream(self, name: str, config: Config) -> Upstream:
        network, limits = self.network, config.limits
        made = Upstream(name, config.clusters[name], network.reactor, network.counts, limits.connect_timeout,
                        limits.handshake_timeout, config.mark(name), limits.max_nodes)  # fmt: skip
        made.own = network.port_service.own
        return made

    async def open(self) -> None:
        """Bind ports, and ask for the ids of clusters. Raises UnusableSetting, and nothing has changed then."""
        service = self.network.port_service
        ports = service.prepare(self.config, self.network.dispatcher.entrances(self.words))
        await ports.open()
        self.ports = ports
        try:
            self.fates.update(await find_fates(self.ends))
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """Close the ports that `open` has bound."""
        if self.ports is not None:
            self.ports.undo()
            self.ports = None

    def commit(self) -> None:
        """Put the supervisor's half in force. Workers get no clients until they have done so with theirs."""
        network, config, ports = self.network, self.config, self.ports
        assert ports is not None, "it is open"
        before, limits = network.config, config.limits
        network.config, network.packed = config, self.packed
        network.number += 1
        network.others = tuple(name for name, fate in self.fates.items() if fate == "changed")
        ports.commit()
        for left in ports.left.values():
            network.keep_left(left)
        network.topologies = self.topologies()
        network.port_service.set_topologies(network.topologies)
        network.port_service.use_limits(limits)
        if before.limits.max_connections != limits.max_connections:
            capacity = find_capacity(limits)
            network.dispatcher.admit(capacity)
            network.port_service.admit(capacity)
            log_capacity(capacity.times(config.workers), limits, network.log)
        network.pool.hold_back(by_address=bool(limits.max_connections_per_address))
        network.dispatcher.use(config, network.topologies, self.words)
        for name, one in network.port_service.by_listener.items():
            if one.former:
                network.prune_later(name)

    def topologies(self) -> dict[str, Any]:
        """Return what is known of each cluster of the config: what was known, unless it is forgotten."""
        known: Mapping[str, Any] = self.network.topologies
        found = {}
        for name in self.config.clusters:
            kept = name in known and self.fates.get(name, "kept") == "kept"
            found[name] = known[name] if kept else self.network.topology(name, self.config)
            found[name].most = self.config.limits.max_nodes
        return found

    # ---- for workers

    def terms(self) -> NetworkTerms:
        """Return the terms of the config in force, which may be a later one by now."""
        return self.network.terms()

    def has_taken(self, worker: Any) -> None:
        """Give a worker clients again, which has put the config in force."""
        self.network.pool.has_taken(worker)
