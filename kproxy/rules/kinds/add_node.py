"""add_node: an additional broker in Metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.protocol.table.api_keys import DESCRIBE_CLUSTER, METADATA
from kproxy.rules.bodies import CONTROLLERS, listed
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.message_rule import ResponseRule


class AddNode(ResponseRule):
    """Adds a broker to Metadata and DescribeCluster responses.

    Clients spread requests that any broker can handle over all brokers, including this one. With `hide_node` it changes
    the id of a broker. A response that already lists the id is not changed.
    """

    apis: ClassVar = {METADATA: 0, DESCRIBE_CLUSTER: 0}
    whole: ClassVar = True
    group = "cluster metadata"
    example: ClassVar[str] = """\
- name: a broker that is not up yet
  kind: add_node
  node: 9
  host: b9.example.com
  port: 9092
"""

    kind: Literal["add_node"] = Field(description="kind of the rule")
    node: int = Field(ge=0, description="its id")
    host: str = Field(min_length=1, max_length=255, description="its host")
    port: int = Field(ge=0, le=65535, description="its port")

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        body = exchange.response.body
        brokers, field = listed(exchange.api.key, body)
        if body.get("endpoint_type") == CONTROLLERS or any(broker[field] == self.node for broker in brokers):
            return False
        body["brokers"] = [*brokers, {field: self.node, "host": self.host, "port": self.port}]
        return True
