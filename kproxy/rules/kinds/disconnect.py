"""disconnect: connections are closed, at a request, at a response, after some bytes or at some age."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Close, ConnectionView, Exchange, FrameDepth, How, TrafficShape
from kproxy.rules.kinds.base.frame_rule import FrameEffect, FrameRule, for_a_time, for_connections
from kproxy.rules.kinds.base.rule import Decisions, Direction, Effect
from kproxy.rules.values.model import KEY, Wrong
from kproxy.rules.values.quantities import ByteCount, Seconds


class Disconnect(FrameRule):
    """Closes connections: instead of a request or a response, after a number of bytes, or at some age.

    With `at: request` the broker never receives the request. With `at: response` the broker has processed the request,
    and the client gets no response. `after` and `age` ignore frames, so a frame may be cut anywhere.
    """

    group = "connections"
    seen: ClassVar[FrameDepth] = FrameDepth.HEADER
    example: ClassVar[str] = """\
- name: the third write is stored, and then the connection is reset
  kind: disconnect
  match: {api: Produce}
  when: {nth: 3}
  close_with: rst
  at: response
"""

    kind: Literal["disconnect"] = Field(description="kind of the rule")
    close_with: How = Field(
        default="fin",
        description="fin: in order; rst: by reset; half: kproxy sends FIN and continues to read",
    )
    at: Direction | None = Field(default=None, description="close in place of the request (default) or of the response")
    after: Annotated[ByteCount, Field(gt=0)] | None = Field(
        default=None, description="bytes in both directions together, such as 1MB"
    )
    age: Annotated[Seconds, Field(gt=0)] | None = Field(default=None, description="age of the connection, such as 30s")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        given = [name for name in ("after", "age") if raw.get(name) is not None]
        if not given:
            return
        if raw.get("at") is not None:
            yield ("at", KEY), f'"{given[0]}" closes wherever a frame is just then, "at" cannot be said'
        if raw.get("close_with") == "half":
            yield ("close_with",), f'expected fin or rst with "{given[0]}", got half'
        yield from for_connections(raw, f'"{given[0]}" is about a whole connection')
        yield from for_a_time(raw, f'"{given[0]}" is in force for a time')

    @property
    def of_lines(self) -> bool:
        """Return True if bytes or age decide, so that frames do not matter."""
        return self.after is not None or self.age is not None

    def side(self, key: int) -> Direction | None:
        return None if self.of_lines else self.at or "request"

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:
        return (Close(self.close_with),)

    def start(self) -> Effect:
        return DisconnectEffect(self)


class DisconnectEffect(FrameEffect):
    """Effect that ends connections by their bytes or their age."""

    rule: Disconnect

    def shape(self, connection: ConnectionView) -> TrafficShape | None:
        rule = self.rule
        if not rule.of_lines:
            return None
        return TrafficShape(max_bytes=rule.after, age=rule.age, close_with="rst" if rule.close_with == "rst" else "fin")
