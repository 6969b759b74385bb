"""no_controller: Metadata without a controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.protocol.table.api_keys import DESCRIBE_CLUSTER, METADATA
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.message_rule import ResponseRule

NOBODY = -1


class NoController(ResponseRule):
    """Tells clients that the cluster has no controller.

    Admin clients that send to the controller (topics, partitions, configs) ask for Metadata again until there is one,
    or their time is up. Metadata 0 does not name it.
    """

    apis: ClassVar = {METADATA: 1, DESCRIBE_CLUSTER: 0}
    whole: ClassVar = True
    group = "cluster metadata"
    example: ClassVar[str] = """\
- name: nobody is controller for half a minute
  kind: no_controller
  when: {for: 30s}
"""

    kind: Literal["no_controller"] = Field(description="kind of the rule")

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        body = exchange.response.body
        before, body["controller_id"] = body["controller_id"], NOBODY
        return bool(before != NOBODY)
