"""change_partitions: a topic has more or fewer partitions."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import defer_free, yielding, yielding_sort
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.message_rule import TopicRule
from kproxy.rules.values.model import Wrong

MOST = 10_000
"""Partitions; each is a dict in memory and a few dozen bytes in every answer."""


class ChangePartitions(TopicRule):
    """Shows clients more or fewer partitions of a topic than it has.

    Additional partitions copy the existing ones in turn; brokers reject requests to them with
    UNKNOWN_TOPIC_OR_PARTITION. To show fewer, the highest partitions are removed. At least one stays.
    """

    group = "cluster metadata"
    example: ClassVar[str] = """\
- name: orders seems to have grown
  kind: change_partitions
  match: {topic: orders}
  offset_by: 3
"""

    kind: Literal["change_partitions"] = Field(description="kind of the rule")
    set_to: int | None = Field(default=None, ge=1, le=MOST, description="number of partitions")
    offset_by: int | None = Field(default=None, ge=-MOST, le=MOST, description="partitions to add; negative: remove")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        yield from super().cross_check(raw)
        if ("set_to" in raw) == ("offset_by" in raw):
            yield (), 'expected either "set_to" (number of partitions) or "offset_by" (partitions to add)'

    def change_topic(self, topic: dict[str, Any], exchange: Exchange) -> bool:
        there = list(yielding_sort(defer_free(topic["partitions"]) or (), key=itemgetter("partition_index")))
        if not there:
            return False
        wanted = self.set_to if self.set_to is not None else len(there) + (self.offset_by or 0)
        wanted = min(max(wanted, 1), MOST)
        more = (
            {**there[number % len(there)], "partition_index": number} for number in yielding(range(len(there), wanted))
        )
        topic["partitions"] = [*there[:wanted], *more]
        return wanted != len(there)
