"""Change of a supervisor's network to another config: what it owns is opened here, workers make the rest ready.

Strategy. The same as in one process (`runtime.network`), in two halves. The supervisor binds ports, and asks for the
ids of clusters that are reached in another way, so that all workers get one answer. Workers read files and make
clusters and listeners, when they are asked to prepare. Once all of them are ready, the supervisor puts its half in
force, in one step of the loop, and tells the workers to do so with theirs; each gets clients again when it has done it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kproxy.app.config.document import Config
from kproxy.base.errors import UnusableSetting
from kproxy.runtime.capacity import find_capacity, log_capacity
from kproxy.runtime.cluster_identity import Ends
from kproxy.runtime.config.network import is_reached_alike
from kproxy.runtime.listeners.port_change import PortChange
from kproxy.runtime.network import ConfigChange, make_upstream
from kproxy.runtime.upstreams.upstream import Upstream

from .dispatcher import words_of
from .messages import NetworkTerms, pack
from .pool_network import PoolNetwork


class PoolChange(ConfigChange):
    """Change of `network` to another config, of which the workers are told, too. Blocks when it is made. Raises
    UnusableSetting, and nothing has changed then."""

    def __init__(self, network: PoolNetwork, config: Config) -> None:
        super().__init__(config)
        self.network, self.packed = network, pack(config)
        self.words = words_of(config, network.dispatcher.words)
        self.compared: dict[tuple[str, str], Ends] = {}
        before = network.config
        marks, marks_before = config.marks(), before.marks()
        former = self.find_moves(network.former, before.listeners, before.clusters)
        earlier = before.model_copy(update={"clusters": {**former, **before.clusters}})
        marks_before |= {name: cluster.mark or 0 for name, cluster in former.items()}
        for name, cluster in config.clusters.items():
            old = before.clusters.get(name)
            if old is not None and not is_reached_alike(old, cluster):
                self.fates[name] = "forgotten"  # unless it is found to be the same
        pairs = [(name, name) for name in self.fates] + [(move.before, move.after) for move in self.moves]
        for pair in dict.fromkeys(pairs):
            new = self.upstream(pair[1], config, marks[pair[1]])
            with suppress(UnusableSetting):  # files of the old config may be gone: the cluster cannot be asked
                self.compared[pair] = self.upstream(pair[0], earlier, marks_before[pair[0]]), new

    @property
    def told(self) -> PoolChange:
        return self

    def prepare(self) -> PortChange:
        network = self.network
        return network.port_service.prepare(self.config, network.dispatcher.entrances(self.words))

    def ends(self) -> Mapping[tuple[str, str], Ends]:
        return self.compared

    def in_use(self) -> Mapping[str, bool]:
        return {name: topology.is_used for name, topology in self.network.topologies.items()}

    def upstream(self, name: str, config: Config, mark: int) -> Upstream:
        network = self.network
        return make_upstream(name, config, mark, network.reactor, network.counts, network.port_service.own)

    def commit(self) -> None:
        """Put the supervisor's half in force. Workers get no clients until they have done so with theirs."""
        network, config, ports = self.network, self.config, self.ports
        assert isinstance(ports, PortChange), "it is open"
        before, limits = network.config, config.limits
        self.follow_removed(network.former, before.clusters)
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
            found[name].was_used |= name in self.used
        return found

    # ---- for workers

    def terms(self) -> NetworkTerms:
        """Return the terms of the config in force, which may be a later one by now."""
        return self.network.terms()

    def has_taken(self, worker: Any) -> None:
        """Give a worker clients again, which has put the config in force."""
        self.network.pool.has_taken(worker)
