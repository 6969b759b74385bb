"""The base class of kinds that do something to one frame of an exchange, its request or its response."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import ClassVar

from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange

from .draws import Draws
from .live import Decisions, Effect, LiveRule
from .rule import Direction


class FrameRule(LiveRule):
    """Rule that loses, delays, cuts, spoils or repeats frames. Override `decide`, and `side` if it acts on requests."""

    seen: ClassVar[Depth] = Depth.BODY
    """How deep the frame has to be seen."""

    def side(self, key: int) -> Direction | None:
        """Return which frame of this API it acts on; None: neither."""
        return "response"

    @property
    def own_seed(self) -> int | None:
        """The seed of what it draws; None: that of the rule's chances, which is logged if the user gave none."""
        return None

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:
        """Return what becomes of the frame, for the entities that matched."""
        raise NotImplementedError

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        """Return `seen` on the side that it acts on."""
        return self.seen if direction == self.side(key) else Depth.NOTHING

    @property
    def reads_entities(self) -> bool:
        """False, since bytes are changed whatever they mean."""
        return False

    def warnings(self) -> Iterable[str]:
        """Yield a warning if the rule is about responses that do not exist."""
        if self.match is not None and 0 in (self.match.acks or ()) and self.side(0) == "response":
            yield "a Produce request with acks=0 has no response, this rule never acts on one"

    def start(self) -> Effect:
        return FrameEffect(self)


class FrameEffect(Effect):
    """Effect that asks its rule on the side that the rule acts on."""

    def __init__(self, rule: FrameRule) -> None:
        self.rule = rule
        self.draws: Draws | None = None

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.decided("request", exchange, entities)

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.decided("response", exchange, entities)

    def decided(self, direction: Direction, exchange: Exchange, entities: Sequence[Entity]) -> Decisions:
        if self.rule.side(exchange.api.key) != direction:
            return ()
        if self.draws is None:
            when, own = self.rule.when, self.rule.own_seed
            seed = self.seed if own is None else str(own)
            count_per = "rule" if when is None else when.count_per
            self.draws = Draws(seed, count_per, "" if self.common is None else self.common.own)
        return self.rule.decide(exchange, entities, self.draws.of(exchange))
