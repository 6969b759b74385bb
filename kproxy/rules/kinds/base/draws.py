"""Chances that an effect draws for itself: the length of a delay, the bits that are flipped."""

from __future__ import annotations

from collections import OrderedDict
from random import Random
from typing import Literal

from kproxy.rules.exchange import Exchange
from kproxy.rules.trigger import MOST_COUNTS


class Draws:
    """Generators of the rule's own seed: one for the rule, or one for each connection or client, as `when: count_per`
    says. Each connection draws the same, since nobody knows which comes first.

    `own`: what the seed has behind it in this process, where several have the same rule and shall not draw the same.
    """

    def __init__(self, seed: str, count_per: Literal["rule", "connection", "client"] = "rule", own: str = "") -> None:
        self.seed, self.count_per, self.own = seed, count_per, own
        self.random = Random(seed + own)
        self.clients: OrderedDict[str, Random] = OrderedDict()

    def of(self, exchange: Exchange) -> Random:
        """Return the generator that draws for this exchange."""
        if self.count_per == "rule":
            return self.random
        if self.count_per == "connection":
            memory = exchange.connection.memory
            if self not in memory:
                memory[self] = Random(self.seed)
            generator: Random = memory[self]
            return generator
        client = exchange.client_id or ""
        if client not in self.clients:
            if len(self.clients) >= MOST_COUNTS:
                self.clients.popitem(last=False)
            self.clients[client] = Random(f"{self.seed}:{client}{self.own}")
        self.clients.move_to_end(client)
        return self.clients[client]
