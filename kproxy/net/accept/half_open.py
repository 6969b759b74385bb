"""Clients in the middle of a handshake: how many one address may have, so that it does not keep the others out."""

from __future__ import annotations

from collections import Counter

from kproxy.net.descriptors import Capacity
from kproxy.net.loop.turn_order import network_of

SHARE = 4
"""One address may have one in so many of all connections that there is room for."""
FEWEST = 16
"""So many in any case."""


class HalfOpen:
    """Counter of handshakes under way, by address. Each takes a connection's place for as long as
    `handshake_timeout`."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.by_address: Counter[str] = Counter()
        self.total = 0

    def refusal(self, host: str) -> tuple[str, str] | None:
        """Return (cause, reason) if no more handshakes may begin from `host` now, else None."""
        most = max(FEWEST, self.capacity.connections // SHARE)
        if self.by_address.get(network_of(host), 0) < most:
            return None
        return "handshakes", f"{network_of(host)} has {most} handshakes under way, no more are allowed"

    def begin(self, host: str) -> None:
        self.by_address[network_of(host)] += 1
        self.total += 1

    def end(self, host: str) -> None:
        self.total -= 1
        network = network_of(host)
        self.by_address[network] -= 1
        if not self.by_address[network]:
            del self.by_address[network]
