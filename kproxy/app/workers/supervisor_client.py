"""Supervisor in the view of a worker: it gives clients' addresses of nodes, and receives the worker's load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic

from kproxy.app.config.document import Config
from kproxy.rules.kinds.advertise import Advertise
from kproxy.runtime.capacity import Capacity
from kproxy.runtime.config.network import Limits
from kproxy.runtime.io.channel import Channel
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.listeners.listener_ports import ClientAddresses
from kproxy.runtime.listeners.port_service import AddressRequest
from kproxy.runtime.listeners.sni_port import OnClient
from kproxy.runtime.protocols import HostPort
from kproxy.runtime.server import Server
from kproxy.runtime.upstreams.dialler import Topology
from kproxy.runtime.upstreams.resolve import OwnPorts

from .messages import NetworkSettings, SupervisorCalls, WorkerCalls, pack

FRESH = 60.0
"""Seconds for which an address is cached here: a port stays a node's for 300 after its last use (port_pool.py)."""
MOST_ADDRESSES = 20_000
"""Maximum number of cached addresses, by node and way of advertising (listener, rule, local address); then the cache is
cleared."""
SOON = 0.005
"""Seconds for which changes of the load are collected into one notice: the maximum age of the supervisor's numbers."""
BEAT = 1.0
"""Seconds after which the load is reported even if unchanged, as a heartbeat."""

AddressKey = tuple[int, bytes, str]


class RemotePortChange:
    """Change to the ports of another config, which the supervisor has opened. Set its `terms` before `commit`."""

    terms: NetworkSettings

    def __init__(self, service: RemotePorts) -> None:
        self.service = service
        self.left: dict[str, int] = {}

    async def open(self) -> None:
        """Do nothing: the supervisor opens the ports."""

    def commit(self) -> None:
        """Note the ports that the supervisor has opened and closed."""
        after = self.terms.listeners
        for name, place in self.service.terms.listeners.items():
            if name not in after or after[name].number != place.number:
                self.left[name] = place.number
        self.service.terms = self.terms
        self.service.known.clear()  # a node may get another port, because advertising has changed

    def undo(self) -> None:
        """Do nothing: nothing was opened here."""


