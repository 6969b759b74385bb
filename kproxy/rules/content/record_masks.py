"""Masks of records: of fields of keys and values, of whole keys and values, and of headers.

`FieldPath` is the place of a mask, such as `value.customer.email`. `RecordMasks` has the masks of the records of one
topic. `mask` returns the parts of a record that change. A key or value with a path is JSON, with or without the id of a
schema in front; anything else raises UnreadableRecord, since it may contain the field in another form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import Batch
from kproxy.protocol.records.spans import KEEP, EntrySpans, Header, Keep, Span
from kproxy.rules.filter.kinds import unquoted
from kproxy.rules.filter.record_fields import (
    HEADER,
    Decoder,
    Format,
    Part,
    RecordView,
    Step,
    UnreadableRecord,
    parse_path,
)

from .edits import ChangeSpans
from .masks import JsonMasks, Mask, MaskNode
from .schemas import SchemaNeeded

PARTS: tuple[Part, ...] = ("key", "value")


class FieldPath(NamedTuple):
    """Place of a mask. `part`: key, value or header. `steps`: path in a key or value, or the name of a header."""

    part: str
    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: str) -> FieldPath:
        """Raises ValueError."""
        if text.startswith("header.") and (found := HEADER.fullmatch(text[len("header") :])) is not None:
            return cls("header", (unquoted(found[1]),))
        for part in PARTS:
            if text == part or text.startswith((f"{part}.", f"{part}[")):
                return cls(part, parse_path(text[len(part) :]))
        raise ValueError(f"expected a field such as value.customer.email, key or header.user, got {text[:200]}")


class PartMasks:
    """Masks of a key or value. `whole`: for all of it. `json`: for its fields."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.node = MaskNode()
        self.json: JsonMasks | None = None
        self.whole: Mask | None = None

    def compile(self) -> None:
        if self.node.names or self.node.indexes or self.node.every is not None:
            self.json = JsonMasks(root=self.node)

    def mask(self, view: RecordView, data: bytes) -> bytes | None:
        """Return the masked key or value; None: null. Raises UnreadableRecord, and what the decoder raises."""
        if self.whole is not None:
            return self.whole.plain(data)
        if self.json is None:
            return data
        found = None if view.decoder is None else view.decoder(view, self.part, data)
        if found is None and view.form != "avro":
            return self.json.apply(data)
        if found is None:
            raise UnreadableRecord("expected Avro with the id of a schema, got other data")
        if found.avro is not None:
            raise UnreadableRecord("expected JSON, got Avro")
        return data[: len(data) - len(found.payload)] + self.json.apply(found.payload)


class RecordMasks:
    """Masks of the records of one topic. Earlier masks take precedence. `required`: False: records pass without masks.
    True: a record with a value is unreadable, since the topic has no masks. `form`: of keys and values with paths."""

    def __init__(
        self, masks: Iterable[tuple[FieldPath, Mask, bool]], *, lacks_tags: bool = False, form: Format = "auto"
    ) -> None:
        self.form = form
        self.key, self.value = PartMasks("key"), PartMasks("value")
        self.headers: dict[bytes, Mask] = {}
        self.lacks_tags = lacks_tags
        for path, mask, leaves in masks:
            if path.part == "header":
                self.headers.setdefault(str(path.steps[0]).encode("utf-8", "surrogateescape"), mask)
                continue
            part = self.key if path.part == "key" else self.value
            if path.steps:
                part.node.add(path.steps, mask, leaves=leaves)
            elif part.whole is None:
                part.whole = mask
        for part in (self.key, self.value):
            part.compile()

    def __bool__(self) -> bool:
        parts = (self.key, self.value)
        return bool(self.headers) or self.lacks_tags or any(one.whole or one.json for one in parts)

    def mask(
        self, view: RecordView, key: bytes | None, value: bytes | None, headers: list[Header]
    ) -> tuple[bytes | Keep | None, bytes | Keep | None, list[Header] | Keep]:
        """Return the masked key, value and headers; KEEP: unchanged. Raises UnreadableRecord."""
        if self.lacks_tags and value is not None:
            raise UnreadableRecord("expected tags for the topic or its schema (require_tags)")
        return (
            KEEP if key is None else self.key.mask(view, key),
            KEEP if value is None else self.value.mask(view, value),
            KEEP
            if not self.headers
            else [
                (name, mask.plain(content) if (mask := self.headers.get(name)) and content is not None else content)
                for name, content in headers
            ],
        )

    def edit(self, spans: EntrySpans, span: Span, decoder: Decoder | None) -> Span:
        """Return the span of the masked record. Raises UnreadableRecord."""
        headers = spans.headers(span) if self.headers and isinstance(spans.entry, Batch) else []
        view = RecordView(spans, span, self.form, 0, decoder)
        key, value, changed = self.mask(view, spans.key(span), spans.value(span), headers)
        return spans.edit(span, key=key, value=value, headers=changed if headers else KEEP)


def check_empty(spans: EntrySpans) -> None:
    """Raise RecordsError for a batch that claims to have no records and has bytes after its header."""
    if isinstance(spans.entry, Batch) and not spans.entry.count and len(spans.entry.payload):
        raise RecordsError("expected a batch without bytes after its header, as it has no records")


def masked_records(masks: RecordMasks, decoder: Decoder | None) -> ChangeSpans:
    """Return the change that masks the records of an entry, and leaves out those that cannot be read."""

    def change(spans: EntrySpans, records: Iterable[Span]) -> Iterator[Span]:
        check_empty(spans)
        for span in records:
            try:
                yield masks.edit(spans, span, decoder)
            except (UnreadableRecord, SchemaNeeded):
                continue

    return change
