"""drop_commit: offset commits succeed and are lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.protocol.table.api_keys import OFFSET_COMMIT, TXN_OFFSET_COMMIT
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, Fail
from kproxy.rules.kinds.base.message_rule import RequestRule
from kproxy.rules.kinds.base.rule import Decisions

NONE = 0


class DropCommit(RequestRule):
    """Responds to offset commits with success without sending them to the broker.

    The consumer assumes that its offsets are stored. The next owner of the partition reads from the earlier offset. The
    same holds for commits in transactions (TxnOffsetCommit). In a commit for several partitions, only matching ones are
    dropped.
    """

    apis: ClassVar = {OFFSET_COMMIT: 0, TXN_OFFSET_COMMIT: 0}
    group = "groups, offsets and transactions"
    example: ClassVar[str] = """\
- name: commits of billing are lost
  kind: drop_commit
  match: {group: billing, topic: orders}
"""

    kind: Literal["drop_commit"] = Field(description="kind of the rule")

    def decide(self, exchange: Exchange, entities: Sequence[Entity]) -> Decisions:
        return (Fail(NONE),)
