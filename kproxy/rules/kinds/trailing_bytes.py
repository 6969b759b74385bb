"""trailing_bytes: bytes after the last field."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, Reframe
from kproxy.rules.kinds.base.frame_rule import SIZE, FrameRule, sized
from kproxy.rules.kinds.base.rule import Decisions, Direction
from kproxy.rules.values.quantities import ByteCount

MOST = 1 << 20
"""Bytes; beyond that it is a question of memory, not of reading."""


class TrailingBytes(FrameRule):
    """Adds bytes after the last field of a frame, in a size that is right for them.

    Kafka's own clients ignore them; strict readers report them.
    """

    group = "frames"
    example: ClassVar[str] = """\
- name: four bytes too many
  kind: trailing_bytes
  match: {api: Produce}
  bytes: 4
"""

    kind: Literal["trailing_bytes"] = Field(description="kind of the rule")
    bytes: Annotated[ByteCount, Field(ge=1, le=MOST)] = Field(default=4, description="how many zero bytes are added")
    at: Direction = Field(default="response", description="changed frame")

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:
        return (Reframe(lambda frame: sized(frame[SIZE:] + bytes(self.bytes))),)
