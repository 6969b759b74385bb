"""Where clients come in: the doors of all listeners, and the state file that keeps their ports over restarts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.config import Config, ListenerConfig
from kproxy.errors import WeDidWrong
from kproxy.rules.address import Address
from kproxy.rules.kinds.advertise import Advertise

from .counts import Counts
from .doors import Arrived, Doors, Places
from .driven import HostPort
from .lobby import Lobby
from .named_port import NamedPort
from .reactor import Reactor
from .resolve import Endpoint, ask
from .state import Nodes, Ports, StateWriter, read_state
from .topology import Topology


@dataclass(frozen=True, slots=True)
class Asked:
    """The nodes that a response names to a client, and how they are to appear to it. `local_host`: the address that
    the client has connected to."""

    listener: str
    nodes: Mapping[int, HostPort]
    advertise: Advertise
    local_host: str


class WaysIn(Protocol):
    """What a server needs of where its clients come in."""

    async def open(self) -> None: ...
    def close(self) -> None: ...
    def use_rules(self, rules: Sequence[Advertise]) -> None: ...
    def port(self, listener: str) -> int: ...
    def ports_of_nodes(self, listener: str) -> Mapping[int, int]: ...

    def ensure(self, asked: Asked, then: Callable[[Places], object]) -> Places | None:
        """Have a place for each of these nodes. Returns it, or None: `then` is told when it is known."""


class Entrance:
    """The one of this process. `arrived` gets the clients of each listener; `topologies` are of the clusters; `counts`
    has those that were sent away before that.

    `rules` are all that may say something about advertising, so that their ports can be opened before anybody asks.
    """

    def __init__(
        self, config: Config, reactor: Reactor, arrived: Mapping[str, Arrived], topologies: Mapping[str, Topology],
        counts: Counts, log: FilteringBoundLogger, rules: Sequence[Advertise] = (),
    ) -> None:  # fmt: skip
        self.topologies, self.rules = topologies, rules
        self.lobby = lobby = Lobby(reactor, config.limits, counts, log)
        named: dict[Address, NamedPort] = {}
        self.doors = {
            each.name: Doors(each, reactor, arrived[each.name], lobby, log, named_port(each, named, lobby))
            for each in config.listeners
        }
        path = config.state
        self.state = None if path is None else StateWriter(Path(path), reactor, self.snapshot)

    async def open(self) -> None:
        """Raises WeDidWrong, and DocumentError for a state file that cannot be used."""
        ports, nodes = read_state(self.state.path) if self.state is not None else ({}, {})
        for doors in self.doors.values():
            doors.open(await endpoints(doors.config))
        self.restore(ports, nodes)

    def close(self) -> None:
        """Nobody comes in any more."""
        for doors in self.doors.values():
            doors.close()
        self.lobby.close()

    def port(self, listener: str) -> int:
        """Its bootstrap port."""
        return self.doors[listener].port

    def ports_of_nodes(self, listener: str) -> Mapping[int, int]:
        """Node → port of this listener that is open for it."""
        return self.doors[listener].of_nodes()

    def ensure(self, asked: Asked, then: Callable[[Places], object] | None = None) -> Places:
        """Where clients reach these nodes; learns where the nodes are."""
        doors = self.doors[asked.listener]
        changed = self.topologies[doors.config.cluster].learn(asked.nodes)
        before = doors.remembered()
        places = doors.places(asked.nodes, asked.advertise, asked.local_host)
        if changed or before != doors.remembered():
            self.changed()
        return places

    def use_rules(self, rules: Sequence[Advertise]) -> None:
        """From now on rules may say this about advertising; ports that they fix are opened."""
        self.rules = rules
        for doors in self.doors.values():
            if doors.by_port:
                doors.open_for(rules)

    # ---- state

    def restore(self, ports: Ports, nodes: Nodes) -> None:
        """Ports of nodes that clients may remember are open before the first client asks.

        Ranges that config and rules do not have any more are left out, and leave the file with the next change.
        """
        for name, known in nodes.items():
            if name in self.topologies:
                self.topologies[name].learn(known)
        for doors in self.doors.values():
            doors.open_for(self.rules)
            for first, last in doors.known_ranges(self.rules):
                remembered = ports.get(f"{doors.name} {first}-{last}")
                if remembered:
                    doors.range_of(first, last, remembered).restore()

    def snapshot(self) -> tuple[Ports, Nodes]:
        ports = {
            f"{doors.name} {first}-{last}": remembered
            for doors in self.doors.values()
            for (first, last), remembered in doors.remembered().items()
        }
        return ports, {name: dict(topology.nodes) for name, topology in self.topologies.items()}

    def changed(self) -> None:
        if self.state is not None:
            self.state.changed()


def named_port(config: ListenerConfig, named: dict[Address, NamedPort], lobby: Lobby) -> NamedPort | None:
    """Where names are looked at, if the listener has any; the same for all on one port."""
    if not config.hosts:
        return None
    return named.setdefault(config.bind, NamedPort(lobby)) if config.bind.port else NamedPort(lobby)


async def endpoints(config: ListenerConfig) -> list[Endpoint]:
    """The addresses of its `bind`. Raises WeDidWrong."""
    bind = config.bind
    try:
        return await trio.to_thread.run_sync(ask, (bind.host, bind.port))
    except OSError as error:
        raise WeDidWrong(f"listener {config.name} cannot bind {bind}: {error.strerror}") from error
