"""blackhole: all that comes is taken, and nothing ever comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import ConnectionView, Exchange, FrameDepth, Swallow
from kproxy.rules.kinds.base.rule import Decisions, Direction, Effect, LiveRule


class Blackhole(LiveRule):
    """Takes all that a client sends, and never answers.

    With selectors about frames it begins at the first request that fires the rule; without any, when a connection
    opens. It lasts as long as the connection, even if the rule is removed. Clients give up by their own timeout.
    """

    group = "connections"
    example: ClassVar[str] = """\
- name: what this client sends never arrives
  kind: blackhole
  match: {client_id: "billing-*"}
"""

    kind: Literal["blackhole"] = Field(description="kind of the rule")

    @property
    def connects(self) -> bool:
        return all(one is None or one.of_connection for one in (self.match, self.not_))

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        return FrameDepth.HEADER if direction == "request" and not self.connects else FrameDepth.NOTHING

    def start(self) -> Effect:
        return BlackholeEffect()


class BlackholeEffect(Effect):
    """Effect that swallows what comes after a connection's beginning or a request."""

    always_acts = True

    def on_connect(self, connection: ConnectionView, now: float) -> Decisions:
        return (Swallow(),)

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return (Swallow(),)
