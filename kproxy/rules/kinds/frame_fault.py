"""What the faults have in common that do something to one frame of an exchange, its request or its response."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import ClassVar

from kproxy.rules.depth import Depth
from kproxy.rules.draws import Draws
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base import Direction
from kproxy.rules.kinds.live import Decisions, Effect, LiveRule


class FrameFault(LiveRule):
    """`seen`: how deep the frame has to be seen. `decide` says what becomes of it."""

    seen: ClassVar[Depth] = Depth.BODY

    def side(self, key: int) -> Direction | None:
        """Which frame of this API it acts on; None: neither."""
        return "response"

    @property
    def own_seed(self) -> int | None:
        """Of what it draws; None: that of the rule's chances, which is shown in the log if nobody gave it."""
        return None

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:
        """What becomes of the frame, for the entities that matched."""
        raise NotImplementedError

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        """On one side only."""
        return self.seen if direction == self.side(key) else Depth.NOTHING

    @property
    def reads_entities(self) -> bool:
        """Bytes are bytes."""
        return False

    def warnings(self) -> Iterable[str]:
        """Responses that do not exist."""
        if self.match is not None and 0 in (self.match.acks or ()) and self.side(0) == "response":
            yield "a Produce request with acks=0 has no response, this rule never acts on one"

    def start(self) -> Effect:
        """Its chances are those of the rule's seed."""
        return FrameEffect(self)


class FrameEffect(Effect):
    """Asks the rule on the side that it acts on."""

    def __init__(self, rule: FrameFault) -> None:
        self.rule = rule
        self.draws: Draws | None = None

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        """For rules about requests."""
        return self.decided("request", exchange, entities)

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        """For rules about responses."""
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
