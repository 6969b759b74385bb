"""Masks for viewers: exchanges whose records are masked by all rules of the kind `mask` in force.

A viewer is a reader without a principal. So a rule applies by its topic only, whatever its other selectors, `at` and
`when` are, and also to records that clients get unmasked. The frames themselves are changed. So bytes, decoded
values, filters and saved exchanges agree. Records that cannot be read are left out. If a frame was not kept whole, its
records are overwritten. The broker's side can have other topic names, so its records are always overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.cooperative import yielding
from kproxy.base.errors import KproxyError, RecordsError
from kproxy.protocol import Message, decode_request, decode_response, encode
from kproxy.protocol.elements import Partition, partitions
from kproxy.protocol.records import Batch
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.rules.bodies import carries_records
from kproxy.rules.content.edits import RECORDS, FieldEdits, MessageEdits, RecordBudget, Whole, emptied
from kproxy.rules.content.record_masks import RecordMasks, masked_records
from kproxy.rules.content.schemas import SchemaCache, decoder_of

from .detail import without

if TYPE_CHECKING:
    from kproxy.rules.filter.record_fields import Decoder
    from kproxy.rules.kinds.mask import MaskRule
    from kproxy.rules.rule_set import RuleSet

MOST_MASKS = 1000
MOST_BYTES, MOST_RECORDS = 1 << 16, 2000
"""Bytes and records of a frame that a filter reads. Filters run without yield points, when an exchange ends."""
MASKED = "its records are masked by a rule"


class ViewerMasks:
    """Masks of the rules in force. `rules`: returns these. `find_cache`: returns the schemas of a cluster's registry.
    Threads may use it."""

    def __init__(
        self,
        rules: Callable[[], RuleSet],
        find_cache: Callable[[str | None], SchemaCache | None] = lambda _: None,
    ) -> None:
        self.rules, self.find_cache, self.lock = rules, find_cache, Lock()
        self.rule_set: RuleSet | None = None
        self.masking: tuple[MaskRule, ...] = ()
        self.made: BoundedMap[tuple[str, str | None], RecordMasks] = BoundedMap(MOST_MASKS)

    def __bool__(self) -> bool:
        """Return True if a rule masks records."""
        with self.lock:
            return bool(self.in_force())

    def in_force(self) -> tuple[MaskRule, ...]:
        rule_set = self.rules()
        if rule_set is not self.rule_set:
            found: list[Any] = [one.rule for one in rule_set.live if one.rule.kind == "mask" and not one.dry_run]
            self.rule_set, self.masking = rule_set, tuple(found)
            self.made = BoundedMap(MOST_MASKS)
        return self.masking

    def of_topic(self, topic: str | None) -> list[RecordMasks]:
        """Return the masks of a topic, in the order of their rules. None: the name is not known, so all rules apply."""
        masks = []
        with self.lock:
            for rule in self.in_force():
                if topic is not None and not rule.is_about(topic):
                    continue
                key = rule.name, topic
                if key not in self.made:
                    self.made[key] = rule.masks_of(topic)
                if self.made[key]:
                    masks.append(self.made[key])
        return masks

    def for_filter(self, seen: ObservedExchange) -> ObservedExchange:
        """Return an exchange for a filter: as `exchange`, without the records of long frames, and with the schemas of
        its cluster."""
        shown, cache = self.exchange(seen, brief=True), self.find_cache(seen.who.cluster)
        return shown if cache is None else replace(shown, decoder=decoder_of(lambda: cache))

    def exchange(self, seen: ObservedExchange, *, brief: bool = False) -> ObservedExchange:
        """Return an exchange with masked records: the same object without such a rule."""
        if not self:
            return seen
        request, response = (
            self.frame(seen, direction, frame, brief=brief)
            for direction, frame in (("request", seen.request), ("response", seen.response))
        )
        if request is seen.request and response is seen.response:
            return seen
        return replace(seen, request=request, response=response, _bodies=[None, None])

    def broker_side(self, seen: ObservedExchange | None) -> ObservedExchange | None:
        """Return the broker's side of an exchange without its records."""
        if seen is None or not self:
            return seen
        return replace(seen, request=without(seen, "request"), response=without(seen, "response"), _bodies=[None, None])

    def hides(self, seen: ObservedExchange, direction: str, frame: Frame | None) -> bool:
        """Return True if a frame has records of a topic with masks."""
        return self.frame(seen, direction, frame, marks_only=True) is not frame

    def frame(
        self,
        seen: ObservedExchange,
        direction: str,
        frame: Frame | None,
        *,
        marks_only: bool = False,
        brief: bool = False,
    ) -> Frame | None:
        """Return a frame of an exchange with masked records. `marks_only`: another frame if a topic has masks, even if
        nothing in its records is masked."""
        if frame is None or not carries_records(seen.key, direction) or not self:
            return frame
        if frame.form is Form.SKETCH or not frame.data:
            return frame
        overwritten = replace(seen, request=frame) if direction == "request" else replace(seen, response=frame)
        if frame.form is not Form.WHOLE or (brief and frame.size > MOST_BYTES):
            return without(overwritten, direction)
        try:
            read = decode_request if direction == "request" else read_response(seen)
            message = read(frame.data)  # bytes after the message are an error
            changed = self.mask(seen, message, marks_only=marks_only, brief=brief)
        except (KproxyError, LookupError, ValueError):
            return without(overwritten, direction)
        return replace(frame, data=encode(message)) if changed else frame

    def mask(self, seen: ObservedExchange, message: Message, *, marks_only: bool, brief: bool) -> bool:
        """Mask the records of a message in place. Return True if any changed. Raises RecordsError for more records than
        a filter reads."""
        edits, changed, records = MessageEdits(message), False, 0
        budget = RecordBudget(MOST_RECORDS, 1 << 20) if brief else RecordBudget()
        cache = self.find_cache(seen.who.cluster)
        decoder: Decoder | None = None if cache is None else decoder_of(lambda: cache)
        for part in yielding(partitions(message)):
            if not part.fields[RECORDS]:
                continue
            field = edits.field(part.fields)
            records += sum(one.count if isinstance(one, Batch) else MOST_RECORDS + 1 for one in field.entries)
            if brief and records > MOST_RECORDS:
                raise RecordsError(f"expected at most {MOST_RECORDS} records")
            leave_out = partial(left_out, field)
            for masks in self.of_topic(name_of(part, seen)):
                mask = masked_records(masks, decoder)
                changed |= marks_only or field.change_records(mask, budget, on_unreadable=leave_out)
        if changed:
            edits.flush()
        return changed


def name_of(part: Partition, seen: ObservedExchange) -> str | None:
    """Return the name of a partition's topic; None if it is not known."""
    if part.topic_id is None or part.topic_id == ZERO_UUID:
        return part[0] or None
    return seen.who.topic_of(str(part.topic_id))


def left_out(field: FieldEdits, entry: Whole | None, error: Exception) -> bytes:
    return emptied(entry, field.rest)


def read_response(seen: ObservedExchange) -> Callable[[bytes], Message]:
    return lambda data: decode_response(data, seen.key, seen.version)
