"""set_watermark: high watermarks that stop or go back, and later log starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import yielding
from kproxy.protocol.table.api_keys import FETCH, LIST_OFFSETS
from kproxy.rules.bodies import PartitionBody, partitions_of_answer, partitions_of_request, waited
from kproxy.rules.content.edits import whole_entries
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange
from kproxy.rules.kinds.base.message_rule import ResponseRule
from kproxy.rules.kinds.base.records_rule import last_offset
from kproxy.rules.kinds.base.rule import Decisions, Effect, Permanent
from kproxy.rules.shared_numbers import Remembered
from kproxy.rules.values.model import Wrong

HIGHEST = 2**63 - 1
MOST_PARTITIONS = 100_000
"""Partitions with a remembered watermark; beyond that the least recently used one is evicted."""
LATEST, EARLIEST = -1, -2
OFFSET_OUT_OF_RANGE = 1
OUT_OF_RANGE = {
    "error_code": OFFSET_OUT_OF_RANGE, "high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1,
    "records": b"",
}  # fmt: skip
WORDS = ("stuck", "offset_by", "log_start")


class SetWatermark(ResponseRule):
    """Moves the ends of partitions as clients see them, in Fetch and ListOffsets.

    `stuck` keeps the first high watermark, `offset_by` moves it. Records beyond it are withheld, as a broker withholds
    unreplicated records, and `last_stable_offset` is lowered. `log_start` moves the start of the log: a read before it
    gets OFFSET_OUT_OF_RANGE, and the client uses `auto.offset.reset`. In ListOffsets, the latest and the earliest
    offset change, not offsets by time.
    """

    apis: ClassVar = {FETCH: 0, LIST_OFFSETS: 0}
    group = "records"
    example: ClassVar[str] = """\
- name: the high watermark of orders stands still
  kind: set_watermark
  match: {topic: orders}
  when: {for: 30s}
  stuck: true
"""

    kind: Literal["set_watermark"] = Field(description="kind of the rule")
    permanent: Permanent = False
    stuck: bool = Field(default=False, description="keep the first watermark that the rule sees")
    offset_by: int | None = Field(
        default=None, ge=-HIGHEST, le=HIGHEST, description="added to the watermark, which stays 0 or more"
    )
    log_start: int | None = Field(default=None, ge=0, le=HIGHEST, description="first offset of the log")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        if not any(raw.get(name) not in (None, False) for name in WORDS):
            yield (), f"expected something to set: {', '.join(WORDS)}"

    @property
    def reads_topics(self) -> bool:
        """Return True also to know a partition again that ListOffsets names and Fetch gives by its topic's id."""
        return self.stuck or self.selects_topics

    def start(self) -> Effect:
        return Watermarks(self)


class Watermarks(Effect):
    """Effect that remembers, for `stuck`, where each partition's watermark was."""

    def __init__(self, rule: SetWatermark) -> None:
        self.rule = rule
        self.first = Remembered(self, MOST_PARTITIONS)

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        requested = {place.name: place.body for place in partitions_of_request(exchange, entities)}
        change = self.fetched if exchange.api.key == FETCH else self.listed
        changed = [
            change(place, requested.get(place.name), exchange.connection.facts.cluster, now)
            for place in partitions_of_answer(exchange, entities)
            if place.body["error_code"] == 0
        ]
        if not any(changed):
            return ()
        return (Edit(), *waited(exchange)) if exchange.api.key == FETCH else (Edit(),)

    def moved(self, place: PartitionBody, cluster: str, before: int, now: float) -> int:
        after = before
        if self.rule.stuck:
            first = self.first.change((cluster, place.name), now, lambda known: known or (float(before),))
            after = min(after, before if first is None else int(first[0]))
        return min(max(after + (self.rule.offset_by or 0), 0), HIGHEST)

    def fetched(self, place: PartitionBody, requested: dict[str, Any] | None, cluster: str, now: float) -> bool:
        body, start = place.body, self.rule.log_start
        before = body["high_watermark"]
        high = self.moved(place, cluster, before, now)
        batches, _ = whole_entries(body["records"])
        if start is not None:
            wanted = (
                requested["fetch_offset"] if requested is not None else last_offset(batches[0]) if batches else start
            )
            if wanted < start:
                body.update({name: value for name, value in OUT_OF_RANGE.items() if name in body})
                return True
        changed = high != before or (start is not None and body.get("log_start_offset", start) < start)
        body["high_watermark"] = high
        if high != before and body.get("last_stable_offset", -1) > high:
            body["last_stable_offset"] = high
        if start is not None and "log_start_offset" in body:
            body["log_start_offset"] = max(body["log_start_offset"], start)
        visible = [entry.raw for entry in yielding(batches) if last_offset(entry) < high]
        if high < before and len(visible) < len(batches):
            body["records"] = b"".join(visible)
        return changed

    def listed(self, place: PartitionBody, requested: dict[str, Any] | None, cluster: str, now: float) -> bool:
        body, start = place.body, self.rule.log_start
        timestamp = requested["timestamp"] if requested is not None else None
        before = (body["old_style_offsets"] or ())[:1] if "old_style_offsets" in body else [body["offset"]]
        if not before or timestamp not in (LATEST, EARLIEST):
            return False
        after = self.moved(place, cluster, before[0], now) if timestamp == LATEST else max(before[0], start or 0)
        if "old_style_offsets" in body:
            body["old_style_offsets"] = [after, *body["old_style_offsets"][1:]]
        else:
            body["offset"] = after
        return bool(after != before[0])
