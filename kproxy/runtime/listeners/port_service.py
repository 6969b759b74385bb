"""Change of all ports to another config: first bind all new ports, then commit all at once.

A listener with unchanged name and `bind` keeps its sockets, even if other settings have changed. New sockets are opened
in addition, and do not accept yet. A port that another listener of this process does not need any more is handed over:
it cannot be bound twice, and waiting clients are kept. If a port cannot be opened, the new ones are closed and the old
config stays. The ports at start are a change from an empty config.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from errno import EADDRINUSE, EPERM
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import UnusableSetting
from kproxy.rules.kinds.advertise import Advertise
from kproxy.rules.values.address import Address
from kproxy.runtime.capacity import Capacity, ConnectionCounts, ConnectionPlaces
from kproxy.runtime.config.network import Limits, ListenerConfig
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.sniff import Preread
from kproxy.runtime.protocols import HostPort
from kproxy.runtime.upstreams.dialler import Topology
from kproxy.runtime.upstreams.resolve import Endpoint, OwnPorts, ask

from .listener_ports import ClientAddresses, ListenerPorts, fixed_ports, is_foreign
from .port_pool import KnownNodes, KnownPorts, StateWriter, read_state
from .sni_port import NamedPort, OnClient

if TYPE_CHECKING:
    from kproxy.app.config.document import Config

LeftPorts = ListenerPorts | int
"""Former ports of a removed or moved listener; in a worker, the number of the ports object in the supervisor."""


class WantedPort(NamedTuple):
    """Port that a listener requires, and its location in the config. `whose`: its owner, for messages."""

    port: int
    node: int | None
    where: tuple[object, ...]
    whose: str = ""


class HandedPort(NamedTuple):
    """Port that moves from one listener to another."""

    giver: ListenerPorts
    taker: ListenerPorts
    port: int
    node: int | None


class PortChange:
    """Change of `service` to the listeners of `config`. `arrived` receives the clients of each."""

    def __init__(self, service: LocalPorts, config: Config, arrived: Mapping[str, OnClient]) -> None:
        self.service, self.listeners, self.arrived = service, config.listeners, arrived
        self.ports: dict[str, ListenerPorts] = {}
        self.handed: list[HandedPort] = []
        self.sharing: list[ListenerPorts] = []
        """Listeners that share the bootstrap port of another one."""
        for each in self.listeners:
            before = service.by_listener.get(each.name)
            if before is None or not has_same_sockets(before.config, each):
                before = ListenerPorts(each, service.reactor, service.preread, service.log, service.own)
            self.ports[each.name] = before
        self.left = {name: ports for name, ports in service.by_listener.items() if self.ports.get(name) is not ports}
        """Ports of listeners that are removed or moved by the change."""

    async def open(self) -> None:
        """Bind all new ports. If this fails, raises UnusableSetting and closes them again."""
        try:
            owners = self.owners()
            for index, each in enumerate(self.listeners):
                ports = self.ports[each.name]
                if not ports.endpoints:
                    ports.resolved(await endpoints(index, each))
                if owners.get(each.bind, ports) is not ports:
                    self.sharing.append(ports)
                for wanted in wanted_ports(index, each, ports):
                    if ports not in self.sharing or wanted.port != ports.port:
                        self.open_port(ports, wanted)
                        await trio.lowlevel.checkpoint()  # a listener may have thousands of them
        except BaseException:
            self.undo()
            raise

    def owners(self) -> dict[Address, ListenerPorts]:
        """Return the owner of the socket of each shared bootstrap port: the listener that has it open, or the first."""
        owners: dict[Address, ListenerPorts] = {}
        for each in self.listeners:
            ports = self.ports[each.name]
            if each.hosts and each.bind.port and (ports.by_port.get(ports.port) or each.bind not in owners):
                owners[each.bind] = ports
        return owners

    def open_port(self, ports: ListenerPorts, wanted: WantedPort) -> None:
        """Bind a port, or plan its handover from another listener. Raises UnusableSetting."""
        try:
            ports.stage(wanted.port, wanted.node)
        except OSError as error:
            holder = self.holder(ports, wanted.port) if error.errno == EADDRINUSE else None
            need = "" if holder is None else self.need(holder, wanted.port)
            if holder is not None and not need:
                holder.promise(wanted.port)
                self.handed.append(HandedPort(holder, ports, wanted.port, wanted.node))
                return
            where = f"{ports.config.bind.host} port {wanted.port}{wanted.whose}"
            why = f"{error.strerror}, CAP_NET_ADMIN is needed" if error.errno == EPERM else error.strerror
            by = f", by {need}" if need else ""
            raise UnusableSetting(wanted.where, f"listener {ports.name} cannot bind {where}: {why}{by}") from error

    def holder(self, ports: ListenerPorts, port: int) -> ListenerPorts | None:
        for each in self.service.by_listener.values():
            same = each.config.bind.host == ports.config.bind.host and each.foreign == ports.foreign
            if each is not ports and same and each.by_port.get(port):
                return each
        return None

    def need(self, holder: ListenerPorts, port: int) -> str:
        """Return the use of a port after the change, for messages; empty: none."""
        for each in self.listeners:
            if self.ports[each.name] is holder:
                return holder.needs(port, each)
        return ""

    def commit(self) -> None:
        service = self.service
        for giver, taker, port, node in self.handed:
            taker.take(port, node, giver.give(port))
        for ports in self.left.values():
            ports.close_all()
        for named in service.named.values():
            named.tenants.clear()
        kept: dict[Address, NamedPort] = {}
        for each in self.listeners:
            ports = self.ports[each.name]
            if ports in self.sharing:
                ports.by_port.setdefault(ports.port, [])
            ports.use(each, self.arrived[each.name], named_port(each, service, kept))
        for ports in self.ports.values():
            ports.begin()
        service.by_listener, service.named = self.ports, kept

    def undo(self) -> None:
        """Close the ports that `open` has bound, and withdraw promises."""
        for ports in (*self.ports.values(), *(handed.giver for handed in self.handed)):
            ports.unstage()


def has_same_sockets(before: ListenerConfig, after: ListenerConfig) -> bool:
    """Return True if a listener can keep its sockets: address and type are unchanged."""
    return before.bind == after.bind and is_foreign(before) == is_foreign(after)


def wanted_ports(index: int, config: ListenerConfig, ports: ListenerPorts) -> Iterator[WantedPort]:
    """Yield the bootstrap port, and the fixed ports of nodes."""
    yield WantedPort(ports.port, None, ("listeners", index, "bind"))
    if config.advertise:
        fixed = fixed_ports(config.advertise)
        for node, address in (config.advertise.nodes or {}).items():
            where = ("listeners", index, "advertise", "nodes", node)
            yield WantedPort(address.port, fixed[address.port], where, f" of node {node}")


def named_port(config: ListenerConfig, service: LocalPorts, kept: dict[Address, NamedPort]) -> NamedPort | None:
    """Return the shared port if clients select this listener by host name. It is the same for all listeners on one
    port."""
    if not config.hosts:
        return None
    if not config.bind.port:
        return NamedPort(service.preread)
    return kept.setdefault(config.bind, service.named.get(config.bind) or NamedPort(service.preread))


async def endpoints(index: int, config: ListenerConfig) -> list[Endpoint]:
    """Resolve the listener's `bind`. Raises UnusableSetting."""
    bind = config.bind
    try:
        return await trio.to_thread.run_sync(ask, (bind.host, bind.port))
    except OSError as error:
        where = ("listeners", index, "bind")
        raise UnusableSetting(where, f"listener {config.name} cannot bind {bind}: {error.strerror}") from error


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AddressRequest:
    """Nodes of a response to a client, and how to advertise them. `local_host`: the address that the client connected
    to."""

    listener: str
    nodes: Mapping[int, HostPort]
    advertise: Advertise
    local_host: str
    topology: Topology
    """Topology of the nodes' cluster, which stores their addresses."""
    left: LeftPorts | None = None
    """Former ports if the listener is removed or moved: its clients know only these."""


