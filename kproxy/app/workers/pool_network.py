"""Network of a supervisor: its ports, its topologies of clusters, and the terms of the config for workers.

Strategy. Workers ask for addresses and report nodes while they have the old config or the next one. So messages carry
numbers: that of the listener's ports, which changes when the listener moves, and that of the cluster's topology, which
changes when the topology is discarded. A message with an old number does not change current state, and clients of a
removed listener get the same answers as before until they have had time to end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, NamedTuple

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.app.config.document import Config
from kproxy.base.errors import UnusableSetting
from kproxy.rules.kinds.advertise import Advertise
from kproxy.runtime.capacity import ConnectionCounts, find_capacity, log_capacity
from kproxy.runtime.cluster_identity import Ends, FormerListeners
from kproxy.runtime.config.network import is_reached_alike
from kproxy.runtime.io.channel import Channel
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.listeners.listener_ports import ClientAddresses, ListenerPorts
from kproxy.runtime.listeners.port_service import AddressRequest, LocalPorts, PortChange
from kproxy.runtime.network import ConfigChange, make_upstream
from kproxy.runtime.protocols import HostPort
from kproxy.runtime.upstreams.dialler import Topology
from kproxy.runtime.upstreams.upstream import Upstream

from .dispatcher import Dispatcher, words_of
from .messages import (
    ClusterNodes,
    ListenerPlace,
    NetworkSettings,
    SupervisorCalls,
    WorkerCalls,
    pack,
    unpack_advertise,
)
from .pool_worker import PoolWorker
from .worker_pool import WorkerPool

LEFT_FOR = 30.0
"""Seconds beyond `drain_timeout` during which the addresses for clients of a removed listener are kept."""


class SharedTopology(Topology):
    """Topology of one cluster, shared with the workers: `changed` gets new and moved nodes."""

    numbers = count(1)

    def __init__(self, most: int, changed: Callable[[int, Mapping[int, HostPort]], object]) -> None:
        super().__init__(most)
        self.number, self.changed = next(self.numbers), changed

    def learn(self, nodes: Mapping[int, HostPort]) -> dict[int, HostPort]:
        found = super().learn(nodes)
        if found:
            self.changed(self.number, found)
        return found


class Pruning(NamedTuple):
    """Ports of a listener that only configs before `config` had, and the channels of workers that may use them."""

    config: int
    channels: list[Channel]


class PoolNetwork:
    """Network of the config in force. `number`: the number of earlier configs. `others`: clusters that this config has
    replaced."""

    def __init__(
        self, config: Config, pool: WorkerPool, reactor: Reactor, log: FilteringBoundLogger, rules: Sequence[Advertise]
    ) -> None:
        self.config, self.packed, self.number = config, pack(config), 0
        self.pool, self.reactor, self.log = pool, reactor, log
        self.counts = ConnectionCounts()
        self.topologies = {name: self.topology(name, config) for name in config.clusters}
        self.others: tuple[str, ...] = ()
        self.former = FormerListeners()
        self.dispatcher = Dispatcher(config, pool, self.topologies, self.counts, log)
        arrived = self.dispatcher.entrances(self.dispatcher.words)
        self.port_service = LocalPorts(config, reactor, arrived, self.topologies, self.counts, log, rules)
        self.port_service.own.changed = lambda address, now: pool.send(WorkerCalls.listens, address, now)
        self.dispatcher.ports_of = lambda listener: self.port_service.by_listener[listener].number
        self.left: dict[int, ListenerPorts] = {}
        """Ports of removed listeners, by their number."""
        self.pruning: dict[str, Pruning] = {}
        """By listener: ports to close when all workers have released them."""

    def topology(self, cluster: str, config: Config) -> SharedTopology:
        """Return a topology of this cluster without nodes."""
        return SharedTopology(config.limits.max_nodes, partial(self.share_nodes, cluster))

    def share_nodes(self, cluster: str, topology: int, nodes: Mapping[int, HostPort]) -> None:
        self.pool.send(WorkerCalls.learn, cluster, topology, nodes)

    def terms(self) -> NetworkSettings:
        """Return the terms of the config in force, with all nodes known now."""
        listeners = {
            name: ListenerPlace(ports.number, ports.port) for name, ports in self.port_service.by_listener.items()
        }
        clusters = {name: ClusterNodes(one.number, dict(one.nodes)) for name, one in self.topologies.items()}
        return NetworkSettings(self.number, listeners, clusters, self.others)

    # ---- messages from workers

    def register_handlers(self, worker: PoolWorker) -> None:
        """Register the handlers for a worker with a new process; its previous process has ended."""
        assert worker.channel is not None
        channel = worker.channel
        channel.on(SupervisorCalls.find_addresses, self.find_addresses)
        channel.on(SupervisorCalls.pruned, partial(self.pruned, channel))
        for name in list(self.pruning):
            self.prune(name)

    async def find_addresses(
        self, listener: str, nodes: Mapping[int, HostPort], advertise: bytes, local_host: str, ports: int, topology: int
    ) -> ClientAddresses:
        """Return the addresses that clients use for these nodes, when all their ports are open."""
        in_force: ListenerPorts | None = self.port_service.by_listener.get(listener)
        left = None
        if in_force is None or in_force.number != ports:
            left = self.left.get(ports)
            if left is None:
                return dict.fromkeys(nodes)
        outcome: list[ClientAddresses] = []
        done = trio.Event()

        def then(addresses: ClientAddresses) -> None:
            outcome.append(addresses)
            self.reactor.notify(done)

        request = AddressRequest(
            listener, nodes, unpack_advertise(advertise), local_host, self.topology_of(topology), left
        )  # fmt: skip
        addresses = self.port_service.ensure(request, then)
        if addresses is None:
            await done.wait()
            (addresses,) = outcome
        return addresses

    def topology_of(self, number: int) -> Topology:
        """Return the topology of this number; a temporary one if it was discarded."""
        found = [one for one in self.topologies.values() if one.number == number]
        return found[0] if found else Topology(self.config.limits.max_nodes)

    # ---- ports of earlier configs

    def keep_left(self, left: ListenerPorts) -> None:
        """Keep the addresses given to clients of a removed listener for a while."""

        def forget() -> None:
            self.left.pop(left.number, None)

        self.left[left.number] = left
        end = monotonic() + self.config.limits.drain_timeout + LEFT_FOR
        self.reactor.call_at(end, forget)

    def prune_later(self, listener: str) -> None:
        """Close the ports of a listener that only earlier configs had, once no worker has connections that use them."""
        channels = [worker.channel for worker in self.pool.workers if worker.ready and worker.channel is not None]
        self.pruning[listener] = Pruning(self.number, channels)
        self.prune(listener)

    def pruned(self, channel: Channel, listener: str, config: int) -> None:
        """Note that a worker has released the ports of earlier configs."""
        waiting = self.pruning.get(listener)
        if waiting is not None and config >= waiting.config and channel in waiting.channels:
            waiting.channels.remove(channel)
            self.prune(listener)

    def prune(self, listener: str) -> None:
        if all(channel.closed for channel in self.pruning[listener].channels):
            del self.pruning[listener]
            self.port_service.prune(listener)


# Change of a supervisor's network to another config: the supervisor opens its own resources here, workers prepare the
# rest.
#
# Strategy. The same as in one process (`runtime.network`), in two halves. The supervisor binds ports, and asks for the
# ids of clusters with a changed address, so that all workers get one answer. Workers read files and make clusters and
# listeners in the prepare step. Once all of them are ready, the supervisor commits its half, in one step of the loop,
# and sends commits to the workers; each gets clients again when it has committed.
class PoolChange(ConfigChange):
    """Change of `network` to another config, together with the workers. Blocks when it is made. Raises UnusableSetting,
    and nothing has changed then."""

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
    def report(self) -> PoolChange:
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
        """Put the supervisor's half in force. Workers get no clients until they have committed theirs."""
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
        network.pool.pause_clients(by_address=bool(limits.max_connections_per_address))
        network.dispatcher.use(config, network.topologies, self.words)
        for name, one in network.port_service.by_listener.items():
            if one.former:
                network.prune_later(name)

    def topologies(self) -> dict[str, Any]:
        """Return the topology of each cluster of the config: the known one, unless it is discarded."""
        known: Mapping[str, Any] = self.network.topologies
        found = {}
        for name in self.config.clusters:
            kept = name in known and self.fates.get(name, "kept") == "kept"
            found[name] = known[name] if kept else self.network.topology(name, self.config)
            found[name].most = self.config.limits.max_nodes
            found[name].was_used |= name in self.used
        return found

    # ---- for workers

    def terms(self) -> NetworkSettings:
        """Return the terms of the config in force, which may be a later one by now."""
        return self.network.terms()

    def has_committed(self, worker: Any) -> None:
        """Allow clients again for a worker that has put the config in force."""
        self.network.pool.has_committed(worker)
