"""truncate: a frame ends in the middle, and then the connection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, Reframe
from kproxy.rules.kinds.base.frame_rule import FrameRule, kept
from kproxy.rules.kinds.base.rule import Decisions, Direction
from kproxy.rules.values.model import KEY, Wrong
from kproxy.rules.values.quantities import ByteCount

Fraction = Annotated[float, Field(ge=0, lt=1)]


class Truncate(FrameRule):
    """Sends only the beginning of a frame, and then closes the connection.

    The size field stays. At least the last byte is missing.
    """

    group = "frames"
    example: ClassVar[str] = """\
- name: a fetch breaks off in the middle
  kind: truncate
  match: {api: Fetch, topic: orders}
  when: {nth: 5}
  fraction: 0.5
"""

    kind: Literal["truncate"] = Field(description="kind of the rule")
    bytes: ByteCount | None = Field(default=None, description="bytes to send, including 4 bytes of the size")
    fraction: Fraction = Field(default=0.5, description="fraction of the frame to send, without `bytes`")
    close_with: Literal["fin", "rst"] = Field(default="fin", description="close the connection in order or by reset")
    at: Direction = Field(default="response", description="towards the client, or the request towards the broker")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        yield from one_length(raw)

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:
        def cut(frame: bytes) -> bytes:
            return frame[: min(kept(len(frame), self.bytes, self.fraction), len(frame) - 1)]

        return (Reframe(cut, self.close_with),)


def one_length(raw: dict[Any, Any]) -> Iterable[Wrong]:
    """Yield an error if both `bytes` and `fraction` are given."""
    if raw.get("bytes") is not None and raw.get("fraction") is not None:
        yield ("fraction", KEY), 'expected either "bytes" or "fraction", got both'
