"""omit_offset: partitions without a committed offset in OffsetFetch."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.kinds.base.message_rule import UNCOMMITTED, OffsetsRule


class OmitOffset(OffsetsRule):
    """Returns no committed offset to consumers, or removes partitions from the response.

    `uncommitted`: as a broker returns a partition without an offset, so consumers start at `auto.offset.reset`.
    `missing`: a requested partition is not in the response, which no broker does.
    """

    group = "groups, offsets and transactions"
    example: ClassVar[str] = """\
- name: billing has forgotten where it was
  kind: omit_offset
  match: {group: billing}
"""

    kind: Literal["omit_offset"] = Field(description="kind of the rule")
    omit_as: Literal["uncommitted", "missing"] = Field(
        default="uncommitted", description="uncommitted: return no offset; missing: omit the partition"
    )

    def change_offset(self, partition: dict[str, Any]) -> dict[str, Any] | None:
        if self.omit_as == "missing":
            return None
        if partition["committed_offset"] < 0:
            return partition
        epoch = {"committed_leader_epoch": UNCOMMITTED} if "committed_leader_epoch" in partition else {}
        return {**partition, "committed_offset": UNCOMMITTED, **epoch, "metadata": ""}
