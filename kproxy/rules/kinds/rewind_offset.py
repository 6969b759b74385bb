"""rewind_offset: another committed offset in OffsetFetch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.kinds.base.message_rule import OffsetsRule
from kproxy.rules.values.model import Wrong

HIGHEST = 2**63 - 1


class RewindOffset(OffsetsRule):
    """Moves committed offsets in responses to consumers, which then read records twice or skip them.

    The effect shows when a consumer starts or joins again. Stored offsets stay. No offset becomes negative, and
    partitions without a committed offset stay so. For an offset outside of the log, consumers use `auto.offset.reset`.
    """

    group = "groups, offsets and transactions"
    example: ClassVar[str] = """\
- name: billing starts 100 records too early
  kind: rewind_offset
  match: {group: billing, topic: orders}
  offset_by: -100
"""

    kind: Literal["rewind_offset"] = Field(description="kind of the rule")
    offset_by: int | None = Field(default=None, ge=-HIGHEST, le=HIGHEST, description="added to each committed offset")
    set_to: int | None = Field(default=None, ge=0, le=HIGHEST, description="replaces each committed offset")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        if ("set_to" in raw) == ("offset_by" in raw):
            yield (), 'expected either "offset_by" (difference) or "set_to" (offset)'

    def change_offset(self, partition: dict[str, Any]) -> dict[str, Any]:
        before = partition["committed_offset"]
        if before < 0:
            return partition
        after = self.set_to if self.set_to is not None else min(max(before + (self.offset_by or 0), 0), HIGHEST)
        return partition if after == before else {**partition, "committed_offset": after}