class RemotePorts:
    """Port service of the supervisor, in the view of a worker's server. `terms` are those of the config in force; set
    `topologies` of the clusters as well."""

    topologies: Mapping[str, Topology]

    def __init__(self, channel: Channel, terms: NetworkSettings, own: Iterable[HostPort] = ()) -> None:
        self.channel, self.terms = channel, terms
        self.known: dict[AddressKey, dict[int, tuple[HostPort, HostPort | None, float]]] = {}
        self.own = OwnPorts(own)
        channel.on(WorkerCalls.learn, self.learn)
        channel.on(WorkerCalls.listens, self.listens)

    async def open(self) -> None:
        """Do nothing: the supervisor has opened the ports."""

    def prepare(self, config: Config, arrived: Mapping[str, OnClient]) -> RemotePortChange:
        """Return the change to the ports of another config; it does nothing here."""
        return RemotePortChange(self)

    def set_topologies(self, topologies: Mapping[str, Topology]) -> None:
        """Set the topologies of the current clusters, with the nodes that the supervisor knows."""
        self.topologies = topologies
        for name, known in self.terms.clusters.items():
            topology = topologies[name]
            if topology.number != known.number:
                topology.nodes.clear()
                topology.number = known.number
            topology.learn(known.nodes)

    def prune(self, listener: str) -> None:
        """Notify the supervisor that this worker has released the ports of earlier configs: it closes them when all
        workers have."""
        self.channel.send(SupervisorCalls.pruned, listener, self.terms.number)

    def use_limits(self, limits: Limits) -> None:
        """Do nothing: the supervisor awaits first bytes."""

    def close(self) -> None:
        """Do nothing: the supervisor closes the ports."""

    def use_rules(self, rules: Sequence[Advertise]) -> None:
        """Do nothing: the supervisor also has the rules."""

    waiting = 0
    """The supervisor has them."""

    def admit(self, capacity: Capacity) -> None:
        """Do nothing: the supervisor admits clients."""

    def port(self, listener: str) -> int:
        return self.terms.listeners[listener].port

    def known_addresses(self, listener: str, nodes: Mapping[int, HostPort]) -> Mapping[int, HostPort]:
        """Return none: the supervisor has the ports and answers questions about them."""
        return {}

    def listens(self, address: HostPort, now: bool) -> None:
        if now:
            self.own.add(address)
        else:
            self.own.discard(address)

    def learn(self, cluster: str, topology: int, nodes: Mapping[int, HostPort]) -> None:
        known = self.topologies.get(cluster)
        if known is not None and known.number == topology:  # otherwise it belongs to another config
            known.learn(nodes)

    def ensure(self, request: AddressRequest, then: Callable[[ClientAddresses], object]) -> ClientAddresses | None:
        """Return the addresses at once if they are cached, otherwise None and call `then` later."""
        request.topology.learn(request.nodes)
        ports = request.left if isinstance(request.left, int) else self.terms.listeners[request.listener].number
        key = ports, pack(request.advertise), request.local_host
        now = monotonic()
        known = self.known.get(key, {})
        addresses: ClientAddresses = {}
        for node, address in request.nodes.items():
            at, client_address, until = known.get(node, (None, None, 0.0))
            if at != tuple(address) or until < now:
                self._ask(request, key, then)
                return None
            addresses[node] = client_address
        return addresses

    def _ask(self, request: AddressRequest, key: AddressKey, then: Callable[[ClientAddresses], object]) -> None:
        def found(addresses: ClientAddresses | None) -> None:
            if addresses is None:  # the supervisor has ended, and this process is about to
                return
            self._remember(request, key, addresses)
            then(addresses)

        ports, advertise, local_host = key
        self.channel.call_then(found, SupervisorCalls.find_addresses, request.listener, request.nodes, advertise,
                               local_host, ports, request.topology.number)  # fmt: skip

    def _remember(self, request: AddressRequest, key: AddressKey, addresses: ClientAddresses) -> None:
        if sum(map(len, self.known.values())) + len(request.nodes) > MOST_ADDRESSES:
            self.known.clear()
        until = monotonic() + FRESH
        self.known.setdefault(key, {}).update(
            {node: ((address[0], address[1]), addresses.get(node), until) for node, address in request.nodes.items()}
        )


class Reporter:
    """Reporter of the worker's number of connections: soon, and before any answer to the supervisor.

    `taken`: number of connections since the process began.
    """

    def __init__(self, channel: Channel, reactor: Reactor, server: Server, taken: Callable[[], int]) -> None:
        self.channel, self.reactor, self.server, self.taken = channel, reactor, server, taken
        self.hosts: set[str] = set()
        self.soon = False
        channel.before_results = self.catch_up

    def changed(self, host: str | None = None) -> None:
        """Report soon that a connection from that address has opened or closed."""
        if host is not None:
            self.hosts.add(host)
        if not self.soon:
            self.soon = True
            self.reactor.call_at(monotonic() + SOON, self.catch_up)

    def report_all(self) -> None:
        """Report soon the number of connections from each address, which was not reported before."""
        self.hosts.update(self.server.per_address)
        self.changed()

    def catch_up(self) -> None:
        """Report changes, if any."""
        if self.soon:
            self.report()

    def report(self) -> None:
        self.soon = False
        server = self.server
        hosts, self.hosts = self.hosts, set()
        addresses = {host: server.per_address.get(host, 0) for host in hosts}
        still_open = len(server.connections) + server.handshaking
        self.channel.send(SupervisorCalls.load, self.taken(), still_open, addresses)

    def beat(self) -> None:
        """Report every `BEAT` seconds."""
        self.report()
        self.reactor.call_at(monotonic() + BEAT, self.beat)
