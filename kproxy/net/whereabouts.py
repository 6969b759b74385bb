"""Locator of nodes by address, for clusters with transparent listeners: kproxy asks the brokers itself.

Elsewhere the answers that clients get are rewritten, and what they say is known from that. Here they pass unread, and
where a diverted connection goes is an address only. So kproxy asks Metadata for the brokers now and then, looks their
names up, and finds the node of a connection by its destination. Until then, and where the brokers do not answer it,
there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from structlog.typing import FilteringBoundLogger

from kproxy.core.rewrite import is_reachable
from kproxy.core.topics import brokers_request

from .driven import HostPort, host_port
from .survey import Survey
from .upstream import Upstream

EVERY = 300.0
"""Seconds between two questions; clients ask for new brokers as often (metadata.max.age.ms)."""


class Whereabouts(Survey):
    """Locator of one cluster. `nodes` are those that the brokers have named, by IP address and port."""

    def __init__(self, upstream: Upstream, log: FilteringBoundLogger) -> None:
        super().__init__(upstream, self, EVERY, log, brokers_request)
        self.named: dict[int, HostPort] = {}
        self.nodes: dict[HostPort, int] = {}

    def learn(self, body: Mapping[str, Any], broker_name: object, own: bool = False) -> None:
        """Take the brokers of an answer; of more than a cluster may have, the first ones."""
        nodes = [(one["node_id"], one["host"], one["port"]) for one in body["brokers"]]
        found = [(node, (host, port)) for node, host, port in nodes if is_reachable(host, port)]
        self.named = dict(found[: self.upstream.topology.most])

    async def ask(self) -> None:
        """Ask, and find the addresses of all brokers that are named. Raises OSError and DecodeError."""
        await super().ask()
        before, self.nodes = self.nodes, {}
        for node, place in self.named.items():
            with suppress(OSError):  # of those that cannot be found, nobody gets the address
                endpoints = self.upstream.resolver.known(place) or await self.upstream.resolver.look_up(place)
                self.nodes.update({host_port(sockaddr): node for _, sockaddr in endpoints})
        if self.nodes != before:
            self.log.info("nodes found", nodes=sorted(set(self.nodes.values())))