class LocalPorts:
    """Port service that listens in this process.

    `arrived` receives the clients of each listener. `topologies` are by cluster. `counts` counts clients that are
    refused before a listener receives them. `rules` are all rules with advertise settings, so that their ports are open
    before the first request.
    """

    def __init__(
        self, config: Config, reactor: Reactor, arrived: Mapping[str, OnClient], topologies: Mapping[str, Topology],
        counts: ConnectionCounts, log: FilteringBoundLogger, rules: Sequence[Advertise] = (),
        places: ConnectionPlaces | None = None,
    ) -> None:  # fmt: skip
        self.topologies, self.rules, self.reactor, self.log = topologies, rules, reactor, log
        self.config, self.arrived = config, arrived
        self.jobs: deque[tuple[Generator[None, None, Any], Callable[[Any], object]]] = deque()
        """Running port jobs, each with the function that receives its result. They run in slices."""
        self.own = OwnPorts()
        self.preread = Preread(reactor, config.limits, counts, log, places)
        self.by_listener: dict[str, ListenerPorts] = {}
        self.named: dict[Address, NamedPort] = {}
        path = config.state
        self.state = None if path is None else StateWriter(Path(path), reactor, self.snapshot)

    async def open(self) -> None:
        """Open the ports of all listeners. Raises InternalError, or DocumentError for an unusable state file."""
        ports, nodes = read_state(self.state.path) if self.state is not None else ({}, {})
        change = self.prepare(self.config, self.arrived)
        await change.open()
        change.commit()
        for _ in self.restore(ports, nodes):
            await trio.lowlevel.checkpoint()

    def prepare(self, config: Config, arrived: Mapping[str, OnClient]) -> PortChange:
        """Return a change to the ports of another config. Nothing is opened yet."""
        return PortChange(self, config, arrived)

    def set_topologies(self, topologies: Mapping[str, Topology]) -> None:
        """Set the topologies of the current clusters, and write the state file."""
        self.topologies = topologies
        self.changed()

    def prune(self, listener: str) -> None:
        """Close the ports that only earlier configs of a listener used, when clients with these addresses are gone."""
        if listener in self.by_listener:
            self.by_listener[listener].prune()
            self.changed()

    def close(self) -> None:
        """Close all ports, and refuse clients in preread."""
        for listener_ports in self.by_listener.values():
            listener_ports.close()
        self.preread.close()

    def admit(self, capacity: Capacity) -> None:
        self.preread.admit(capacity)

    def use_limits(self, limits: Limits) -> None:
        self.preread.limits = limits

    @property
    def waiting(self) -> int:
        """Return the number of clients in preread: connected, but not identified yet."""
        return len(self.preread.pending)

    def port(self, listener: str) -> int:
        """Return the bootstrap port of a listener; before ports are open, the one from the config."""
        ports = self.by_listener.get(listener)
        if ports is None:
            return next((one.bind.port for one in self.config.listeners if one.name == listener), 0)
        return ports.port

    def known_addresses(self, listener: str, nodes: Mapping[int, HostPort]) -> Mapping[int, HostPort]:
        """Return the addresses for clients of this listener to reach these nodes, if assigned. Empty before ports are
        open."""
        ports = self.by_listener.get(listener)
        return {} if ports is None else ports.known_addresses(nodes)

    def ensure(self, request: AddressRequest, then: Callable[[ClientAddresses], object]) -> ClientAddresses | None:
        """Return the addresses of these nodes for clients, and learn the nodes' own addresses. None: `then` is called
        later, because many ports have to be opened or other jobs are running."""
        if isinstance(request.left, ListenerPorts):
            return request.left.last_addresses(request.nodes, request.advertise, request.local_host)
        return self.in_turns(self.find_addresses(request, self.by_listener[request.listener]), then)

    def find_addresses(
        self, request: AddressRequest, listener_ports: ListenerPorts
    ) -> Generator[None, None, ClientAddresses]:
        """Learn the nodes' addresses, and find a client address for each."""
        changed = request.topology.learn(request.nodes)
        before = listener_ports.assignments
        addresses = yield from listener_ports.client_addresses(request.nodes, request.advertise, request.local_host)
        if changed or before != listener_ports.assignments:
            self.changed()
        return addresses

    def in_turns(self, job: Generator[None, None, T], then: Callable[[T], object]) -> T | None:
        """Run a part of the job now, and the rest in later turns of the loop, one job after another. Returns its
        result, or None: `then` is called with it."""
        if not self.jobs:
            try:
                next(job)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            self.reactor.soon(self.run_first_job)
        self.jobs.append((job, then))
        return None

    def run_first_job(self) -> None:
        job, then = self.jobs.popleft()
        try:
            next(job)
        except StopIteration as done:
            then(done.value)
        else:
            self.jobs.appendleft((job, then))
        finally:
            if self.jobs:
                self.reactor.soon(self.run_first_job)

    def use_rules(self, rules: Sequence[Advertise]) -> None:
        """Set the rules with advertise settings, and open their fixed ports."""
        self.rules = rules
        for listener_ports in self.by_listener.values():
            if listener_ports.by_port:
                self.in_turns(listener_ports.open_for(rules), lambda done: None)

    # ---- state

    def restore(self, ports: KnownPorts, nodes: KnownNodes) -> Generator[None]:
        """Open the ports of nodes that clients may have cached, before the first request.

        Ranges that are not in config and rules any more are skipped, and removed from the file at the next change.
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
