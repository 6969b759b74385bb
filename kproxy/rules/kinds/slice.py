"""slice: bytes arrive in small pieces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.exchange import TrafficShape
from kproxy.rules.kinds.base.frame_rule import ConnectionRule, Ways, for_a_time, for_connections, ways
from kproxy.rules.values.model import Wrong
from kproxy.rules.values.quantities import ByteCount, Seconds


class Slice(ConnectionRule):
    """Sends bytes in small pieces with pauses between them, so that frames come in many parts."""

    group = "connections"
    example: ClassVar[str] = """\
- name: ten bytes at a time
  kind: slice
  match: {listener: outside}
  bytes: 10
  every: 5ms
"""

    kind: Literal["slice"] = Field(description="kind of the rule")
    bytes: Annotated[ByteCount, Field(ge=1)] = Field(description="length of a piece")
    every: Seconds = Field(default=0.005, description="time between two pieces")
    direction: Ways = Field(default="both", description="direction of the sliced bytes")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        yield from for_connections(raw, "the bytes of a whole connection are cut in pieces")
        yield from for_a_time(raw, "bytes are cut in pieces for a time")

    def flow(self) -> TrafficShape:
        return TrafficShape(ways=ways(self.direction), piece=self.bytes, pause=self.every)
