"""The base class of kinds about whole connections: how their bytes flow, and whether they may be opened."""

from __future__ import annotations

from typing import ClassVar, Literal

from kproxy.rules.depth import Depth
from kproxy.rules.exchange import ConnectionView
from kproxy.rules.traffic_shape import ShapedDirection, TrafficShape

from .live import Decisions, Effect, LiveRule
from .rule import Direction, Scope

Ways = Literal["to_client", "to_broker", "both"]


def ways(way: Ways) -> frozenset[ShapedDirection]:
    """Return the directions that a user's word stands for."""
    return frozenset(("to_client", "to_broker")) if way == "both" else frozenset((way,))


class ConnectionRule(LiveRule):
    """Rule about whole connections, which looks at no frame. Override `flow` or `opened`."""

    scope: ClassVar[Scope] = "connection"

    def flow(self) -> TrafficShape | None:
        """Return how the bytes of a connection flow under this rule; None: as they come."""
        return None

    def opened(self, connection: ConnectionView) -> Decisions:
        """Return what becomes of a connection that a client has just made."""
        return ()

    @property
    def connects(self) -> bool:
        return type(self).opened is not ConnectionRule.opened

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        return Depth.NOTHING

    def start(self) -> Effect:
        return ConnectionEffect(self)


class ConnectionEffect(Effect):
    """Effect that treats all connections in the same way."""

    def __init__(self, rule: ConnectionRule) -> None:
        self.rule, self.flow = rule, rule.flow()

    def on_connect(self, connection: ConnectionView, now: float) -> Decisions:
        return self.rule.opened(connection)

    def shape(self, connection: ConnectionView) -> TrafficShape | None:
        return self.flow
