"""wrong_address: clients are told another address for a broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.bodies.brokers import addressed, carries_addresses
from kproxy.rules.decision import Edit
from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.explain import Wrong
from kproxy.rules.kinds.base import Direction
from kproxy.rules.kinds.live import Decisions, Effect
from kproxy.rules.kinds.node_rule import Nodes, names
from kproxy.rules.kinds.reading import AnswerRule


class WrongAddress(AnswerRule):
    """Tells clients another host or port for brokers than the one at which they can be reached.

    It changes what clients are told, after kproxy has put its own addresses in, everywhere that addresses stand:
    Metadata, DescribeCluster, FindCoordinator, and the node endpoints of Produce, Fetch and the share APIs. Where that
    address leads is not kproxy's business: to nobody, or past it.
    """

    example: ClassVar[str] = """\
- name: broker 2 seems to be on a host that is not there
  kind: wrong_address
  node: 2
  host: gone.example.com
"""

    kind: Literal["wrong_address"] = Field(description="what the rule does")
    node: Nodes | None = Field(default=None, description="ids of the brokers, such as 2 or 1-3; all if left out")
    host: str | None = Field(default=None, min_length=1, max_length=255, description="the host that clients are told")
    port: int | None = Field(default=None, ge=0, le=65535, description="the port that clients are told")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Something has to be wrong."""
        if "host" not in raw and "port" not in raw:
            yield (), 'a "host" or a "port" is wanted, or both'

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        return Depth.BODY if direction == "response" and carries_addresses(key, version) else Depth.NOTHING

    def start(self) -> Effect:
        return WrongAddresses(self)


class WrongAddresses(Effect):
    """Puts another address in."""

    def __init__(self, rule: WrongAddress) -> None:
        self.node = rule.node
        given = {"host": rule.host, "port": rule.port}
        self.address = {name: value for name, value in given.items() if value is not None}

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        changed = False
        for node, entry in addressed(exchange.api.key, exchange.response.body):
            if self.node is None or names(self.node, node):
                entry.update(self.address)
                changed = True
        return (Edit(),) if changed else ()
