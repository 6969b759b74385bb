"""wrong_correlation_id: a response that seems to belong to another request."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, Reframe
from kproxy.rules.kinds.base.frame_rule import SIZE, FrameRule
from kproxy.rules.kinds.base.rule import Decisions


def _not_zero(number: int) -> int:
    if not number:
        raise ValueError("an offset of 0 would change nothing")
    return number


class WrongCorrelationId(FrameRule):
    """Gives a response another correlation id than its request has."""

    group = "frames"
    example: ClassVar[str] = """\
- name: an answer to something else
  kind: wrong_correlation_id
  match: {api: Produce}
  when: {once: true}
  offset: 7
"""

    kind: Literal["wrong_correlation_id"] = Field(description="kind of the rule")
    offset: Annotated[int, Field(gt=-(2**31), lt=2**31), AfterValidator(_not_zero)] = Field(
        default=1,
        description="added to the correct id; -1 gives the id of the previous request if the client counts up by 1",
    )

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:
        def changed(frame: bytes) -> bytes:
            number = int.from_bytes(frame[SIZE : SIZE + 4], "big") + self.offset
            return frame[:SIZE] + (number & 0xFFFFFFFF).to_bytes(4, "big") + frame[SIZE + 4 :]

        return (Reframe(changed),)
