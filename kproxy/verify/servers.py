"""Servers of a record that does not name clusters, as tcpdump's do not: whether all of them are of one cluster.

Names of topics, producer ids and node numbers mean something within one cluster only. What ties servers together are
ids that no two clusters have: a cluster's own, those of topics, and the addresses that Metadata tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from kproxy.wire.table.api_keys import METADATA

from .facts import Fact, ReadFact, TopicToldFact, WriteFact
from .read_exchange import ReadExchange

MOST_SERVERS = 10_000
MOST_MARKS = 200_000
"""Ids and addresses that are remembered, some 40 MB."""


class KnownServers:
    """Servers by their addresses, in sets of which the record tells that they are of one cluster. `apart`: how many
    such sets there are; `many`: there was no room for one more server."""

    def __init__(self) -> None:
        self.parents: dict[str, str] = {}
        self.marks: dict[str, str] = {}
        self.apart = 0
        self.many = False

    @property
    def one_cluster(self) -> bool:
        """Return True if all servers are certainly of one cluster."""
        return self.apart <= 1 and not self.many

    def learn(self, server: str, exchange: ReadExchange | None, facts: Iterable[Fact]) -> None:
        """Take in what an exchange with a server tells; `exchange` is None if it could not be read."""
        if server not in self.parents:
            if len(self.parents) >= MOST_SERVERS:
                self.many = True
                return
            self.parents[server] = server
            self.apart += 1
            self.tie(server, server)
        for mark in marks_of(exchange, facts):
            self.tie(server, mark)

    def tie(self, server: str, mark: str) -> None:
        """Put a server into the set of the one that showed the same id or address first."""
        first = self.marks.get(mark)
        if first is None:
            if len(self.marks) < MOST_MARKS:
                self.marks[mark] = server
            return
        one, other = self.root(first), self.root(server)
        if one != other:
            self.parents[other] = one
            self.apart -= 1

    def root(self, server: str) -> str:
        """Return the server that stands for the set of this one."""
        parents = self.parents
        while parents[server] != server:
            parents[server] = server = parents[parents[server]]
        return server


def marks_of(exchange: ReadExchange | None, facts: Iterable[Fact]) -> Iterable[str]:
    """Yield ids and addresses in an exchange that only servers of one cluster have."""
    if exchange is not None and exchange.key == METADATA and exchange.response is not None:
        cluster = exchange.response.get("cluster_id")
        if cluster and exchange.text(cluster):
            yield f"cluster {cluster}"
        yield from (
            f"{one['host']}:{one['port']}" for one in exchange.response.get("brokers") or () if is_address(one["host"])
        )
    yield from (
        f"topic {fact.topic_id}"
        for fact in facts
        if isinstance(fact, ReadFact | WriteFact | TopicToldFact) and fact.topic_id and is_confirmed(fact)
    )


def is_confirmed(fact: Fact) -> bool:
    """Return True unless a fact tells an id that only a request has named."""
    return not isinstance(fact, WriteFact) or fact.result == "ok"


def is_address(host: str) -> bool:
    """Return True if a host is told as an address that is the same one for everybody."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return False
