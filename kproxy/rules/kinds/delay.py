"""delay: frames go on later."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Delay, Exchange, FrameDepth
from kproxy.rules.kinds.base.frame_rule import FrameRule
from kproxy.rules.kinds.base.rule import Decisions, Direction, Permanent
from kproxy.rules.values.quantities import LatencyField, Seed


class DelayRule(FrameRule):
    """Lets frames go on later, by a fixed time or one that is drawn for each.

    All that follows on the same connection and in the same direction waits behind them, since Kafka's answers come in
    the order of their requests. No other connection waits.
    """

    group = "errors and delays"
    seen: ClassVar[FrameDepth] = FrameDepth.HEADER
    example: ClassVar[str] = """\
- name: metadata is slow to come
  kind: delay
  match: {api: Metadata}
  delay: {normal: [200ms, 50ms]}
  at: response
"""

    kind: Literal["delay"] = Field(description="kind of the rule")
    permanent: Permanent = False
    delay: LatencyField = Field(
        description="200ms, or drawn: {uniform: [100ms, 300ms]}, {normal: [200ms, 50ms]} (mean, standard deviation), "
        "{lognormal: [200ms, 0.4]} (median, sigma)"
    )
    at: Direction = Field(default="request", description="delayed frame")
    seed: Seed | None = Field(default=None, description="seed of random choices (default: random, logged)")

    @property
    def own_seed(self) -> int | None:
        return self.seed

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:
        return (Delay(self.delay.draw(random)),)
