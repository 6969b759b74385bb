"""filter_records: records that clients do not get."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.protocol.records.spans import EntrySpans, Span
from kproxy.protocol.table.api_keys import SHARE_FETCH
from kproxy.rules.bodies import PartitionBody
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.content_rule import ChangeRecord, HidingEffect, HidingRule
from kproxy.rules.kinds.base.rule import Effect, Group

BY_CLIENT = ("principal", "client_id", "client_address", "client_software", "certificate")


class FilterRecords(HidingRule):
    """Removes matching records from Fetch and ShareFetch responses.

    Other records keep their offsets, as after compaction, and consumers continue after the gap. A batch without
    remaining records stays, so positions advance. Counts, offsets, sizes and timestamps remain visible.

    A client with an unknown principal matches `match.principal`, and never `not.principal`. Share groups finish a
    withheld record for all members. Message sets (magic 0 and 1) cannot show gaps: a Fetch without remaining messages
    makes no progress.
    """

    group: ClassVar[Group] = "record content"
    example: ClassVar[str] = """\
- name: EU staff only
  kind: filter_records
  match: {topic: orders, records: value.region == EU}
  not: {principal: "eu-*"}
"""

    kind: Literal["filter_records"] = Field(description="kind of the rule")
    at: Literal["fetch"] = Field(default="fetch", description="records of Fetch and ShareFetch responses")

    def warnings(self) -> Iterable[str]:
        yield from super().warnings()
        sides = [one for one in (self.match, self.not_) if one is not None]
        if any(getattr(side, name) is not None for side in sides for name in BY_CLIENT) and self.about(SHARE_FETCH, 1):
            yield "share groups finish withheld records for all members; exclude ShareFetch, or select by topic only"

    def start(self) -> Effect:
        return FilteredRecords(self)


class FilteredRecords(HidingEffect):
    """Effect that withholds the selected records."""

    def changer(self, exchange: Exchange, place: PartitionBody) -> Callable[[EntrySpans], ChangeRecord]:
        def withheld(span: Span) -> Span | None:
            return None

        return lambda spans: withheld
