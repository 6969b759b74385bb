"""Topology of a cluster: where its nodes are, as its brokers name them."""

from __future__ import annotations

from collections.abc import Mapping

from kproxy.core.rewrite import MOST_NODES
from kproxy.net.driven import HostPort


class Topology:
    """Map of node id → (host, port). Ids below -1 are controllers (`core.addresses.controller_id`).

    Of more than `most` nodes, those that were named longest ago are forgotten: connections to them go to a bootstrap
    server.
    """

    def __init__(self, most: int = MOST_NODES) -> None:
        self.most = most
        self.nodes: dict[int, HostPort] = {}

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
