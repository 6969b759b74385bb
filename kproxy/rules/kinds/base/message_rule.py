"""The base classes of kinds that change what stands in requests or in responses, or answer in the broker's place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from kproxy.rules.decision import Edit
from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange

from .live import Decisions, Effect, SelectingRule
from .rule import Direction


class MessageRule(SelectingRule):
    """Rule that changes fields of messages in one direction, without a memory. Override `apis` and `change`."""

    changes: ClassVar[Direction]
    apis: ClassVar[Mapping[int, int]] = {}
    """API keys, each with the first version whose messages it changes."""

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        """Return BODY for messages of `apis` in the direction that it changes, else NOTHING."""
        wanted = direction == self.changes and key in self.apis and version >= self.apis[key]
        return Depth.BODY if wanted else Depth.NOTHING

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        """Change the message's body in place for the entities that matched. Return False if nothing changed."""
        raise NotImplementedError

    def decide(self, exchange: Exchange, entities: Sequence[Entity]) -> Decisions:
        """Return what becomes of the message; override for decisions other than an edit, such as an error."""
        return (Edit(),) if self.change(exchange, entities) else ()


class RequestRule(MessageRule):
    """Rule that changes `exchange.request.body`."""

    changes = "request"

    def start(self) -> Effect:
        return RequestEffect(self)


class ResponseRule(MessageRule):
    """Rule that changes `exchange.response.body`."""

    changes = "response"

    def start(self) -> Effect:
        return ResponseEffect(self)


class RequestEffect(Effect):
    """Effect that asks its rule for each request."""

    def __init__(self, rule: RequestRule) -> None:
        self.rule = rule

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.rule.decide(exchange, entities)


class ResponseEffect(Effect):
    """Effect that asks its rule for each response."""

    def __init__(self, rule: ResponseRule) -> None:
        self.rule = rule

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.rule.decide(exchange, entities)
