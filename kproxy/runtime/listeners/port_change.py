"""Change of all ports to those of another config: first all that is new is bound, then all is put in force at once.

Strategy. A listener of the same name and `bind` keeps its sockets, whatever else has changed. All others are opened
beside them, and accept nobody yet. A port that another listener of this process has, and does not need any more, is
handed over instead: it cannot be bound twice, and clients that wait at it are not lost. If anything cannot be opened,
what was is closed, and nothing has changed. The ports of a start are a change from none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from errno import EADDRINUSE, EPERM
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import UnusableSetting
from kproxy.rules.values.address import Address
from kproxy.runtime.config.network import ListenerConfig
from kproxy.runtime.io.preread import Preread
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.upstreams.resolve import Endpoint, OwnPorts, ask

from .listener_ports import ListenerPorts, fixed_ports, is_foreign
from .named_port import NamedPort, OnClient

if TYPE_CHECKING:
    from kproxy.app.config.document import Config

LeftPorts = ListenerPorts | int
"""Ports of a listener that is gone, or somewhere else; in a worker the number by which the supervisor knows them."""


class PreparedPorts(Protocol):
    """Change of ports that is ready, or is made ready by `open`. `left`: by listener, those that are left once it is in
    force."""

    @property
    def left(self) -> Mapping[str, LeftPorts]: ...
    async def open(self) -> None: ...
    def commit(self) -> None: ...
    def undo(self) -> None: ...


class PortOwner(Protocol):
    """Port service whose ports change."""

    by_listener: dict[str, ListenerPorts]
    named: dict[Address, NamedPort]
    reactor: Reactor
    preread: Preread
    own: OwnPorts
    log: FilteringBoundLogger


class WantedPort(NamedTuple):
    """Port without which a listener does not begin, its place in the config, and `whose` it is, for messages."""

    port: int
    node: int | None
    where: tuple[object, ...]
    whose: str = ""


class HandedPort(NamedTuple):
    """Port that one listener gives to another."""

    giver: ListenerPorts
    taker: ListenerPorts
    port: int
    node: int | None


class PortChange:
    """Change of `service` to the listeners of `config`; `arrived` gets the clients of each."""

    def __init__(self, service: PortOwner, config: Config, arrived: Mapping[str, OnClient]) -> None:
        self.service, self.listeners, self.arrived = service, config.listeners, arrived
        self.ports: dict[str, ListenerPorts] = {}
        self.handed: list[HandedPort] = []
        self.sharing: list[ListenerPorts] = []
        """Listeners whose bootstrap port is open at another one, with which they share it."""
        for each in self.listeners:
            before = service.by_listener.get(each.name)
            if before is None or not has_same_sockets(before.config, each):
                before = ListenerPorts(each, service.reactor, service.preread, service.log, service.own)
            self.ports[each.name] = before
        self.left = {name: ports for name, ports in service.by_listener.items() if self.ports.get(name) is not ports}
        """Ports of listeners that are gone, or somewhere else, when the change is in force."""

    async def open(self) -> None:
        """Bind all that is new. Raises UnusableSetting, and nothing is open then that was not before."""
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
        """Return who has the socket of each bootstrap port that listeners share by their hosts: whoever has it, or
        the first."""
        owners: dict[Address, ListenerPorts] = {}
        for each in self.listeners:
            ports = self.ports[each.name]
            if each.hosts and each.bind.port and (ports.by_port.get(ports.port) or each.bind not in owners):
                owners[each.bind] = ports
        return owners

    def open_port(self, ports: ListenerPorts, wanted: WantedPort) -> None:
        """Bind a port, or plan to take it from another listener. Raises UnusableSetting."""
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
        """Return what a port is needed for when the change is in force; empty: for nothing."""
        for each in self.listeners:
            if self.ports[each.name] is holder:
                return holder.needs(port, each)
        return ""

    def commit(self) -> None:
        service = self.service
        for giver, taker, port, node in self.handed:
            taker.take(port, node, giver.give(port))
        for ports in self.left.values():
            ports.leave()
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
        """Close the ports that `open` has bound, and take back what was promised."""
        for ports in (*self.ports.values(), *(handed.giver for handed in self.handed)):
            ports.unstage()


def has_same_sockets(before: ListenerConfig, after: ListenerConfig) -> bool:
    """Return True if a listener can keep its sockets: they are where they were, and made in the same way."""
    return before.bind == after.bind and is_foreign(before) == is_foreign(after)


def wanted_ports(index: int, config: ListenerConfig, ports: ListenerPorts) -> Iterator[WantedPort]:
    """Yield the bootstrap port, and the ports of nodes with a fixed address."""
    yield WantedPort(ports.port, None, ("listeners", index, "bind"))
    if config.advertise:
        fixed = fixed_ports(config.advertise)
        for node, address in (config.advertise.nodes or {}).items():
            where = ("listeners", index, "advertise", "nodes", node)
            yield WantedPort(address.port, fixed[address.port], where, f" of node {node}")


def named_port(config: ListenerConfig, service: PortOwner, kept: dict[Address, NamedPort]) -> NamedPort | None:
    """Return the port on which this listener's clients name a host; the same for all listeners on one port."""
    if not config.hosts:
        return None
    if not config.bind.port:
        return NamedPort(service.preread)
    return kept.setdefault(config.bind, service.named.get(config.bind) or NamedPort(service.preread))


async def endpoints(index: int, config: ListenerConfig) -> list[Endpoint]:
    """Return the addresses of the listener's `bind`. Raises UnusableSetting."""
    bind = config.bind
    try:
        return await trio.to_thread.run_sync(ask, (bind.host, bind.port))
    except OSError as error:
        where = ("listeners", index, "bind")
        raise UnusableSetting(where, f"listener {config.name} cannot bind {bind}: {error.strerror}") from error
