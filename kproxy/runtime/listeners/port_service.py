"""Port service of a process: the ports of all listeners, and the state file that keeps them over restarts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.rules.kinds.advertise import Advertise
from kproxy.rules.values.address import Address
from kproxy.runtime.capacity import Capacity, ConnectionPlaces
from kproxy.runtime.config.limits import Limits
from kproxy.runtime.driven import HostPort
from kproxy.runtime.io.preread import Preread
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.reporting import ConnectionCounts
from kproxy.runtime.upstreams.dialling import Topology
from kproxy.runtime.upstreams.resolve import OwnPorts

from .listener_ports import ClientAddresses, ListenerPorts
from .named_port import NamedPort, OnClient
from .port_change import LeftPorts, PortChange, PreparedPorts
from .port_pool import KnownNodes, KnownPorts, StateWriter, read_state

if TYPE_CHECKING:
    from kproxy.app.config.document import Config

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AddressRequest:
    """Nodes that a response names to a client, and how they are to appear to it. `local_host`: the address that the
    client has connected to."""

    listener: str
    nodes: Mapping[int, HostPort]
    advertise: Advertise
    local_host: str
    topology: Topology
    """Topology of the cluster that has named them, which learns where they are."""
    left: LeftPorts | None = None
    """Ports that the listener had, if it is gone or somewhere else: its clients were told of no others."""


class PortService(Protocol):
    """Ports at which clients come in, in this process or in another."""

    own: OwnPorts

    async def open(self) -> None: ...
    def prepare(self, config: Config, arrived: Mapping[str, OnClient]) -> PreparedPorts: ...
    def set_topologies(self, topologies: Mapping[str, Topology]) -> None: ...
    def prune(self, listener: str) -> None: ...
    def close(self) -> None: ...
    def use_rules(self, rules: Sequence[Advertise]) -> None: ...
    def admit(self, capacity: Capacity) -> None: ...
    def use_limits(self, limits: Limits) -> None: ...
    @property
    def waiting(self) -> int: ...
    def port(self, listener: str) -> int: ...
    def known_addresses(self, listener: str, nodes: Mapping[int, HostPort]) -> Mapping[int, HostPort]: ...

    def ensure(self, request: AddressRequest, then: Callable[[ClientAddresses], object]) -> ClientAddresses | None:
        """Have an address for each of these nodes. Returns them, or None: `then` is called with them later."""


class LocalPorts:
    """Port service that listens in this process.

    `arrived` gets the clients of each listener; `topologies` are of the clusters; `counts` has those that were refused
    before that. `rules` are all that may say something about advertising, so that their ports can be opened before
    anybody asks.
    """

    def __init__(
        self, config: Config, reactor: Reactor, arrived: Mapping[str, OnClient], topologies: Mapping[str, Topology],
        counts: ConnectionCounts, log: FilteringBoundLogger, rules: Sequence[Advertise] = (),
        places: ConnectionPlaces | None = None,
    ) -> None:  # fmt: skip
        self.topologies, self.rules, self.reactor, self.log = topologies, rules, reactor, log
        self.config, self.arrived = config, arrived
        self.jobs: deque[tuple[Generator[None, None, Any], Callable[[Any], object]]] = deque()
        """Steps of port changes under way, a slice of each in turn, with the function that gets the outcome."""
        self.own = OwnPorts()
        self.preread = Preread(reactor, config.limits, counts, log, places)
        self.by_listener: dict[str, ListenerPorts] = {}
        self.named: dict[Address, NamedPort] = {}
        path = config.state
        self.state = None if path is None else StateWriter(Path(path), reactor, self.snapshot)

    async def open(self) -> None:
        """Open the ports of all listeners. Raises InternalError, and DocumentError for a state file that cannot be
        used."""
        ports, nodes = read_state(self.state.path) if self.state is not None else ({}, {})
        change = self.prepare(self.config, self.arrived)
        await change.open()
        change.commit()
        for _ in self.restore(ports, nodes):
            await trio.lowlevel.checkpoint()

    def prepare(self, config: Config, arrived: Mapping[str, OnClient]) -> PortChange:
        """Return the change to the ports of another config, of which nothing is done yet."""
        return PortChange(self, config, arrived)

    def set_topologies(self, topologies: Mapping[str, Topology]) -> None:
        """Set the topologies of the clusters that there are now; the state file is written anew."""
        self.topologies = topologies
        self.changed()

    def prune(self, listener: str) -> None:
        """Close the ports of a listener that only earlier configs of it had: nobody is left who knows of them."""
        if listener in self.by_listener:
            self.by_listener[listener].prune()
            self.changed()

    def close(self) -> None:
        """Close all ports, and refuse clients whose first bytes are awaited."""
        for listener_ports in self.by_listener.values():
            listener_ports.close()
        self.preread.close()

    def admit(self, capacity: Capacity) -> None:
        self.preread.admit(capacity)

    def use_limits(self, limits: Limits) -> None:
        self.preread.limits = limits

    @property
    def waiting(self) -> int:
        """Return the number of clients that have connected and have not said yet who they are."""
        return len(self.preread.pending)

    def port(self, listener: str) -> int:
        """Return the bootstrap port of a listener; until ports are open, the one that the config has."""
        ports = self.by_listener.get(listener)
        if ports is None:
            return next((one.bind.port for one in self.config.listeners if one.name == listener), 0)
        return ports.port

    def known_addresses(self, listener: str, nodes: Mapping[int, HostPort]) -> Mapping[int, HostPort]:
        """Return where clients of this listener reach those of these nodes that they have been told of; nobody has been
        until ports are open."""
        ports = self.by_listener.get(listener)
        return {} if ports is None else ports.known_addresses(nodes)

    def ensure(self, request: AddressRequest, then: Callable[[ClientAddresses], object]) -> ClientAddresses | None:
        """Return where clients reach these nodes, and learn where the nodes are. None: `then` is called later, as many
        ports have to be opened, or others are being opened."""
        if isinstance(request.left, ListenerPorts):
            return request.left.last_addresses(request.nodes, request.advertise, request.local_host)
        return self.in_turns(self.find_addresses(request, self.by_listener[request.listener]), then)

    def find_addresses(
        self, request: AddressRequest, listener_ports: ListenerPorts
    ) -> Generator[None, None, ClientAddresses]:
        """Learn where the nodes are, and find an address for each."""
        changed = request.topology.learn(request.nodes)
        before = listener_ports.assignments
        addresses = yield from listener_ports.client_addresses(request.nodes, request.advertise, request.local_host)
        if changed or before != listener_ports.assignments:
            self.changed()
        return addresses

    def in_turns(self, job: Generator[None, None, T], then: Callable[[T], object]) -> T | None:
        """Do a part of the job now, and the rest in later turns of the loop, one job after the other. Returns its
        outcome, or None: `then` is called with it."""
        if not self.jobs:
            try:
                next(job)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            self.reactor.soon(self.go_on)
        self.jobs.append((job, then))
        return None

    def go_on(self) -> None:
        """Do one more part of the job that is under way."""
        job, then = self.jobs.popleft()
        try:
            next(job)
        except StopIteration as done:
            then(done.value)
        else:
            self.jobs.appendleft((job, then))
        finally:
            if self.jobs:
                self.reactor.soon(self.go_on)

    def use_rules(self, rules: Sequence[Advertise]) -> None:
        """Set the rules about advertising; ports that they fix are opened."""
        self.rules = rules
        for listener_ports in self.by_listener.values():
            if listener_ports.by_port:
                self.in_turns(listener_ports.open_for(rules), lambda done: None)

    # ---- state

    def restore(self, ports: KnownPorts, nodes: KnownNodes) -> Generator[None]:
        """Open the ports of nodes that clients may remember, before the first client asks.

        Ranges that config and rules do not have any more are left out, and leave the file with the next change.
        """
        for name, known in nodes.items():
            if name in self.topologies:
                self.topologies[name].learn(known)
        for listener_ports in self.by_listener.values():
            yield from listener_ports.open_for(self.rules)
            for first, last in listener_ports.known_ranges(self.rules):
                remembered = ports.get(f"{listener_ports.name} {first}-{last}")
                if remembered:
                    yield from listener_ports.restore(first, last, remembered)

    def snapshot(self) -> tuple[KnownPorts, KnownNodes]:
        ports = {
            f"{listener_ports.name} {first}-{last}": remembered
            for listener_ports in self.by_listener.values()
            for (first, last), remembered in listener_ports.remembered().items()
        }
        return ports, {name: dict(topology.nodes) for name, topology in self.topologies.items()}

    def changed(self) -> None:
        if self.state is not None:
            self.state.changed()
