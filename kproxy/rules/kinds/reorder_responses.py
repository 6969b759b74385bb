"""reorder_responses: a response comes after the one that should follow it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, Swap
from kproxy.rules.kinds.base.frame_rule import FrameRule
from kproxy.rules.kinds.base.rule import Decisions


class ReorderResponses(FrameRule):
    """Sends a response after the one that should follow it.

    Nothing happens to a response that no other is due after: there is nothing to change places with.
    """

    group = "frames"
    example: ClassVar[str] = """\
- name: answers out of order
  kind: reorder_responses
  match: {api: Produce}
  when: {every: 5}
"""

    kind: Literal["reorder_responses"] = Field(description="kind of the rule")

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:
        return (Swap(),)
