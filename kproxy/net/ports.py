"""Which port of kproxy stands for which node.

Strategy. A client that has cached an address must find the same node behind it, after a restart too. So a node keeps
its port as long as there are others to give away; the first choice is `first + id`, which is the same on every kproxy
of the same config even without a state file. Controllers (ids below -1) take theirs from the top of the range, out of
the way. Only when all are taken is one given to another node, and only if nobody has used it for `FORGOTTEN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic

FORGOTTEN = 300.0
"""Seconds after which no client has the address any more: by metadata.max.age.ms they ask again after 5 minutes."""

Bind = Callable[[int, int], bool]
"""(port, node) → whether kproxy listens there now."""


class NodePorts:
    """The ports of one range on one listener. `bind` and `release` open and close them."""

    def __init__(
        self, first: int, last: int, remembered: dict[int, int], bind: Bind, release: Callable[[int], None]
    ) -> None:
        self.first, self.last = first, last
        self.bind, self.release = bind, release
        self.remembered = {node: port for node, port in remembered.items() if first <= port <= last}
        self.open: dict[int, int] = {}
        self.used: dict[int, float] = {}

    def restore(self) -> None:
        """Bind what was in use before."""
        for node in self.remembered:
            self.ensure(node)

    def ensure(self, node: int) -> int | None:
        """The node's port, on which kproxy listens; None when the range is exhausted."""
        port = self.open.get(node)
        if port is None:
            port = next((port for port in self.choices(node) if self.bind(port, node)), None) or self.take_over(node)
            if port is None:
                return None
            self.open[node] = port
            self.remembered[node] = port
        self.used[node] = monotonic()
        return port

    def use(self, node: int) -> None:
        """A client has connected to the node's port."""
        self.used[node] = monotonic()

    def choices(self, node: int) -> Iterator[int]:
        """Ports to try for this node, best first."""
        if node in self.remembered:
            yield self.remembered[node]
        taken = set(self.remembered.values())
        fixed = self.first + node
        if node >= 0 and fixed <= self.last and fixed not in taken:
            yield fixed
        ports = range(self.first, self.last + 1)
        for port in ports if node >= 0 else reversed(ports):
            if port not in taken and port != fixed:
                yield port

    def take_over(self, node: int) -> int | None:
        """The port that was used by nobody for the longest time."""
        for other in sorted(self.open, key=lambda other: self.used[other]):
            port = self.open[other]
            if monotonic() - self.used[other] < FORGOTTEN:
                return None
            del self.open[other], self.remembered[other], self.used[other]
            self.release(port)
            if self.bind(port, node):
                return port
        return None
