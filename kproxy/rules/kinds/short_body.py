"""short_body: a body without its end, in a frame of matching size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, Reframe
from kproxy.rules.kinds.base.frame_rule import SIZE, FrameRule, body_at, kept, sized
from kproxy.rules.kinds.base.rule import Decisions, Direction
from kproxy.rules.kinds.truncate import Fraction, one_length
from kproxy.rules.values.model import Wrong
from kproxy.rules.values.quantities import ByteCount


class ShortBody(FrameRule):
    """Cuts the end of a body and adapts the frame's size.

    The receiver gets a complete frame with an incomplete body, and kproxy leaves the connection open.
    """

    group = "frames"
    example: ClassVar[str] = """\
- name: an answer that cannot be read
  kind: short_body
  match: {api: Produce}
  when: {once: true}
  fraction: 0.5
"""

    kind: Literal["short_body"] = Field(description="kind of the rule")
    bytes: ByteCount | None = Field(default=None, description="bytes of the body to keep")
    fraction: Fraction = Field(default=0.5, description="fraction of the body to keep, without `bytes`")
    at: Direction = Field(default="response", description="changed frame")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        yield from one_length(raw)

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:

        def cut(frame: bytes) -> bytes:
            start = body_at(frame, exchange, self.at)
            return sized(frame[SIZE : start + kept(len(frame) - start, self.bytes, self.fraction)])

        return (Reframe(cut),)
