"""add_header: headers of records from templates, such as the principal of the producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from kproxy.base.cooperative import yielding
from kproxy.protocol.records import Batch
from kproxy.protocol.records.spans import END, VALUE_END, EntrySpans, Header, Span, header_bytes
from kproxy.rules.bodies import PartitionBody
from kproxy.rules.content.edits import FieldEdits, RecordBudget
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.filter.record_fields import UnreadableRecord
from kproxy.rules.kinds.base.content_rule import (
    TRACEPARENT,
    ChangeRecord,
    ContentEffect,
    HidingEffect,
    HidingRule,
    Template,
    new_traceparent,
    template_values,
)
from kproxy.rules.kinds.base.rule import Decisions, Direction, Effect, EffectProblem, Group
from kproxy.rules.values.model import Wrong

TRACED = frozenset((b"traceparent", b"b3"))
"""Headers that carry the context of a trace."""
TRACE_START = header_bytes([(b"traceparent", bytes(55))])[:-55]
"""Bytes of the header before its value."""
MOST_HEADERS = 100
LONGEST_NAME = 1000


def check_template(text: str) -> str:
    Template(text)
    return text


class AddHeader(HidingRule):
    """Adds headers to records. Values are templates, such as `{principal}`.

    Headers of the same name are replaced; with `replace: false` they stay. Templates: `{principal}`, `{client_id}`,
    `{client_address}`, `{listener}`, `{cluster}`, `{topic}`, `{partition}`, `{now}` (UTC), `{now_ms}` and
    `{traceparent}`. An unknown value is an empty text, and counts as a problem of the rule. Records of magic 0 and 1
    have no headers: they pass, and count as a problem.

    `{traceparent}` creates a W3C trace id for each record, except for records with the header `traceparent` or `b3`.
    The fraction `otlp.traces.sample` of the traces is sampled, by default all.
    For headers that consumers trust, use `on_unreadable: reject`: otherwise a header of a client stays in a batch that
    kproxy cannot change, such as one of magic 0 or 1 or beyond a limit. Brokers reject control batches of clients.
    On produce, the broker can reject a batch that became longer than `message.max.bytes`.
    """

    group: ClassVar[Group] = "record content"
    example: ClassVar[str] = """\
- name: record the principal
  kind: add_header
  match: {topic: "orders*"}
  headers: {x-principal: "{principal}", x-received: "{now}"}
