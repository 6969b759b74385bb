"""Schemas of a registry: the id of a key or value, the cache, and decoded values.

`SchemaCache` has no input and output. A lookup of an unknown schema raises SchemaNeeded. Its holder starts the request
(`runtime/upstreams/registry.py`), and calls again later.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec

from kproxy.base.bounded_map import BoundedMap, SharedBudget
from kproxy.base.cooperative import yielding
from kproxy.base.errors import KproxyError, RecordsError
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.records.spans import EntrySpans, Span
from kproxy.rules.filter.record_fields import (
    BAD_JSON,
    Decoder,
    Format,
    Part,
    RecordView,
    Structure,
    UnreadableRecord,
)

from .avro import AvroSchema
from .avro_types import LONGEST_NAME, SchemaError
from .edits import RecordBudget, is_control, whole_entries

Lookup = Literal["id", "guid", "subjects", "latest"]
HeaderOf = Callable[[bytes], list[bytes | None]]
"""Returns the values of a record's headers with this name."""
MOST_BYTES = 64 << 20
"""Bytes of the schemas of one registry, in memory."""
WEIGHT = 20
"""Bytes in memory for each byte of a schema's text."""
NOT_FOUND = 30.0
LATEST = 60.0
"""Seconds that "not found", the subjects of a schema and the latest version of a subject are cached."""
GUID_HEADERS: Mapping[Part, bytes] = {"key": b"__key_schema_id", "value": b"__value_schema_id"}
APICURIO_HEADERS: Mapping[Part, bytes] = {"key": b"apicurio.key.globalId", "value": b"apicurio.value.globalId"}
GUID_BYTES = 17
MOST_UNKNOWN = 100  # schemas that one frame waits for
PARTS: tuple[tuple[Part, Callable[[EntrySpans, Span], bytes | None]], ...] = (
    ("value", EntrySpans.value), ("key", EntrySpans.key),
)  # fmt: skip
READABLE = frozenset(("AVRO", "JSON"))


class SchemaKey(NamedTuple):
    """Request to a registry: a schema by `id` or `guid`, the `subjects` of an id, or the `latest` id of a subject."""

    lookup: Lookup
    text: str

    @property
    def id(self) -> int | str:
        return int(self.text) if self.lookup == "id" else self.text


class SchemaNeeded(KproxyError):
    """Error of a reader that needs a schema which the cache lacks. `cache.want(key)` requests it. `is_down`: the
    registry does not respond."""

    def __init__(self, cache: SchemaCache, key: SchemaKey) -> None:
        self.cache, self.key = cache, key
        self.is_down = cache.is_down
        super().__init__(f"schema {key.text} is not loaded yet")


class Schema:
    """Schema of a registry. `kind`: AVRO, JSON or PROTOBUF. `name`: full name; empty if it has none."""

    __slots__ = ("avro", "kind", "name", "size")

    def __init__(self, kind: str, text: str, references: list[str]) -> None:
        self.kind, self.avro, self.name = kind, None, ""
        self.size = len(text) + sum(map(len, references))
        if kind == "AVRO":
            self.avro = AvroSchema(text, references)
            self.name = self.avro.name
        elif kind == "JSON":
            try:
                written = msgspec.json.decode(text)
            except BAD_JSON as error:
                raise SchemaError(f"expected a schema in JSON, got {error}") from None
            title = written.get("title") if isinstance(written, dict) else None
            self.name = title[:LONGEST_NAME] if isinstance(title, str) else ""


Found = Schema | tuple[str, ...] | None


