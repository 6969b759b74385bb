"""The base class of kinds that change what stands in responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from kproxy.rules.decision import Edit
from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base import Direction
from kproxy.rules.kinds.live import Decisions, Effect, SelectingRule


class ResponseRule(SelectingRule):
    """Rule that changes fields of responses, without a memory. Override `apis` and `change`."""

    apis: ClassVar[Mapping[int, int]] = {}
    """API keys, each with the first version whose responses it changes."""

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        """Return BODY for responses of `apis`, else NOTHING."""
        wanted = direction == "response" and key in self.apis and version >= self.apis[key]
        return Depth.BODY if wanted else Depth.NOTHING

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        """Change `exchange.response.body` in place for the entities that matched. Return False if nothing changed."""
        raise NotImplementedError

    def decide(self, exchange: Exchange, entities: Sequence[Entity]) -> Decisions:
        """Return what becomes of the response; override for decisions other than an edit."""
        return (Edit(),) if self.change(exchange, entities) else ()

    def start(self) -> Effect:
        return ResponseEffect(self)


class ResponseEffect(Effect):
    """Effect that asks its rule for each response."""

    def __init__(self, rule: ResponseRule) -> None:
        self.rule = rule

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.rule.decide(exchange, entities)
