"""set_record: keys, values, headers, timestamps and schema ids of records become others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from kproxy.base.cooperative import yielding
from kproxy.protocol.records.spans import KEEP, EntrySpans, Header, Span
from kproxy.rules.bodies import PartitionBody
from kproxy.rules.content.edits import FieldEdits, RecordBudget
from kproxy.rules.kinds.base.records_rule import SomeRecordsRule
from kproxy.rules.kinds.base.rule import Permanent
from kproxy.rules.values.model import Wrong
from kproxy.rules.values.quantities import parse_duration

SCHEMA_MAGIC = b"\x00"
SCHEMA_SIZE = 5
"""Confluent's wire format: a zero byte, the schema's id as INT32, the data."""
SETS = ("value", "key", "headers", "timestamp_by", "schema_id")


def parse_shift(value: Any) -> Any:
    """Return seconds; a minus makes them negative: `-1h`. Raises ValueError."""
    if isinstance(value, str) and value.startswith("-"):
        return -parse_duration(value[1:])
    return parse_duration(value)


Shift = Annotated[float, BeforeValidator(parse_shift, json_schema_input_type=str | float), Field(allow_inf_nan=False)]


class SetRecord(SomeRecordsRule):
    """Gives records another key, value, timestamp, schema id or other headers; the checksum is right.

    `value: null` makes a tombstone. `headers: {}` removes all headers, `headers: {trace: null}` one header, and a text
    sets it. `schema_id` replaces the id of values in Confluent's wire format. With log append time, `timestamp_by`
    has no effect for consumers. Other parts stay. Messages of older formats have no headers, and `headers` leaves them
    unchanged.
    """

    group = "records"
    example: ClassVar[str] = """\
- name: every order is a tombstone
  kind: set_record
  match: {topic: orders}
  at: fetch
  value: null
"""

    kind: Literal["set_record"] = Field(description="kind of the rule")
    permanent: Permanent = False
    value: str | None = Field(default=None, description="value as text; null: no value")
    key: str | None = Field(default=None, description="key as text; null: no key")
    headers: dict[str, str | None] | None = Field(
        default=None, description="headers to set, or to remove with null; {}: remove all"
    )
    timestamp_by: Shift | None = Field(default=None, description="difference to add to the timestamp, such as -1h")
    schema_id: int | None = Field(default=None, ge=0, le=2**31 - 1, description="schema id in Confluent's wire format")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        if not any(name in raw for name in SETS):
            yield (), f"expected something to set: {', '.join(SETS)}"
        if "value" in raw and "schema_id" in raw:
            yield ("schema_id",), '"value" leaves nothing of the value for "schema_id" to go into'

    def change(self, field: FieldEdits, place: PartitionBody, budget: RecordBudget) -> bool:
        return self.alter(field, place, budget, self.with_given)

    def with_given(self, spans: EntrySpans, span: Span) -> Span:
        given, timestamp = self.model_fields_set, spans.timestamp(span)
        value = as_bytes(self.value) if "value" in given else KEEP
        if self.schema_id is not None and (before := spans.value(span)) is not None:
            value = with_schema(before, self.schema_id)
        return spans.edit(
            span,
            key=as_bytes(self.key) if "key" in given else KEEP,
            value=value,
            headers=KEEP if self.headers is None else with_headers(spans.headers(span), self.headers),
            timestamp=KEEP
            if self.timestamp_by is None or timestamp < 0
            else max(0, timestamp + round(self.timestamp_by * 1000)),
        )


def as_bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def with_headers(headers: Sequence[Header], wanted: dict[str, str | None]) -> list[Header]:
    """Return the headers, with these set or removed; none if `wanted` is empty."""
    if not wanted:
        return []
    given = {name.encode(): as_bytes(text) for name, text in wanted.items()}
    kept = [header for header in yielding(headers) if header[0] not in given]
    return [*kept, *((name, text) for name, text in given.items() if text is not None)]


def with_schema(value: bytes, number: int) -> bytes:
    """Return a value in Confluent's wire format with another schema id; any other value as it is."""
    if len(value) < SCHEMA_SIZE or not value.startswith(SCHEMA_MAGIC):
        return value
    return SCHEMA_MAGIC + number.to_bytes(4, "big") + value[SCHEMA_SIZE:]
