"""duplicate_response: a response comes more than once."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, Repeat
from kproxy.rules.kinds.base.frame_rule import FrameRule
from kproxy.rules.kinds.base.rule import Decisions

MOST = 1000
"""More copies show nothing more, and all of them are in memory at once."""


class DuplicateResponse(FrameRule):
    """Sends a response again, right behind itself."""

    group = "frames"
    example: ClassVar[str] = """\
- name: every tenth answer comes twice
  kind: duplicate_response
  match: {api: [Produce, Fetch]}
  when: {every: 10}
"""

    kind: Literal["duplicate_response"] = Field(description="kind of the rule")
    times: int = Field(default=1, ge=1, le=MOST, description="number of repetitions")

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:
        return (Repeat(self.times),)
