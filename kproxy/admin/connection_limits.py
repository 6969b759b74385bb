"""Places that those who ask share: connections, handshakes and bytes of bodies, each with a limit.

Strategy. One who asks a lot must not have all places. A limit for each address would be wrong either way: many share
the address of a gateway, and whoever is alone may have all there is. So nothing is limited but the sum; once all places
are taken, a network that has fewer than another gets one of that other's, and it is the one that has said nothing for
the longest time. Of one network nobody makes room for another of the same, save those who are late already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Protocol, TypeVar

from starlette.requests import Request

from kproxy.rules.values.address import network_of
from kproxy.runtime.driven import host_port


class PlaceHolder(Protocol):
    """Holder of a place. `network`: where it comes from; `quiet_since`: when it said something last, of monotonic."""

    @property
    def network(self) -> str: ...
    @property
    def quiet_since(self) -> float: ...


AnyPlaceHolder = TypeVar("AnyPlaceHolder", bound=PlaceHolder)


def to_make_room(held: Collection[AnyPlaceHolder], network: str, late: float = float("-inf")) -> AnyPlaceHolder | None:
    """Return the one whose place somebody of this network gets, where all are taken; None: nobody's.

    It is one of the network that has the most, if that still has no fewer than this one afterwards, or if it has said
    nothing since `late`.
    """
    counts = Counter(one.network for one in held)
    largest = max(counts, key=counts.__getitem__, default=network)
    quiet = min((one for one in held if one.network == largest), key=lambda one: one.quiet_since, default=None)
    if quiet is None or (counts[largest] - 1 < counts[network] + 1 and quiet.quiet_since >= late):
        return None
    return quiet


def network_of_peer(request: Request) -> str:
    """Return the network that a request comes from."""
    return "" if request.client is None else network_of(host_port(request.client)[0])


class BodyBytes:
    """Counter of the bytes of all bodies that are there now, by network."""

    def __init__(self) -> None:
        self.total = 0
        self.by_network: Counter[str] = Counter()

    def add(self, network: str, size: int) -> None:
        """Count bytes that have come, or are gone where `size` is below zero."""
        self.total += size
        self.by_network[network] += size
        if not self.by_network[network]:
            del self.by_network[network]

    def are_too_many(self, network: str, most: int) -> bool:
        """Return True if there are more than `most`, and this network has more than its part of them: with others
        that have little, all of them have less than twice as many."""
        return self.total > most and self.by_network[network] * len(self.by_network) > most
