"""What the faults have in common that are about how the bytes of whole connections flow."""

from __future__ import annotations

from typing import ClassVar, Literal

from kproxy.rules.depth import Depth
from kproxy.rules.exchange import ConnectionView
from kproxy.rules.kinds.base import Direction, Scope
from kproxy.rules.kinds.live import Effect, LiveRule
from kproxy.rules.shape import Shape, Way

Ways = Literal["to_client", "to_broker", "both"]


def ways(way: Ways) -> frozenset[Way]:
    """As shapes have it."""
    return frozenset(("to_client", "to_broker")) if way == "both" else frozenset((way,))


class LineFault(LiveRule):
    """It looks at no frame."""

    scope: ClassVar[Scope] = "connection"

    def flow(self) -> Shape | None:
        """How bytes flow under this rule."""
        raise NotImplementedError

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        """None."""
        return Depth.NOTHING

    def start(self) -> Effect:
        """It has no state."""
        return LineEffect(self.flow())


class LineEffect(Effect):
    """The same for every connection."""

    def __init__(self, flow: Shape | None) -> None:
        self.flow = flow

    def shape(self, connection: ConnectionView) -> Shape | None:
        """As the rule says."""
        return self.flow