class SchemaCache:
    """Schemas of one registry. `id_bytes`: length of ids in front of values. `want`: requests a schema, and returns at
    once. `clock`: monotonic seconds. Schemas stay until they are evicted, as ids never change."""

    def __init__(
        self, clock: Callable[[], float], most: int = 10_000, id_bytes: int = 4,
        want: Callable[[SchemaKey], object] = lambda key: None,
    ) -> None:  # fmt: skip
        self.id_bytes, self.want, self.clock = id_bytes, want, clock
        self.schemas: BoundedMap[SchemaKey, Schema] = BoundedMap(
            most, budget=SharedBudget(MOST_BYTES), weigh=lambda schema: 200 + schema.size * WEIGHT
        )
        # Producers choose ids. So unknown ids do not evict schemas.
        self.others: BoundedMap[SchemaKey, tuple[float, tuple[str, ...] | None]] = BoundedMap(most)
        self.is_down = False

    def __len__(self) -> int:
        return len(self.schemas)

    def put(self, key: SchemaKey, found: Found) -> None:
        """Store a response of the registry; None: not found, or invalid."""
        if isinstance(found, Schema):
            self.schemas[key] = found
        else:
            self.others[key] = self.clock() + (NOT_FOUND if found is None else LATEST), found

    def schema(self, key: SchemaKey) -> Schema | None:
        """Return a schema; None: not found, or invalid. Raises SchemaNeeded."""
        if key in self.schemas:
            return self.schemas[key]
        self.other(key)
        return None

    def has(self, key: SchemaKey) -> bool:
        """Return True if the response to a key is in the cache."""
        return key in self.schemas or self.is_fresh(*self.others.get(key, (0.0, None)))

    def other(self, key: SchemaKey) -> tuple[str, ...] | None:
        """Return subjects, or the latest id of a subject; None: not found. Raises SchemaNeeded."""
        until, found = self.others.get(key, (0.0, None))
        if not self.is_fresh(until, found):
            raise SchemaNeeded(self, key)
        return found

    def is_fresh(self, until: float, found: tuple[str, ...] | None) -> bool:
        """Return True if a response may be used. While the registry is down, old subjects are."""
        return until > self.clock() or (self.is_down and found is not None)

    def subjects(self, key: SchemaKey) -> tuple[str, ...]:
        """Return the subjects that contain a schema. Raises SchemaNeeded."""
        # registries have no such request for a GUID
        return self.other(SchemaKey("subjects", key.text)) or () if key.lookup == "id" else ()


class Framing(NamedTuple):
    """Schema of a key or value, and the first byte of its payload."""

    key: SchemaKey
    start: int


def framing_of(data: bytes, header: HeaderOf, part: Part, id_bytes: int = 4) -> Framing | None:
    """Return the framing of a key or value by its headers or first bytes; None if it has none."""
    for value in header(GUID_HEADERS[part]):
        if value is not None and len(value) == GUID_BYTES and value[0] == 1:
            guid = value[1:].hex()
            return Framing(SchemaKey("guid", "-".join((guid[:8], guid[8:12], guid[12:16], guid[16:20], guid[20:]))), 0)
        if value is not None and len(value) == 5 and value[0] == 0:
            return Framing(SchemaKey("id", str(int.from_bytes(value[1:], "big"))), 0)
    for value in header(APICURIO_HEADERS[part]):
        if value is not None and len(value) == 8:
            return Framing(SchemaKey("id", str(int.from_bytes(value, "big"))), 0)
    end = 1 + id_bytes
    if len(data) < end or data[0]:
        return None
    number = int.from_bytes(data[1:end], "big", signed=True)
    return Framing(SchemaKey("id", str(number)), end) if number >= 0 else None


def structure_of(
    data: bytes, header: HeaderOf, part: Part, cache: SchemaCache, form: Format = "auto"
) -> Structure | None:
    """Return a key or value with the id of a schema that is Avro or JSON; None for another one. The payload is not
    checked. Raises SchemaNeeded."""
    framing = framing_of(data, header, part, cache.id_bytes)
    schema = None if framing is None else cache.schema(framing.key)
    if framing is None or schema is None or schema.kind not in READABLE or form not in ("auto", schema.kind.lower()):
        return None
    payload, subjects = data[framing.start :], partial(cache.subjects, framing.key)
    return Structure(payload, schema.avro, framing.key.id, schema.name or None, subjects)


FindCache = Callable[[], SchemaCache | None]
"""Returns the schemas of a cluster's registry; None if it has none."""


