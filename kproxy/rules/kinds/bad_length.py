"""bad_length: a frame with a wrong size in front."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, Reframe
from kproxy.rules.kinds.base.frame_rule import SIZE, FrameRule
from kproxy.rules.kinds.base.rule import Decisions, Direction


class BadLength(FrameRule):
    """Puts a wrong size in front of a frame: negative, zero, or larger than any client or broker accepts."""

    group = "frames"
    example: ClassVar[str] = """\
- name: a size below zero
  kind: bad_length
  match: {api: Produce}
  when: {once: true}
  length: -5
"""

    kind: Literal["bad_length"] = Field(description="kind of the rule")
    length: int = Field(ge=-(2**31), lt=2**31, description="value of the size field, such as -5, 0 or 2147483647")
    at: Direction = Field(default="response", description="changed frame")

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:
        size = self.length.to_bytes(SIZE, "big", signed=True)
        return (Reframe(lambda frame: size + frame[SIZE:]),)
