"""wrong_address: another address for a broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.bodies import addressed, carries_addresses
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, FrameDepth
from kproxy.rules.kinds.base.message_rule import ResponseRule
from kproxy.rules.kinds.base.rule import Direction
from kproxy.rules.values.model import Wrong
from kproxy.rules.values.quantities import NodeRanges, includes


class WrongAddress(ResponseRule):
    """Gives clients a wrong host or port for brokers.

    The address is changed after kproxy's own addresses are inserted, in Metadata, DescribeCluster, FindCoordinator, and
    the node endpoints of Produce, Fetch and the share APIs. kproxy does not check where the address leads.
    """

    whole: ClassVar = True
    group = "cluster metadata"
    example: ClassVar[str] = """\
- name: broker 2 seems to be on a host that is not there
  kind: wrong_address
  node: 2
  host: gone.example.com
"""

    kind: Literal["wrong_address"] = Field(description="kind of the rule")
    node: NodeRanges | None = Field(default=None, description="ids of the brokers, such as 2 or 1-3; all if left out")
    host: str | None = Field(default=None, min_length=1, max_length=255, description="host in responses")
    port: int | None = Field(default=None, ge=0, le=65535, description="port in responses")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        if "host" not in raw and "port" not in raw:
            yield (), 'expected a "host" or a "port", or both'

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        return FrameDepth.BODY if direction == "response" and carries_addresses(key, version) else FrameDepth.NOTHING

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        address = {"host": self.host, "port": self.port}
        given = {name: value for name, value in address.items() if value is not None}
        changed = False
        for node, entry in addressed(exchange.api.key, exchange.response.body):
            if self.node is None or includes(self.node, node):
                entry.update(given)
                changed = True
        return changed
