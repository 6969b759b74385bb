"""drop: a request or its response is lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import AfterDrop, Drop, Exchange, FrameDepth
from kproxy.rules.kinds.base.frame_rule import FrameRule
from kproxy.rules.kinds.base.rule import Decisions, Direction


class DropRule(FrameRule):
    """Drops a response, after the broker's work, or a request, before it.

    By default nothing more is sent on that connection, so that the client runs into its own timeout, as with a broker
    that hangs.
    """

    group = "frames"
    seen: ClassVar[FrameDepth] = FrameDepth.HEADER
    example: ClassVar[str] = """\
- name: the second write is stored, and nobody hears of it
  kind: drop
  match: {api: Produce, topic: orders}
  when: {nth: 2}
  what: response
  connection: close
"""

    kind: Literal["drop"] = Field(description="kind of the rule")
    what: Direction = Field(default="response", description="frame to drop")
    connection: AfterDrop = Field(
        default="stall",
        description="stall: send nothing more; close: close it; continue: omit the response and send later ones",
    )

    def side(self, key: int) -> Direction:
        return self.what

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:
        return (Drop(self.connection),)

    def warnings(self) -> Iterable[str]:
        yield from super().warnings()
        unanswered = self.what == "request" and self.match is not None and self.match.acks == [0]
        if self.connection == "continue" and not unanswered:
            yield (
                "connection: continue leaves out one response and sends those after it, which no broker does: "
                "Java clients close the connection at the next one, others wait for their time-out"
            )