def decoder_of(find: FindCache) -> Decoder:
    """Return the decoder of conditions about records of a cluster. A value is unreadable while its schema is not
    loaded, which is requested then."""

    def decode(view: RecordView, part: Part, data: bytes) -> Structure | None:
        cache = find()
        if cache is None:
            return None
        try:
            found = structure_of(data, partial(view.spans.header, view.span), part, cache, view.form)
        except SchemaNeeded as needed:
            raise unloaded(needed) from None
        return found if found is None else found._replace(subjects=partial(subjects_of, found.subjects))

    return decode


def subjects_of(read: Callable[[], Iterable[str]]) -> Iterable[str]:
    try:
        return read()
    except SchemaNeeded as needed:
        raise unloaded(needed) from None


class SchemaUnloaded(UnreadableRecord):
    """Record whose schema is not loaded, because the registry has not responded yet."""

    def __init__(self, needed: SchemaNeeded) -> None:
        self.key = needed.key
        super().__init__(str(needed))


def unloaded(needed: SchemaNeeded) -> SchemaUnloaded:
    needed.cache.want(needed.key)
    return SchemaUnloaded(needed)


def unknown_schemas(
    data: Buffer, cache: SchemaCache, unknown: dict[SchemaKey, None], *, subjects: bool, most: int
) -> None:
    """Add the keys of schemas in a records field that the cache lacks, up to MOST_UNKNOWN. `subjects`: also of their
    subjects. `most`: decompressed bytes. Entries that cannot be read are skipped."""
    budget = RecordBudget.of_size(most)
    budget.add(len(data))
    for entry in yielding(whole_entries(data)[0]):
        if is_control(entry):
            continue
        try:
            with budget.opened(entry) as spans:
                for span in spans:
                    header = partial(spans.header, span)
                    for part, content in PARTS:
                        framing = framing_of(content(spans, span) or b"", header, part, cache.id_bytes)
                        if framing is None:
                            continue
                        wanted = SchemaKey("subjects", framing.key.text)
                        for key in (framing.key, wanted) if subjects and framing.key.lookup == "id" else (framing.key,):
                            if not cache.has(key) and len(unknown) < MOST_UNKNOWN:
                                unknown[key] = None
        except RecordsError:
            continue


NO_HEADERS: HeaderOf = lambda name: []  # noqa: E731


def shown_value(
    data: bytes | None, header: HeaderOf = NO_HEADERS, part: Part = "value", cache: SchemaCache | None = None
) -> dict[str, Any]:
    """Return a key or value for viewers: `value`, and `format`, `schema_id` and `schema` if it was decoded. `pending`:
    its schema is requested, and a later call may decode it. `why`: the reason if it cannot be decoded.

    Text is a string. Other undecoded bytes are `{"base64": …}`.
    """
    if data is None:
        return {"value": None}
    shown: dict[str, Any] = {}
    found = None
    try:
        found = None if cache is None else structure_of(data, header, part, cache)
        if found is None and data[:1] in (b"{", b"["):
            found = Structure(data)
        if found is not None:
            value = read_json(found.payload) if found.avro is None else found.avro.decode(found.payload)
            shown = {"value": value, "format": "json" if found.avro is None else "avro"}
            return shown if found.schema_id is None else {**shown, "schema_id": found.schema_id, "schema": found.schema}
    except SchemaNeeded as needed:
        needed.cache.want(needed.key)
        if cache is not None and cache.has(needed.key):  # commands look up at once
            return shown_value(data, header, part, cache)
        shown = {"pending": True, "schema_id": needed.key.id}
    except UnreadableRecord as error:
        shown = {"why": str(error)}
        if found is not None and found.schema_id is not None:
            shown |= {"schema_id": found.schema_id, "schema": found.schema}
    return {"value": plain_bytes(data), **shown}


def plain_bytes(data: bytes) -> Any:
    """Return bytes for JSON: UTF-8 as text, other bytes as base64."""
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
    return text if "\0" not in text else {"base64": b64encode(data).decode()}


def read_json(data: bytes) -> Any:
    """Return a JSON value. Raises UnreadableRecord."""
    try:
        return EXACT(RecordView.checked(data))
    except BAD_JSON as error:
        raise UnreadableRecord(f"expected JSON, got {error}") from None


EXACT = msgspec.json.Decoder().decode
