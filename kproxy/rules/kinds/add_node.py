"""add_node: clients are told of a broker that is not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.bodies.apis import DESCRIBE_CLUSTER, METADATA
from kproxy.rules.bodies.brokers import CONTROLLERS, listed
from kproxy.rules.decision import Edit
from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base import Direction
from kproxy.rules.kinds.live import Decisions, Effect
from kproxy.rules.kinds.reading import AnswerRule


class AddNode(AnswerRule):
    """Tells clients of a broker more, in Metadata and DescribeCluster.

    Clients spread what any broker can answer over all that they know, so they will turn to this one, too. Together
    with `hide_node` a broker changes its id. A broker that has this id already is left alone.
    """

    example: ClassVar[str] = """\
- name: a broker that is not up yet
  kind: add_node
  node: 9
  host: b9.example.com
  port: 9092
"""

    kind: Literal["add_node"] = Field(description="what the rule does")
    node: int = Field(ge=0, description="its id")
    host: str = Field(min_length=1, max_length=255, description="its host")
    port: int = Field(ge=0, le=65535, description="its port")

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        return Depth.BODY if direction == "response" and key in (METADATA, DESCRIBE_CLUSTER) else Depth.NOTHING

    def start(self) -> Effect:
        return OneNodeMore(self)


class OneNodeMore(Effect):
    """Puts a broker into lists."""

    def __init__(self, rule: AddNode) -> None:
        self.rule = rule

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        body, rule = exchange.response.body, self.rule
        brokers, field = listed(exchange.api.key, body)
        if body.get("endpoint_type") == CONTROLLERS or any(broker[field] == rule.node for broker in brokers):
            return ()
        body["brokers"] = [*brokers, {field: rule.node, "host": rule.host, "port": rule.port}]
        return (Edit(),)
