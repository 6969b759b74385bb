"""omit_offset: partitions without a committed offset in OffsetFetch."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.kinds.base.message_rule import UNCOMMITTED, OffsetsRule


class OmitOffset(OffsetsRule):
    """Tells consumers that nothing was committed, or leaves partitions out of the answer.

    `uncommitted` is what a broker says of a partition without an offset: consumers start where `auto.offset.reset`
    says. `missing` is what no broker does: a partition that was asked for is not in the answer.
    """

    group = "groups, offsets and transactions"
    example: ClassVar[str] = """\
- name: billing has forgotten where it was
  kind: omit_offset
  match: {group: billing}
"""

    kind: Literal["omit_offset"] = Field(description="what the rule does")
    how: Literal["uncommitted", "missing"] = Field(
        default="uncommitted", description="as if nothing had been committed, or not in the answer at all"
    )

    def change_offset(self, partition: dict[str, Any]) -> dict[str, Any] | None:
        if self.how == "missing":
            return None
        if partition["committed_offset"] < 0:
            return partition
        epoch = {"committed_leader_epoch": UNCOMMITTED} if "committed_leader_epoch" in partition else {}
        return {**partition, "committed_offset": UNCOMMITTED, **epoch, "metadata": ""}
