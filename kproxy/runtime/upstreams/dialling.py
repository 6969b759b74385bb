"""Types between the dialler of a cluster and those who want its brokers, and the topology: where its nodes are."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Protocol

from kproxy.runtime.driven import AddressPair, HostPort
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.reporting import ConnectionCounts, LogThrottle
from kproxy.runtime.transparent import Route
from kproxy.session.rewrite.context import MOST_NODES
from kproxy.session.sasl.login import LoggedIn


class Cancellable(Protocol):
    """Race or login that is under way."""

    def cancel(self) -> None: ...


class Caller(Protocol):
    """Party that wants to be connected, to `node` or, if that is None, to any broker."""

    node: int | None
    race: Cancellable | None
    route: Route | None
    """Broker and source address to dial, None if the dialler chooses them."""
    anonymous: bool
    """True if the socket is handed over without a login of kproxy's own."""

    @property
    def origin(self) -> AddressPair | None:
        """Return the ends of the client's connection; None: it is kproxy's own wish."""

    def connected(self, sock: socket.SocketType, server: HostPort, login: LoggedIn | None = None) -> None:
        """Take the socket. `login`: how kproxy has logged in there, where it does that itself."""

    def unreachable(self, reason: str, refused: bool = False) -> None:
        """Take the reason why there is no socket. `refused`: the broker does not take kproxy's credentials."""


class Dialler(Protocol):
    """Cluster whose brokers can be dialled: the part of `upstream.Upstream` that requests of kproxy's own use."""

    name: str
    reactor: Reactor
    counts: ConnectionCounts
    log: LogThrottle
    topology: Topology
    connect_timeout: float
    handshake_timeout: float

    def dial(self, caller: Caller) -> None:
        """Call `caller.connected` or `.unreachable`, now or later; until then `caller.race` can be cancelled."""


class Topology:
    """Map of node id → (host, port). Ids below -1 are controllers (`session.rewrite.addresses.controller_id`).

    Beyond `most` nodes, those named longest ago are removed, and connections to them go to a bootstrap server.
    `number`: id of this topology among those of its cluster, in all processes. `was_used`: clients had received nodes
    of the cluster before these were removed.
    """

    number = 0

    def __init__(self, most: int = MOST_NODES) -> None:
        self.most = most
        self.nodes: dict[int, HostPort] = {}
        self.was_used = False

    @property
    def is_used(self) -> bool:
        """Return True if clients have received nodes of the cluster."""
        return self.was_used or bool(self.nodes)

    def learn(self, nodes: Mapping[int, HostPort]) -> dict[int, HostPort]:
        """Remember these nodes; return those that were not known, or elsewhere."""
        known = self.nodes
        changed: dict[int, HostPort] = {}
        for node, (host, port) in nodes.items():
            address = host, port
            if known.pop(node, None) != address:
                changed[node] = address
            known[node] = address  # the last one, as the newest
        while len(known) > self.most:
            del known[next(iter(known))]
        return changed
