"""The base class of kinds about whole connections: how their bytes flow, and whether they may be opened; and checks of
which selectors and times such a rule can have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal

from kproxy.rules.exchange import ConnectionView, FrameDepth, ShapedDirection, TrafficShape
from kproxy.rules.select.frame_match import FrameMatch
from kproxy.rules.select.match import ConnectionMatch
from kproxy.rules.values.model import KEY, Wrong
from kproxy.rules.values.source import Where

from .rule import Decisions, Direction, Effect, LiveRule, Scope

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

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        return FrameDepth.NOTHING

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


OPENING = (*ConnectionMatch.model_fields, "node")
"""Selectors about what is known when a connection opens."""
TIMES = ("after", "for")


def of_frames(raw: dict[Any, Any], known: Sequence[str] = OPENING) -> Iterator[tuple[str, Where]]:
    """Yield the selectors, as they are written, about something that a connection that opens does not have; their
    places. `known`: what it has."""
    for side in ("match", "not"):
        for name in raw[side] if isinstance(raw.get(side), dict) else ():
            if name in FrameMatch.model_fields and name not in known:
                yield name, (side, name, KEY)


def for_connections(raw: dict[Any, Any], what: str, known: Sequence[str] = OPENING) -> Iterable[Wrong]:
    """Yield a mistake for each selector of frames: a rule about whole connections has none."""
    for name, where in of_frames(raw, known):
        yield where, f'{what}, so that "{name}" cannot be selected on, only {", ".join(known)}'


def for_a_time(raw: dict[Any, Any], what: str) -> Iterable[Wrong]:
    """Yield a mistake for each word of `when` but times: a rule about how bytes flow has no requests to count."""
    when = raw.get("when")
    for word, value in when.items() if isinstance(when, dict) else ():
        if word not in TIMES:
            yield ("when", word, KEY), f'{what}, so that "{word}" cannot be said, only {" and ".join(TIMES)}'
        elif word == "after" and isinstance(value, int):
            yield ("when", word), f"{what}: a duration is wanted, such as {value}s"
