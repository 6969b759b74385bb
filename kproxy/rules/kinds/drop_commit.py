"""drop_commit: offset commits succeed and are lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.bodies.apis import OFFSET_COMMIT, TXN_OFFSET_COMMIT
from kproxy.rules.decision import Fail
from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base import Direction
from kproxy.rules.kinds.live import Decisions, Effect
from kproxy.rules.kinds.reading import SelectingRule

NONE = 0


class DropCommit(SelectingRule):
    """Answers offset commits with success without letting them reach the broker.

    The consumer takes its offsets for stored; the next one to own the partition reads from where it was before. Also
    for commits in transactions (TxnOffsetCommit). Of a commit for several partitions only those that match are lost.
    """

    example: ClassVar[str] = """\
- name: commits of billing are lost
  kind: drop_commit
  match: {group: billing, topic: orders}
"""

    kind: Literal["drop_commit"] = Field(description="what the rule does")

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        about = direction == "request" and key in (OFFSET_COMMIT, TXN_OFFSET_COMMIT)
        return Depth.BODY if about else Depth.NOTHING

    def start(self) -> Effect:
        return LostCommits()


class LostCommits(Effect):
    """Answers in the broker's place, with the error code of success."""

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return (Fail(NONE),)
