"""The base class of kinds that change what stands in requests, or answer them in the broker's place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from kproxy.rules.decision import Edit
from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base import Direction
from kproxy.rules.kinds.live import Decisions, Effect, SelectingRule


class RequestRule(SelectingRule):
    """Rule that changes fields of requests, without a memory. Override `apis` and `change`."""

    apis: ClassVar[Mapping[int, int]] = {}
    """API keys, each with the first version whose requests it changes."""

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        """Return BODY for requests of `apis`, else NOTHING."""
        wanted = direction == "request" and key in self.apis and version >= self.apis[key]
        return Depth.BODY if wanted else Depth.NOTHING

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        """Change `exchange.request.body` in place for the entities that matched. Return False if nothing changed."""
        raise NotImplementedError

    def decide(self, exchange: Exchange, entities: Sequence[Entity]) -> Decisions:
        """Return what becomes of the request; override for decisions other than an edit, such as an error."""
        return (Edit(),) if self.change(exchange, entities) else ()

    def start(self) -> Effect:
        return RequestEffect(self)


class RequestEffect(Effect):
    """Effect that asks its rule for each request."""

    def __init__(self, rule: RequestRule) -> None:
        self.rule = rule

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.rule.decide(exchange, entities)
