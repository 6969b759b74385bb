"""Limits shared by all clients of the admin address: connections, TLS handshakes, bytes of bodies.

Only the total is limited. A limit per address would be wrong: many clients share the address of a gateway, and a lone
client may use all. Once the limit is reached, a network with fewer connections evicts the quietest one of the network
with the most. Within one network, only late connections are evicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Protocol, TypeVar

from starlette.requests import Request

from kproxy.rules.values.address import network_of
from kproxy.runtime.protocols import host_port


class LimitedEntry(Protocol):
    """Connection or handshake that counts. `network`: its origin; `quiet_since`: monotonic time of its last
    activity."""

    @property
    def network(self) -> str: ...
    @property
    def quiet_since(self) -> float: ...


AnyEntry = TypeVar("AnyEntry", bound=LimitedEntry)


def entry_to_evict(held: Collection[AnyEntry], network: str, late: float = float("-inf")) -> AnyEntry | None:
    """Return the entry to evict for a connection from this network; None: evict nothing.

    It belongs to the network with the most entries. Afterwards that network still has at least as many as this one, or
    the entry was quiet since `late`.
    """
    counts = Counter(one.network for one in held)
    largest = max(counts, key=counts.__getitem__, default=network)
    quiet = min((one for one in held if one.network == largest), key=lambda one: one.quiet_since, default=None)
    if quiet is None or (counts[largest] - 1 < counts[network] + 1 and quiet.quiet_since >= late):
        return None
    return quiet


def network_of_peer(request: Request) -> str:
    return "" if request.client is None else network_of(host_port(request.client)[0])


class BodyBytes:
    """Bytes of all bodies in memory, by network."""

    def __init__(self) -> None:
        self.total = 0
        self.by_network: Counter[str] = Counter()

    def add(self, network: str, size: int) -> None:
        """Add `size` bytes; a negative size removes them."""
        self.total += size
        self.by_network[network] += size
        if not self.by_network[network]:
            del self.by_network[network]

    def are_too_many(self, network: str, most: int) -> bool:
        """Return True if there are more than `most`, and this network has more than its part of them: with others
        that have little, all of them have less than twice as many."""
        return self.total > most and self.by_network[network] * len(self.by_network) > most
