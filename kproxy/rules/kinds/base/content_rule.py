"""Base class of kinds about the content of records that are not faults.

Records are changed through `rules/content/edits.py`. On fetch, longer records must not exceed the client's limits:
requests ask for at most `max_fetch_bytes`, and batches beyond the client's `max_bytes` are removed.

`Template` is a text of a header or field with names in braces, such as `{principal}`; `{{` and `}}` are braces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from os import urandom
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import yield_point, yielding
from kproxy.base.errors import RecordsError
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.records.spans import EntrySpans, Span
from kproxy.protocol.table.api_keys import FETCH
from kproxy.rules.bodies import PartitionBody, selected_partitions
from kproxy.rules.content.edits import RECORDS, FieldEdits, RecordBudget, Whole, emptied
from kproxy.rules.content.record_masks import check_empty
from kproxy.rules.content.schemas import MOST_UNKNOWN, SchemaKey, SchemaNeeded, SchemaUnloaded
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Delay, Edit, Exchange, Fail, FrameDepth
from kproxy.rules.filter.record_fields import UnreadableRecord
from kproxy.rules.kinds.base.quota import has_max_bytes
from kproxy.rules.values.model import Wrong

from .access import is_nameless
from .record_selector import FIRST_WITH_RECORD_ERRORS, MOST_NAMED, NOT_ENOUGH_REPLICAS, budget_of, schema_reason
from .records_rule import RecordChanges, RecordsRule, edits_of, first_offset
from .rule import UNCOUNTED, Decisions, Direction, Effect, EffectProblem, Family

INVALID_RECORD, POLICY_VIOLATION = 87, 44
LONGEST_HOLD = 5.0
"""Seconds that a response without records waits while schemas are not loaded, so that clients do not poll in a loop."""


class ContentRule(RecordsRule):
    """Rule about the content of records, which stays in force while faults are disabled. Override `change`."""

    family: ClassVar[Family] = "content"
    selects_single_records: ClassVar[bool] = True

    at: Literal["produce", "fetch"] = Field(
        default="produce", description="records of Produce requests, or of Fetch and ShareFetch responses"
    )

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        if self.at == "fetch" and direction == "request" and key == FETCH and has_max_bytes(key, version):
            return FrameDepth.BODY
        return super().depth(direction, key, version)

    def start(self) -> Effect:
        return ContentEffect(self)


class ContentEffect(RecordChanges):
    """Effect that keeps responses within the limits of the client."""

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        if exchange.api.key != FETCH:
            return super().on_request(exchange, entities, now)
        body = exchange.request.body
        if exchange.max_bytes is None:
            exchange.max_bytes = body["max_bytes"]
        most = exchange.connection.content.max_fetch_bytes
        if body["max_bytes"] <= most:
            return ()
        body["max_bytes"] = most
        body["min_bytes"] = min(body["min_bytes"], most)  # above max_bytes the broker would wait in vain
        return (UNCOUNTED,)

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        if exchange.max_bytes is not None and exchange.api.key == FETCH:
            edits_of(exchange, "response").limit(exchange.max_bytes)
        return super().on_response(exchange, entities, now)


OnUnreadable = Literal["withhold", "reject", "pass"]
REGISTRY_DOWN = {"fetch": ("hold", "unreadable"), "produce": ("retry", "pass", "reject")}
ChangeRecord = Callable[[Span], Span | None]
"""Returns a record after a change; None: it is withheld. Raises UnreadableRecord and SchemaNeeded."""


class HidingRule(ContentRule):
    """Rule that hides content from clients. It fails closed, and clients with an unknown principal match. Override
    `start` with an effect that is a HidingEffect."""

    at: Literal["fetch", "produce"] = Field(
        default="fetch", description="records of Fetch and ShareFetch responses, or of Produce requests"
    )
    on_unreadable: OnUnreadable | None = Field(
        default=None,
        description="result for a record that the rule cannot read or change: withhold (the default of fetch), reject "
        "(the default of produce) or pass",
    )
    on_registry_down: Literal["retry", "pass", "reject", "hold", "unreadable"] | None = Field(
        default=None,
        description="result for records with a schema that the registry has not returned. Produce: retry (default; "
        "NOT_ENOUGH_REPLICAS), pass, reject. Fetch: hold (default; fetched again), unreadable",
    )
    waits_for_schemas: ClassVar[bool] = True

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        result, at = raw.get("on_unreadable"), raw.get("at", "fetch")
        down, results = raw.get("on_registry_down"), REGISTRY_DOWN.get(at, ())
        if down is not None and results and down not in results:
            yield ("on_registry_down",), f"expected {' or '.join(results)} with at: {at}, got {down}"
        if (at, result) in (("fetch", "reject"), ("produce", "withhold")):
            own = "withhold" if at == "fetch" else "reject"
            yield ("on_unreadable",), f"expected {own} or pass with at: {at}, got {result}"

    @property
    def limits_clients(self) -> bool:
        return True

    @property
    def reads_schemas(self) -> bool:
        return True

    @property
    def fails_closed(self) -> bool:
        return self.unreadable_result != "pass"

    @property
    def stops_unread(self) -> bool:
        return self.fails_closed

    @property
    def unreadable_result(self) -> OnUnreadable:
        return self.on_unreadable or ("withhold" if self.at == "fetch" else "reject")

    @property
    def selects_nameless(self) -> bool:
        """Return True if topics whose id has no known name are selected, since they could be those of the rule."""
        return True

    def holds_for(self, entity: Entity) -> bool:
        match = self.match
        if match is None or match.holds_entity(entity):
            return True
        return (
            self.selects_nameless
            and match.topic is not None
            and is_nameless(entity)
            and match.holds_but_for("topic", entity)
        )


class HidingEffect(ContentEffect):
    """Effect of a rule that hides content. Override `changer`."""

    rule: HidingRule

    def __init__(self, rule: HidingRule) -> None:
        super().__init__(rule)
        self.unreadable = EffectProblem("record_unreadable")

    def problems(self) -> Sequence[EffectProblem]:
        return (self.unreadable,)

    def changer(self, exchange: Exchange, place: PartitionBody) -> Callable[[EntrySpans], ChangeRecord]:
        """Return the maker of the function that changes the records of one entry of a partition."""
        raise NotImplementedError

    def go_through(self, exchange: Exchange, entities: Sequence[Entity], direction: Direction, now: float) -> Decisions:
        edits, budget, changed, held = edits_of(exchange, direction), budget_of(exchange), False, False
        failed: list[Fail] = []
        for place in selected_partitions(edits.message, exchange, entities):
            if place.body[RECORDS]:
                test = self.rule.record_test(exchange, place.asked or place.entity, now, self.records)
                rejected: list[tuple[int, str]] = []
                missing: dict[SchemaKey, Whole] = {}
                field, one = edits.field(place.body), replace(place, record_test=test)
                field.counts = self.records
                changed |= self.hide(self.changer(exchange, place), field, one, budget, rejected, missing)
                # The limit holds for hostile records with many ids, which would otherwise wait forever.
                waits = 0 < len(missing) <= MOST_UNKNOWN
                if waits and self.rule.at == "fetch":
                    hold(field, place, next(iter(missing.values())))
                    changed = held = True
                elif waits:
                    reason = schema_reason(self.rule.name)
                    failed.append(Fail(NOT_ENOUGH_REPLICAS, reason, (place.asked or place.entity,)))
                elif rejected:
                    code = INVALID_RECORD if exchange.version >= FIRST_WITH_RECORD_ERRORS else POLICY_VIOLATION
                    failed.append(Fail(code, rejected[0][1], (place.asked or place.entity,), records=tuple(rejected)))
            yield_point()
        if held:
            return (Edit(), hold_delay(exchange))
        return (*failed, Edit()) if changed else failed

    def hide(
        self, make: Callable[[EntrySpans], ChangeRecord], field: FieldEdits, place: PartitionBody, budget: RecordBudget,
        rejected: list[tuple[int, str]], missing: dict[SchemaKey, Whole],
    ) -> bool:  # fmt: skip
        """Change the records of a partition. Return True if any changed. `rejected`: gets index and reason of records
        that fail the request. `missing`: gets schemas that are not loaded, with the first entry of each."""
        result, index = self.rule.unreadable_result, 0
        down = self.rule.on_registry_down or REGISTRY_DOWN[self.rule.at][0]
        waits, own = down in ("retry", "hold"), down if down in ("pass", "reject") else result

        def note(error: Exception, result: str = result) -> None:
            self.unreadable.count += 1
            self.unreadable.last = f"{error} ({place.name})"
            if result == "reject" and len(rejected) < MOST_NAMED:
                rejected.append((index, f'rule "{self.rule.name}" cannot read the record'))

        def change(spans: EntrySpans, records: Iterable[Span]) -> Iterator[Span]:
            nonlocal index
            check_empty(spans)
            chosen = None if place.record_test is None else place.record_test(spans)
            alter = make(spans)
            for span in records:
                after: Span | None = span
                try:
                    if chosen is None or chosen(span):
                        after = alter(span)
                except (UnreadableRecord, SchemaNeeded) as error:
                    note(error, own if isinstance(error, SchemaUnloaded) else result)
                    if isinstance(error, SchemaUnloaded) and waits and len(missing) <= MOST_UNKNOWN:
                        missing.setdefault(error.key, spans.entry)
                    after = None if result == "withhold" else span
                index += 1
                if after is not None:
                    yield after

        def on_unreadable(entry: Whole | None, error: RecordsError) -> Buffer | None:
            note(error)
            return emptied(entry, field.rest) if result == "withhold" else None

        return field.change_records(change, budget, on_unreadable=on_unreadable)


def hold_delay(exchange: Exchange) -> Delay:
    """Return the delay of a response without its held records."""
    return Delay(min(max(0.1, exchange.request.body["max_wait_ms"] / 1000), LONGEST_HOLD))


def hold(field: FieldEdits, place: PartitionBody, entry: Whole) -> None:
    """Remove an entry and all after it from a response, so that the client fetches them again."""
    field.cut(entry)
    first = first_offset(entry)
    if (acquired := place.body.get("acquired_records")) is not None:
        place.body["acquired_records"] = [
            one | {"last_offset": min(one["last_offset"], first - 1)}
            for one in yielding(acquired)
            if one["first_offset"] < first
        ]


NAMES = (
    "principal", "client_id", "client_address", "listener", "cluster", "topic", "partition", "now", "now_ms",
    "traceparent",
)  # fmt: skip
TRACEPARENT = "traceparent"
LONGEST = 1000
"""Characters of a template."""
TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # written with a Z
RANDOM_BYTES = 24
RANDOM_DIGITS, MOST_RANDOM = 14, 1 << 56
"""Hex digits at the end of a trace id that are random (W3C Trace Context Level 2): by them all agree who is sampled."""


class Template:
    """Text with names in braces. Raises ValueError for an unknown name and for a single brace."""

    __slots__ = ("names", "pieces", "text")

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise ValueError(f"expected a template of at most {LONGEST} characters, got {len(text)}")
        self.text = text
        self.pieces: list[tuple[str, str | None]] = []  # texts, each with the name that follows it
        before, position = "", 0
        for found in TOKEN.finditer(text):
            token, name = found[0], found[1]
            before += text[position : found.start()]
            position = found.end()
            if token in ("{{", "}}"):
                before += token[0]
            elif name in NAMES:
                self.pieces.append((before, name))
                before = ""
            elif name is None:
                raise ValueError(f'expected {{name}}, or {{{{ and }}}} for braces, got "{token}" in "{text}"')
            else:
                raise ValueError(f"expected one of {', '.join(NAMES)}, got {{{name}}}")
        self.pieces.append((before + text[position:], None))
        self.names = frozenset(name for _, name in self.pieces if name is not None)

    def fill(self, value: Callable[[str], str | None]) -> tuple[bytes, bool]:
        """Return the text with the values of all names, and True if each value is known. An unknown value is empty."""
        parts, known = [], True
        for before, name in self.pieces:
            parts.append(before)
            if name is not None:
                found = value(name)
                known &= found is not None
                parts.append(found or "")
        return "".join(parts).encode("utf-8", "surrogateescape"), known


def template_values(exchange: Exchange, place: PartitionBody, now: float) -> dict[str, str | None]:
    """Return the values of all names but `traceparent` for a partition; None: unknown. `now`: monotonic seconds."""
    facts, seconds = exchange.connection.facts, exchange.connection.unix_time(now)
    return {
        "principal": exchange.principal,
        "client_id": exchange.client_id,
        "client_address": facts.client_address,
        "listener": facts.listener,
        "cluster": facts.cluster,
        "topic": place.entity.topic,
        "partition": str(place.entity.partition),
        "now": time_text(seconds),
        "now_ms": str(int(seconds * 1000)),
    }


def time_text(seconds: float) -> str:
    """Return a Unix time as ISO 8601 in UTC with milliseconds."""
    return (EPOCH + timedelta(milliseconds=int(seconds * 1000))).isoformat(timespec="milliseconds") + "Z"


def is_chosen(trace_id: str, fraction: float) -> bool:
    """Return True if a trace is among this fraction of all: the same for all who ask by the same rule."""
    return int(trace_id[-RANDOM_DIGITS:], 16) >= (1 - fraction) * MOST_RANDOM


def new_traceparent(sample: float = 1.0) -> bytes:
    """Return a `traceparent` with a new trace id and a new parent id. `sample`: fraction with the flag `sampled`."""
    while True:
        digits = urandom(RANDOM_BYTES).hex()
        trace, parent = digits[:32], digits[32:]
        if trace.strip("0") and parent.strip("0"):  # zeros are invalid
            return f"00-{trace}-{parent}-{'01' if sample >= 1 or is_chosen(trace, sample) else '00'}".encode()
