"""hide_node: clients are never told of a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import yielding
from kproxy.protocol.table.api_keys import FIND_COORDINATOR
from kproxy.rules.bodies import LISTS, NO_NODE, carries_addresses, coordinators, listed
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, FrameDepth
from kproxy.rules.kinds.base.message_rule import ResponseRule
from kproxy.rules.kinds.base.rule import Direction, Permanent
from kproxy.rules.values.quantities import NodeRanges, includes

COORDINATOR_NOT_AVAILABLE = 15


class HideNode(ResponseRule):
    """Removes brokers from all responses with broker addresses; `node: all` gives an empty list.

    This covers Metadata, DescribeCluster and the node endpoints of Produce, Fetch and the share APIs. If the broker is
    the coordinator, FindCoordinator returns COORDINATOR_NOT_AVAILABLE. Partitions still have the broker's id as leader,
    so a client has the leader but not its address. Open connections stay open.
    """

    whole: ClassVar = True
    group = "cluster metadata"
    example: ClassVar[str] = """\
- name: nobody hears of broker 2
  kind: hide_node
  node: 2
"""

    kind: Literal["hide_node"] = Field(description="kind of the rule")
    permanent: Permanent = False
    node: NodeRanges = Field(description="ids of the brokers, such as 2 or 1-3, or all")

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        return FrameDepth.BODY if direction == "response" and carries_addresses(key, version) else FrameDepth.NOTHING

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        body, key = exchange.response.body, exchange.api.key
        return self.hide_coordinators(body) if key == FIND_COORDINATOR else self.hide_listed(key, body)

    def hide_listed(self, key: int, body: dict[str, Any]) -> bool:
        brokers, field = listed(key, body)
        kept = [broker for broker in yielding(brokers) if not includes(self.node, broker[field])]
        if len(kept) == len(brokers):
            return False
        body[LISTS[key][0]] = kept
        return True

    def hide_coordinators(self, body: dict[str, Any]) -> bool:
        hidden = [one for one in coordinators(body) if one["node_id"] >= 0 and includes(self.node, one["node_id"])]
        for entry in yielding(hidden):
            entry.update(NO_NODE, error_code=COORDINATOR_NOT_AVAILABLE)
        return bool(hidden)
