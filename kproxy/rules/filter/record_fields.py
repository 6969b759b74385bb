"""Fields of one record in conditions: `value.customer.country == DE and not header.replay`.

`RecordCondition` (`evaluate.py`) compiles a text, and reads records through their spans. Fields with a path
(`value.items[0].sku`, `value.items[*].qty`, `value."odd name"`) read a structured key or value, and `header.trace-id`
reads headers by name. A path without a target has no values. Of JSON, only the objects and arrays on the path are
decoded. A decoder (`rules/content/schemas.py`) reads values with the id of a schema, and gives their `schema_id`,
`schema` and `subject`.

Limits: MOST_JSON bytes, DEEPEST_JSON levels and MOST_DIGITS characters of a number, MOST_MEMBERS and MOST_LOOKS values.
A record beyond a limit, or with invalid JSON, raises UnreadableRecord.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import msgspec

from kproxy.base.cooperative import yield_now
from kproxy.base.errors import RecordsError
from kproxy.protocol.records import Batch
from kproxy.protocol.records.spans import KEY, KEY_END, VALUE, VALUE_END, EntrySpans, Span

from .fields import Field, FieldDepth, FieldTable, as_text
from .kinds import DURATION, FLAG, JSON, NUMBER, PLAIN, SIZE, TEXT, TIME, in_quotes, unquoted

Format = Literal["auto", "text", "json", "avro"]
"""Form of keys and values. `auto`: by its schema if it has the id of one in the registry, JSON if an object or an array
begins after whitespace and a byte order mark, otherwise text. JSON in UTF-16 or UTF-32 is unreadable."""
Part = Literal["key", "value"]
MOST_JSON = 1 << 20
DEEPEST_JSON = 64
MOST_DIGITS = 400
MOST_LOOKS = 20_000
MOST_MEMBERS = 1 << 16
"""Commas in a JSON array or object. The decoder creates all members in one call, without a yield point."""
LONG_JSON = 1 << 15
"""Bytes of JSON that are decoded without a call of the driver: less than a millisecond."""
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # times of the language are texts in UTC without a zone


class UnreadableRecord(RecordsError):
    """Record that a condition cannot read: invalid JSON, or beyond a limit."""


class Structure(NamedTuple):
    """Structured key or value. `avro`: its schema, with the method `search(path)`; None: `payload` is JSON. `schema_id`
    and `schema` (its full name): None without a schema. `subjects`: returns the subjects with this schema."""

    payload: bytes
    avro: Any = None
    schema_id: int | str | None = None
    schema: str | None = None
    subjects: Callable[[], Iterable[str]] = tuple


class RecordView:
    """One record as a condition reads it. `now`: Unix time in ms, for `age`."""

    __slots__ = ("_value", "decoder", "form", "now", "span", "spans")

    def __init__(
        self, spans: EntrySpans, span: Span, form: Format = "auto", now: float = 0, decoder: Decoder | None = None
    ) -> None:
        self.spans, self.span, self.form, self.now, self.decoder = spans, span, form, now, decoder
        self._value: bytes | Structure | Literal[False] | None = False

    def time(self) -> float:
        """Return the Unix time in ms that the age is measured at."""
        return self.now

    def timestamp(self) -> int:
        """Return the timestamp in ms that a consumer reads; -1 if the record has none."""
        entry = self.spans.entry
        if entry.is_log_append_time:
            return entry.max_timestamp if isinstance(entry, Batch) else entry.timestamp
        return self.spans.timestamp(self.span)

    def value(self) -> bytes | Structure | None:
        """Return a structured value: JSON as bytes, or with its schema; None for another one. Raises UnreadableRecord
        and SchemaNeeded, as `key` does."""
        if self._value is False:
            self._value = self.structured("value", self.spans.value(self.span))
        return self._value

    def key(self) -> bytes | Structure | None:
        return self.structured("key", self.spans.key(self.span))

    def structured(self, part: Part, data: bytes | None) -> bytes | Structure | None:
        if data is None or self.form == "text":
            return None
        found = None if self.decoder is None else self.decoder(self, part, data)
        if found is not None:
            return found if found.avro is not None else found._replace(payload=self.checked(found.payload))
        if self.form == "avro":
            raise UnreadableRecord("expected Avro with the id of a schema, got other data")
        if self.form == "auto" and data[:1] not in BRACKETS:
            data = data.removeprefix(BOM_UTF8).lstrip(SPACE)
            if data[:1] not in BRACKETS:
                if wide_json(data):
                    raise UnreadableRecord("expected JSON in UTF-8, got UTF-16 or UTF-32")
                return None
        return self.checked(data)

    @staticmethod
    def checked(data: bytes) -> bytes:
        """Return JSON within the limits. Raises UnreadableRecord."""
        if len(data) > MOST_JSON:
            raise UnreadableRecord(f"expected JSON of at most {MOST_JSON} bytes, got {len(data)}")
        if data.count(b"[") + data.count(b"{") > DEEPEST_JSON and too_deep(data):
            raise UnreadableRecord(f"expected JSON of at most {DEEPEST_JSON} levels")
        return data


Decoder = Callable[[RecordView, Part, bytes], Structure | None]
"""Reads a key or value with the id of a schema (`rules/content/schemas.py`); None for another one. Raises
UnreadableRecord, and SchemaNeeded for a schema that is not loaded."""
BRACKETS = (b"{", b"[")
SPACE = b" \t\r\n"
WIDE = re.compile(rb"(?:\xff\xfe|\xfe\xff|\0{1,3}[\[{\s]|[\t\r\n ]\0)", re.DOTALL)


def wide_json(data: bytes) -> bool:
    """Return True if data begins as JSON in UTF-16 or UTF-32, which parsers such as Jackson detect."""
    return WIDE.match(data) is not None


OTHER_BYTES = bytes(set(range(256)) - set(b'[]{}"'))
LEVELS = bytes(1 if byte in b"[{" else 255 for byte in range(256))
"""Signed bytes: one level up for an opening bracket, one down for a closing one."""
PIECE = 1 << 14
"""Brackets between two calls of the driver: about 2 ms."""


def too_deep(data: bytes) -> bool:
    """Return True if arrays and objects are nested deeper than DEEPEST_JSON."""
    # Adjoining quotes can go in pairs, as this does not change which brackets are in a string.
    brackets = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, OTHER_BYTES).replace(b'""', b"")
    level, in_string = 0, False
    for start in range(0, len(brackets), PIECE):
        outside = brackets[start : start + PIECE]
        if b'"' in outside or in_string:
            parts = outside.split(b'"')
            outside = b"".join(parts[in_string::2])
            in_string ^= not len(parts) % 2
        levels = list(accumulate(memoryview(outside.translate(LEVELS)).cast("b"), initial=level))
        if max(levels) > DEEPEST_JSON:
            return True
        level = levels[-1]
        yield_now()
    return False


ANY = "*"
Step = str | int
"""Name in an object, or index in an array; ANY in brackets is -1."""
QUOTED = r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
STEP = re.compile(rf"""\.({QUOTED}|[^\s.\[\]()"',!&|~<>=]+)|\[([0-9]{{1,7}}|\*)\]""", re.DOTALL)
HEADER = re.compile(rf"""\.({QUOTED}|{PLAIN.pattern})""", re.DOTALL)
EVERY = -1
Search = Callable[[Any], Iterable[Any]]


def parse_path(text: str) -> tuple[Step, ...]:
    """Return the steps of a path. Raises ValueError."""
    steps: list[Step] = []
    at = 0
    while at < len(text):
        found = STEP.match(text, at)
        if found is None or len(steps) == DEEPEST_JSON:
            raise ValueError(f"expected a path of at most {DEEPEST_JSON} steps such as .items[0].sku, got {text}")
        name, index = found.groups()
        steps.append(unquoted(name) if name is not None else EVERY if index == ANY else int(index))
        at = found.end()
    return tuple(steps)


def path_text(steps: Iterable[Step]) -> str:
    """Return the canonical text of a path, which `parse_path` reads again."""
    texts = []
    for step in steps:
        if isinstance(step, int):
            texts.append(f"[{ANY if step == EVERY else step}]")
        else:
            texts.append(f".{step}" if STEP.fullmatch(f".{step}") and step[0] not in "\"'" else f".{in_quotes(step)}")
    return "".join(texts)


ARRAYS = msgspec.json.Decoder(list[msgspec.Raw])
DICTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
ODD_NAME = re.compile(r'[\x00-\x1f"\\]')
"""Characters that structs of msgspec cannot have in a name."""
STRINGS = msgspec.json.Decoder(str)
WHOLE = msgspec.json.Decoder(msgspec.Raw)
EMPTY = re.compile(rb"[\[{]\s*[\]}]")
LITERALS = {b"true": True, b"false": False, b"null": None}


BAD_JSON = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def search(steps: tuple[Step, ...]) -> Search:
    """Return the function that finds the values at a path of a JSON text. Raises UnreadableRecord for invalid JSON."""
    find: Search = leaf
    names: tuple[str, ...] = ()  # adjoining names are decoded at once
    for step in reversed(steps):
        if isinstance(step, str) and not ODD_NAME.search(step):
            names = (step, *names)
            continue
        if names:
            find, names = in_objects(names, find), ()
        find = in_dict(step, find) if isinstance(step, str) else in_array(step, find)
    if names:
        find = in_objects(names, find)

    def read(data: bytes) -> Iterable[Any]:
        try:
            found = find(data)
        except BAD_JSON as problem:
            raise UnreadableRecord(f"expected JSON, got {problem}") from problem
        return found if type(found) is tuple else guarded(found)

    return read


def guarded(values: Iterable[Any]) -> Iterator[Any]:
    try:
        yield from values
    except BAD_JSON as problem:
        raise UnreadableRecord(f"expected JSON, got {problem}") from problem


def in_objects(names: tuple[str, ...], find: Search) -> Search:
    """Return the search below these names, each in the object of the one before."""
    kind: Any = msgspec.Raw
    for name in reversed(names):
        field = ("found", kind | msgspec.UnsetType, msgspec.UNSET)
        kind = msgspec.defstruct("Level", [field], rename={"found": name})
    decode = msgspec.json.Decoder(kind).decode
    one_by_one = in_objects(names[:1], in_objects(names[1:], find)) if len(names) > 1 else None

    def read(data: Any) -> Iterable[Any]:
        if len(data) > LONG_JSON:
            yield_now()
        try:
            found = decode(data)
        except msgspec.ValidationError:  # a value on the path is not an object; of duplicate names, the last one counts
            return () if one_by_one is None else one_by_one(data)
        for _ in names:
            found = found.found
            if found is msgspec.UNSET:
                return ()
        return find(found)

    return read


def in_dict(name: str, find: Search) -> Search:
    def read(data: Any) -> Iterable[Any]:
        check_members(data)
        try:
            found = DICTS.decode(data).get(name)
        except msgspec.ValidationError:  # not an object
            return ()
        return () if found is None else find(found)

    return read


def in_array(index: int, find: Search) -> Search:
    def read(data: Any) -> Iterable[Any]:
        check_members(data)
        try:
            elements = ARRAYS.decode(data)
        except msgspec.ValidationError:  # not an array
            return ()
        if index != EVERY:
            return find(elements[index]) if index < len(elements) else ()
        return (value for element in elements for value in find(element))  # lazily: the reader has a limit

    return read


def check_members(data: Any) -> None:
    """Raise UnreadableRecord for JSON of more than MOST_MEMBERS members."""
    if len(data) > LONG_JSON:
        yield_now()
        if len(data) > MOST_MEMBERS and bytes(data).count(b",") > MOST_MEMBERS:
            raise UnreadableRecord(f"expected JSON of at most {MOST_MEMBERS} members")


def leaf(raw: Any) -> tuple[Any, ...]:
    """Return a value: text, Decimal, bool or None. An array or object is a tuple, which is empty as they are."""
    text = bytes(raw).strip()
    first = text[:1]
    if first == b'"':
        return (STRINGS.decode(text),)
    if first in (b"{", b"["):
        return (() if EMPTY.fullmatch(text) else (text,),)
    if text in LITERALS:
        return (LITERALS[text],)
    if len(text) > MOST_DIGITS:
        raise UnreadableRecord(f"expected a number of at most {MOST_DIGITS} characters, got {len(text)}")
    try:
        return (Decimal(text.decode()),)
    except ArithmeticError:
        raise UnreadableRecord("expected a number, got one beyond the limits") from None  # it must not quote a value


def of_key(view: RecordView) -> bytes | None:
    return view.spans.key(view.span)


def of_value(view: RecordView) -> bytes | None:
    return view.spans.value(view.span)


def structure_field(root: str, structure: Callable[[RecordView], bytes | Structure | None]) -> Callable[[str], Field]:
    """Return the maker of fields such as `value.items[0].sku`."""

    def make(path: str) -> Field:
        steps = parse_path(path)
        found = search(steps)

        def read(view: RecordView) -> Iterable[Any]:
            data = structure(view)
            if data is None:
                return ()
            if isinstance(data, bytes):
                return found(data)
            return found(data.payload) if data.avro is None else data.avro.search(steps)(data.payload)

        name = root + path_text(steps)
        return Field(DATA, name, "", JSON, f"field of a structured {root}", f"{name} == 1", read, FieldDepth.RECORDS)

    return make


def header_field(path: str) -> Field:
    """Return the field of the headers with one name."""
    found = HEADER.fullmatch(path)
    if found is None:
        raise ValueError(f'expected a header such as header.trace-id or header."x y", got header{path}')
    name = unquoted(found[1])
    wanted = name.encode("utf-8", "surrogateescape")
    text = f"header.{name}" if PLAIN.fullmatch(name) else f"header.{in_quotes(name)}"

    def read(view: RecordView) -> Iterable[str]:
        return [(value or b"").decode("utf-8", "replace") for value in view.spans.header(view.span, wanted)]

    return Field(DATA, text, "", TEXT, "values of the headers with this name", f"{text} == x", read, FieldDepth.FIELDS)


def _headers(view: RecordView) -> Iterable[str]:
    return [
        f"{name.decode('utf-8', 'replace')}={(value or b'').decode('utf-8', 'replace')}"
        for name, value in view.spans.headers(view.span)
    ]


def _time(view: RecordView) -> Iterable[str]:
    timestamp = view.timestamp()
    if timestamp < 0:
        return ()
    try:
        return ((EPOCH + timedelta(milliseconds=timestamp)).isoformat(timespec="milliseconds"),)
    except OverflowError:
        return ("9999-12-31T23:59:59.999",)


def _age(view: RecordView) -> Iterable[float]:
    timestamp = view.timestamp()
    return () if timestamp < 0 else (view.time() - timestamp,)


def _size(view: RecordView) -> Iterable[int]:
    span = view.span
    key = span[KEY_END] - span[KEY] if span[KEY] >= 0 else 0
    value = span[VALUE_END] - span[VALUE] if span[VALUE] >= 0 else 0
    return (key + value + sum(len(name) + len(content or b"") for name, content in view.spans.headers(span)),)


def _structured(view: RecordView) -> Iterable[bool]:
    data = view.value()
    if isinstance(data, Structure) and data.avro is not None:
        return (True,)
    try:
        return (data is not None and bool(WHOLE.decode(data if isinstance(data, bytes) else data.payload)),)
    except BAD_JSON:
        return ()


def of_schema(read: Callable[[Structure], Iterable[Any]]) -> Callable[[RecordView], Iterable[Any]]:
    """Return the reader of values about the schema of a value."""

    def values(view: RecordView) -> Iterable[Any]:
        found = view.value()
        return read(found) if isinstance(found, Structure) and found.schema_id is not None else ()

    return values


DATA = "records"
CHEAP, BYTES, DECODED = FieldDepth.AT_ONCE, FieldDepth.FIELDS, FieldDepth.RECORDS
FIELDS = (
    Field(DATA, "key", "key", TEXT, "key as text", '~key "^user-1$"', lambda view: as_text(of_key(view)), BYTES),
    Field(DATA, "value", "val", TEXT, "value as text", "~val timeout", lambda view: as_text(of_value(view)), BYTES),
    Field(DATA, "header", "h", TEXT, "headers as name=value", '~h "^trace-id="', _headers, BYTES),
    Field(DATA, "headers", "", NUMBER, "number of headers", "headers > 10",
          lambda view: (len(view.spans.headers(view.span)),), BYTES),
    Field(DATA, "timestamp", "", TIME, "timestamp in UTC", "timestamp >= 2026-11-21T10:11", _time, CHEAP),
    Field(DATA, "age", "", DURATION, "time since the timestamp", "age > 1h", _age, CHEAP),
    Field(DATA, "offset", "", NUMBER, "offset; in Produce requests the position in the batch, from 0", "offset == 0",
          lambda view: (view.spans.offset(view.span),), CHEAP),
    Field(DATA, "record_size", "", SIZE, "bytes of key, value and headers", "record_size > 100kB", _size, BYTES),
    Field(DATA, "keyless", "keyless", FLAG, "the record has no key", "~keyless",
          lambda view: (view.span[KEY] < 0,), CHEAP),
    Field(DATA, "tombstone", "tomb", FLAG, "the record has no value", "~tomb",
          lambda view: (view.span[VALUE] < 0,), CHEAP),
    Field(DATA, "structured", "", FLAG, "the value is JSON or has a schema", "structured", _structured, DECODED),
    Field(DATA, "schema_id", "", JSON, "id of the value's schema in the registry", "schema_id == 42",
          of_schema(lambda found: (found.schema_id,)), BYTES),
    Field(DATA, "schema", "", TEXT, "full name of the value's schema", "schema == com.example.Order",
          of_schema(lambda found: (found.schema,) if found.schema else ()), DECODED),
    Field(DATA, "subject", "", TEXT, "subjects with the value's schema", "subject == orders-value",
          of_schema(lambda found: found.subjects()), DECODED),
)  # fmt: skip
RECORDS = FieldTable(FIELDS, {
    "key": structure_field("key", RecordView.key), "value": structure_field("value", RecordView.value),
    "header": header_field,
})  # fmt: skip
"""The fields of conditions about a record."""
