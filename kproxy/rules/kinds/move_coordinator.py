"""move_coordinator: a group or transactional id with another coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.protocol.table import api_keys as apis
from kproxy.rules.bodies import coordinators
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange, Fail, FrameDepth
from kproxy.rules.kinds.base.rule import Decisions, Direction, Effect, SelectingRule
from kproxy.rules.shared_numbers import Remembered
from kproxy.rules.values.model import Wrong

NOT_COORDINATOR = 16
OF_TRANSACTIONS = frozenset({apis.INIT_PRODUCER_ID, apis.ADD_PARTITIONS_TO_TXN, apis.ADD_OFFSETS_TO_TXN, apis.END_TXN})
OF_GROUPS = apis.NEW_HEARTBEATS | {
    apis.OFFSET_COMMIT, apis.OFFSET_FETCH, apis.JOIN_GROUP, apis.HEARTBEAT, apis.LEAVE_GROUP, apis.SYNC_GROUP,
    apis.DESCRIBE_GROUPS, apis.TXN_OFFSET_COMMIT, apis.DELETE_GROUPS, apis.OFFSET_DELETE,
    apis.CONSUMER_GROUP_DESCRIBE, apis.SHARE_GROUP_DESCRIBE, apis.STREAMS_GROUP_DESCRIBE,
}  # fmt: skip
MOST_KEPT = 10_000
"""Remembered pairs of client and group; beyond that the least recently used one is evicted."""
TOGETHER = ("node", "host", "port")
ClientOfCoordinator = tuple[str | None, str, str | None]


class MoveCoordinator(SelectingRule):
    """Returns NOT_COORDINATOR for group and transaction requests until the client looks up the coordinator again.

    Without `node`, FindCoordinator returns the true coordinator: it has moved, and back. With `node`, `host` and
    `port`, FindCoordinator returns this broker as long as the rule fires. The broker may be missing, or return
    NOT_COORDINATOR itself. Each client id moves once per group and transactional id.
    """

    group = "groups, offsets and transactions"
    example: ClassVar[str] = """\
- name: the coordinator of billing moves
  kind: move_coordinator
  match: {group: billing}
"""

    kind: Literal["move_coordinator"] = Field(description="kind of the rule")
    node: int | None = Field(default=None, ge=0, description="id of the broker that FindCoordinator names")
    host: str | None = Field(default=None, min_length=1, max_length=255, description="its host in responses")
    port: int | None = Field(default=None, ge=0, le=65535, description="its port in responses")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        given = [name for name in TOGETHER if name in raw]
        if given and len(given) < len(TOGETHER):
            yield (given[0],), 'expected "node", "host" and "port" together'

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        if direction == "request":
            return FrameDepth.BODY if key in OF_GROUPS or key in OF_TRANSACTIONS else FrameDepth.NOTHING
        return FrameDepth.BODY if key == apis.FIND_COORDINATOR else FrameDepth.NOTHING

    def start(self) -> Effect:
        return MovingCoordinators(self)


class MovingCoordinators(Effect):
    """Effect that knows which clients were sent away, and which of them have asked since."""

    def __init__(self, rule: MoveCoordinator) -> None:
        self.there: dict[str, Any] | None = None
        if rule.node is not None:
            self.there = {"node_id": rule.node, "host": rule.host, "port": rule.port}
        self.asked = Remembered(self, MOST_KEPT)  # 0: sent away, 1: has asked since

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        by = "transactional_id" if exchange.api.key in OF_TRANSACTIONS else "group"
        away = [entity for entity in entities if self.sends_away((exchange.client_id, by, getattr(entity, by)), now)]
        return (Fail(NOT_COORDINATOR, entities=tuple(away)),) if away else ()

    def sends_away(self, name: ClientOfCoordinator, now: float) -> bool:
        if name[2] is None:
            return False
        known = self.asked.change(name, now, lambda before: before or (0.0,))
        return known is not None and known[0] == 0

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        moved = set()
        for entity in entities:
            by = "group" if entity.group is not None else "transactional_id"
            key = getattr(entity, by)
            name = exchange.client_id, by, key
            if self.asked.change(name, now, lambda before: None if before is None else (1.0,)) is not None:
                moved.add(key)
        if self.there is None or not moved:
            return ()
        body = exchange.response.body
        for entry in coordinators(body):
            if entry.get("key", exchange.request.body.get("key")) in moved:
                entry.update(self.there, error_code=0)
        return (Edit(),)
