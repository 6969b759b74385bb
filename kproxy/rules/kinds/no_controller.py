"""no_controller: clients are told that there is no controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.bodies.apis import DESCRIBE_CLUSTER, METADATA
from kproxy.rules.decision import Edit
from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base import Direction
from kproxy.rules.kinds.live import Decisions, Effect
from kproxy.rules.kinds.reading import AnswerRule

NOBODY = -1


class NoController(AnswerRule):
    """Tells clients that the cluster has no controller.

    Admin clients that send to the controller (topics, partitions, configs) ask for Metadata again until there is one,
    or their time is up. Metadata 0 does not name it.
    """

    example: ClassVar[str] = """\
- name: nobody is controller for half a minute
  kind: no_controller
  when: {for: 30s}
"""

    kind: Literal["no_controller"] = Field(description="what the rule does")

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        named = key == DESCRIBE_CLUSTER or (key == METADATA and version >= 1)
        return Depth.BODY if direction == "response" and named else Depth.NOTHING

    def start(self) -> Effect:
        return WithoutController()


class WithoutController(Effect):
    """Takes the controller's id out of answers."""

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        body = exchange.response.body
        if body["controller_id"] == NOBODY:
            return ()
        body["controller_id"] = NOBODY
        return (Edit(),)