"""

    kind: Literal["add_header"] = Field(description="kind of the rule")
    headers: dict[
        Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)], Annotated[str, AfterValidator(check_template)]
    ] = Field(min_length=1, max_length=MOST_HEADERS, description="templates of the values by the names of the headers")
    replace: bool = Field(default=True, description="replace headers of the same name; false: keep them")
    at: Literal["produce", "fetch"] = Field(
        default="produce", description="records of Produce requests, or of Fetch and ShareFetch responses"
    )
    on_unreadable: Literal["pass", "reject"] = Field(
        default="pass", description="result for a record that the rule cannot change: pass, or reject (produce)"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        yield from super().cross_check({"at": "produce", **raw})
        headers = raw.get("headers")
        for name, text in headers.items() if isinstance(headers, dict) else ():
            if not isinstance(text, str) or "{traceparent}" not in text:
                continue
            if name != TRACEPARENT or text != "{traceparent}":
                yield ("headers", name), "{traceparent} is the whole value of the header traceparent"
            elif raw.get("replace") is not False:
                yield ("headers", name), "expected replace: false with {traceparent}: it must not replace a trace"

    @property
    def limits_clients(self) -> bool:
        return self.fails_closed

    @property
    def reads_schemas(self) -> bool:
        return self.selects_records and self.format != "text"

    @property
    def selects_nameless(self) -> bool:
        return self.fails_closed

    @property
    def reads_principal(self) -> bool:
        """Return True also if a header contains the principal."""
        return any("{principal}" in text for text in self.headers.values()) or super().reads_principal

    def start(self) -> Effect:
        return AddedHeaders(self)


class AddedHeaders(HidingEffect):
    """Effect with the compiled templates. It fills them once for each partition."""

    def __init__(self, rule: AddHeader) -> None:
        super().__init__(rule)
        self.replace = rule.replace
        self.traces = rule.headers.get(TRACEPARENT) == "{traceparent}"
        self.templates = [
            (name.encode(), Template(text))
            for name, text in rule.headers.items()
            if not self.traces or name != TRACEPARENT
        ]
        self.unknown, self.old = EffectProblem("value_unknown"), EffectProblem("magic_without_headers")

    def problems(self) -> Sequence[EffectProblem]:
        return (*super().problems(), self.unknown, self.old)

    def go_through(self, exchange: Exchange, entities: Sequence[Entity], direction: Direction, now: float) -> Decisions:
        closed = self.rule.fails_closed
        return (HidingEffect if closed else ContentEffect).go_through(self, exchange, entities, direction, now)

    def change(
        self, exchange: Exchange, field: FieldEdits, place: PartitionBody, budget: RecordBudget, now: float
    ) -> bool:
        changer = self.adder(exchange, place, now)

        def with_headers(spans: EntrySpans, records: Iterable[Span]) -> Iterable[Span]:
            if not isinstance(spans.entry, Batch):
                self.old.count += 1
                self.old.last = f"records of magic {spans.entry.magic} have no headers ({place.name})"
                return records
            chosen, changed = None if place.record_test is None else place.record_test(spans), changer(spans)
            return (changed(span) or span if chosen is None or chosen(span) else span for span in records)

        return field.change_records(with_headers, budget)

    def changer(self, exchange: Exchange, place: PartitionBody) -> Callable[[EntrySpans], ChangeRecord]:
        return self.adder(exchange, place, exchange.came)

    def adder(self, exchange: Exchange, place: PartitionBody, now: float) -> Callable[[EntrySpans], ChangeRecord]:
        added = self.filled(exchange, place, now)
        names, more, sample = [name for name, _ in added], header_bytes(added), exchange.connection.trace_sample
        if self.traces:
            names += TRACED

        def changer(spans: EntrySpans) -> ChangeRecord:
            def changed(span: Span) -> Span:
                before = spans.part(span[VALUE_END], span[END])
                if len(before) > 1 and any(name in before for name in names):  # or in another name or value
                    return spans.edit(span, headers=self.merged(spans.headers(span), added, sample))
                if self.traces:
                    return spans.append_headers(span, more + TRACE_START + new_traceparent(sample), len(added) + 1)
                return spans.append_headers(span, more, len(added))

            def fails(span: Span) -> Span:
                raise UnreadableRecord(f"records of magic {spans.entry.magic} have no headers")

            return changed if isinstance(spans.entry, Batch) else fails

        return changer

    def merged(self, headers: list[Header], added: list[Header], sample: float) -> list[Header]:
        """Return the headers of a record with these, and with a trace unless there is one."""
        before = {name for name, _ in headers}
        if self.replace:
            names = {name for name, _ in added}
            merged = [header for header in yielding(headers) if header[0] not in names] + added
        else:
            merged = headers + [header for header in added if header[0] not in before]
        if self.traces and not before & TRACED:
            merged.append((TRACEPARENT.encode(), new_traceparent(sample)))
        return merged

    def filled(self, exchange: Exchange, place: PartitionBody, now: float) -> list[Header]:
        """Return the headers for the records of a partition; values that are unknown are counted."""
        values = template_values(exchange, place, now)
        added: list[Header] = []
        for name, template in self.templates:
            content, known = template.fill(values.get)
            added.append((name, content))
            if not known:
                self.unknown.count += 1
                self.unknown.last = f'unknown value in "{template.text}" ({place.name})'
        return added
