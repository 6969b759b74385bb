"""set_field: fields of JSON keys and values that get a value, a template or null."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.protocol.records.spans import EntrySpans
from kproxy.rules.bodies import PartitionBody
from kproxy.rules.content.masks import Given
from kproxy.rules.content.record_masks import FieldPath, RecordMasks
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.content_rule import (
    TRACEPARENT,
    ChangeRecord,
    HidingEffect,
    HidingRule,
    OnUnreadable,
    Template,
    template_values,
)
from kproxy.rules.kinds.base.rule import Effect, EffectProblem, Group
from kproxy.rules.values.model import Wrong

MOST_FIELDS = 100


class SetField(HidingRule):
    """Sets fields of JSON values to a value, a template such as `{principal}`, or null.

    A missing field is added to its object; a missing object or array element is not. Other fields keep their bytes.
    Keys can be changed on fetch only: on produce they decide the partition. Records without JSON, Avro records and
    records with another type on the path are unreadable, and pass by default. `add_header` lists the templates.
    """

    group: ClassVar[Group] = "record content"
    example: ClassVar[str] = """\
- name: name the client in each order
  kind: set_field
  match: {topic: orders}
  fields: {value.meta.client: "{client_id}", value.meta.reviewed: false, value.token: null}
"""

    kind: Literal["set_field"] = Field(description="kind of the rule")
    at: Literal["produce", "fetch"] = Field(
        default="produce", description="records of Produce requests, or of Fetch and ShareFetch responses"
    )
    on_unreadable: OnUnreadable | None = Field(
        default="pass",
        description="result for a record that the rule cannot read or change: pass, withhold (fetch) or reject "
        "(produce)",
    )
    fields: dict[str, Any] = Field(
        min_length=1, max_length=MOST_FIELDS, description="values by path, such as `value.a.b`; texts are templates"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        yield from super().cross_check({"at": "produce", **raw})
        fields = raw.get("fields")
        for name, value in fields.items() if isinstance(fields, dict) else ():
            try:
                path = FieldPath.parse(str(name))
                if path.part == "header" or not path.steps:
                    raise ValueError(f"expected a field of a value or key such as value.a.b, got {name}")
                if path.part == "key" and raw.get("at") != "fetch":
                    raise ValueError("expected at: fetch with fields of keys: on produce they decide the partition")
                if isinstance(value, str) and TRACEPARENT in Template(value).names:
                    raise ValueError("expected {traceparent} in add_header only")
            except ValueError as error:
                yield ("fields", name), str(error)

    @property
    def limits_clients(self) -> bool:
        return self.fails_closed

    @property
    def reads_principal(self) -> bool:
        """Return True also if a field contains the principal."""
        return any("{principal}" in str(value) for value in self.fields.values()) or super().reads_principal

    def start(self) -> Effect:
        return SetFields(self)


class SetFields(HidingEffect):
    """Effect that fills the templates for each partition."""

    def __init__(self, rule: SetField) -> None:
        super().__init__(rule)
        self.fields = [
            (FieldPath.parse(name), Template(value) if isinstance(value, str) else value)
            for name, value in rule.fields.items()
        ]
        self.unknown = EffectProblem("value_unknown")

    def problems(self) -> tuple[EffectProblem, ...]:
        return (*super().problems(), self.unknown)

    def changer(self, exchange: Exchange, place: PartitionBody) -> Callable[[EntrySpans], ChangeRecord]:
        values = template_values(exchange, place, exchange.came)
        masks = []
        for path, value in self.fields:
            if isinstance(value, Template):
                filled, known = value.fill(values.get)
                self.unknown.count += not known
                self.unknown.last = self.unknown.last if known else f'unknown value in "{value.text}" ({place.name})'
                value = filled.decode("utf-8", "replace")
            masks.append((path, Given(value), False))
        fields, decoder = RecordMasks(masks, form=self.rule.format), exchange.connection.decoder
        return lambda spans: lambda span: fields.edit(spans, span, decoder)
