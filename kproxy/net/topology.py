"""Where the nodes of a cluster are, as its brokers name them."""

from __future__ import annotations

from collections.abc import Mapping

from .driven import HostPort


class Topology:
    """Node id → (host, port). Ids below -1 are controllers (`core.addresses.controller_id`)."""

    def __init__(self) -> None:
        self.nodes: dict[int, HostPort] = {}

    def learn(self, nodes: Mapping[int, HostPort]) -> bool:
        """Returns whether something new was among them."""
        changed = {node: tuple(address) for node, address in nodes.items() if self.nodes.get(node) != tuple(address)}
        self.nodes.update(changed)  # type: ignore[arg-type]
        return bool(changed)
