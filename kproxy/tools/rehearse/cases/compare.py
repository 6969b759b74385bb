"""Comparison of kproxy's output with the expectations of a case: frame by frame, value by value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from kproxy.base.errors import DecodeError, RecordsError, plural
from kproxy.protocol import Message
from kproxy.protocol.table import errors as error_codes
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.rules.values.quantities import LARGEST, Range
from kproxy.rules.values.source import Source, Where
from kproxy.tools.rehearse.cases.connection import Piece, called
from kproxy.tools.rehearse.cases.model import ExpectedFrame

from .document import TAGGED, Reader, RecordsRead, seen_in

SHOWN = 24
"""Bytes of a value that are shown in a difference."""


class Difference(NamedTuple):
    """A field that has another value than expected: its path, and both values as text."""

    path: str
    expected: str
    found: str


def differences(
    of: Struct, expected: Mapping[str, Any], found: Mapping[str, Any], whole: bool, at: str = ""
) -> Iterator[Difference]:
    """Yield the fields of `found` that are not as expected. `whole`: fields that are not given must have their
    defaults."""
    for slot in of.all_slots:
        path = f"{at}{slot.name}"
        if slot.name in expected:
            yield from values(slot, expected[slot.name], found[slot.name], whole, path)
        elif whole:
            yield from values(slot, slot.default(), found[slot.name], whole, path)
    tags = expected.get(TAGGED, [] if whole else None)
    if tags is not None and tags != (have := [(tag, bytes(data)) for tag, data in found.get(TAGGED) or ()]):
        yield Difference(f"{at}{TAGGED}", shown(tags), shown(have))


def values(slot: Slot, expected: Any, found: Any, whole: bool, path: str) -> Iterator[Difference]:
    """Yield the differences of one field; an array is compared element by element."""
    if expected is None or found is None or not slot.array:
        yield from one(slot, expected, found, whole, path)
    elif len(expected) != len(found):
        yield Difference(path, *(f"{len(many)} element{'s'[: len(many) != 1]}" for many in (expected, found)))
        for index, (left, right) in enumerate(zip(expected, found, strict=False)):
            yield from one(slot, left, right, whole, f"{path}[{index}]")
    else:
        for index, (left, right) in enumerate(zip(expected, found, strict=True)):
            yield from one(slot, left, right, whole, f"{path}[{index}]")


def one(slot: Slot, expected: Any, found: Any, whole: bool, path: str) -> Iterator[Difference]:
    """Yield the differences of one value, or of one element of an array."""
    if expected is None or found is None:
        same = expected is found
    elif slot.struct is not None:
        yield from differences(slot.struct, expected, found, whole, f"{path}.")
        return
    elif isinstance(expected, RecordsRead):
        yield from records(expected, bytes(found), path)
        return
    elif isinstance(expected, Range):
        same = found in expected
    elif isinstance(expected, bytes):
        same = expected == bytes(found)
    else:
        same = expected == found
    if not same:
        is_error = slot.kind == "error_code"
        yield Difference(path, shown(expected, is_error), shown(found, is_error))


def records(expected: RecordsRead, found: bytes, path: str) -> Iterator[Difference]:
    """Yield the differences between the expected records and those in `found`, which is a records field's bytes."""
    try:
        seen = seen_in(found)
    except RecordsError as error:
        yield Difference(path, "records", f"{shown(found)}, which cannot be read: {error}")
        return
    for name in ("compression", "producer_id", "producer_epoch", "base_sequence", "transactional", "crc"):
        wanted = getattr(expected.about, name)
        if wanted is not None and wanted != seen.get(name):
            yield Difference(f"{path}.{name}", shown(wanted), shown(seen.get(name)))
    batch = seen["batch"]
    if len(batch) != len(expected.records):
        yield Difference(path, *(f"{len(many)} record{'s'[: len(many) != 1]}" for many in (expected.records, batch)))
    for index, (left, right) in enumerate(zip(expected.records, batch, strict=False)):
        for name, wanted in left.items():
            if wanted != right[name]:
                yield Difference(f"{path}[{index}].{name}", shown(wanted), shown(right[name]))


def shown(value: Any, is_error: bool = False) -> str:
    """Return a value as shown in one line of a failure; an error code with its name."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() if is_error:
            known = error_codes.numbers().get(value)
            return f"{value} ({known.name})" if known is not None else str(value)
        case Range():
            if value[1] >= LARGEST:
                return f"{value[0]} or more"
            return f"{value[1]} or less" if value[0] <= -LARGEST else f"{value[0]} to {value[1]}"
        case bytes() | bytearray() | memoryview():
            data = bytes(value)
            return f"{plural(len(data), 'byte')}: {data[:SHOWN].hex(' ')}{' …' if len(data) > SHOWN else ''}".rstrip(
                ": "
            )
        case str():
            return f'"{value}"'
        case dict():
            return "{" + ", ".join(f"{key}: {shown(inner)}" for key, inner in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(shown(inner) for inner in value) + "]"
        case UUID():
            return str(value)
    return str(value)


Mismatch = tuple[str, list[Difference]]


def check_piece(source: Source, expected: ExpectedFrame, at: Where, piece: Piece) -> Iterator[Mismatch]:
    """Yield each difference between the piece and the expectation: a sentence, and the values that differ."""
    yield from check_bytes(expected, piece)
    if expected.untouched:
        yield from check_untouched(piece)
    wants = [one for one in (expected.body, expected.exactly, expected.api, expected.version) if one is not None]
    if not wants and "client_id" not in expected.model_fields_set and expected.readable is not True:
        if expected.readable is False and (message := piece.maybe_message()) is not None:
            yield f"expected an unreadable frame, got a {called(message)}", []
        return
    try:
        message = piece.message()
    except DecodeError as error:
        yield f"it cannot be read: {error}", []
        return
    yield from check_message(source, expected, at, message)


def check_bytes(expected: ExpectedFrame, piece: Piece) -> Iterator[Mismatch]:
    """Yield findings that need no decoding: sizes, the correlation id, bytes that should have changed."""
    found = {
        "bytes": len(piece.data),
        "length": int.from_bytes(piece.data[:4], "big", signed=True),
        "correlation_id": piece.correlation,
    }
    wrong = []
    if expected.bytes_ is not None and found["bytes"] not in expected.bytes_:
        wrong.append(Difference("bytes", shown(expected.bytes_), str(found["bytes"])))
    for name in ("length", "correlation_id"):
        wanted = getattr(expected, name)
        if wanted is not None and wanted != found[name]:
            wrong.append(Difference(name, str(wanted), str(found[name])))
    if wrong:
        yield "another frame", wrong
    if expected.changed and piece.data in piece.originals.values():
        yield "expected a change, got the original bytes", []


def check_untouched(piece: Piece) -> Iterator[Mismatch]:
    """Yield a finding unless the bytes are the very ones that went in, with the values that differ."""
    if piece.data in piece.originals.values():
        return
    before = piece.originals.get(piece.correlation)
    if before is None:
        yield f"expected the original bytes, got {piece} of kproxy", []
        return
    old, new = replace(piece, data=before).maybe_message(), piece.maybe_message()
    wrong = []
    if old is not None and new is not None and old.api is new.api and old.version == new.version:
        fields = layout.body(new.api.key, new.version, new.direction)
        wrong = list(differences(fields, old.body, new.body, whole=False))
        wrong += [
            Difference(f"header.{name}", shown(value), shown(new.header.get(name)))
            for name, value in old.header.items()
            if new.header.get(name) != value
        ]
    if not wrong:
        place = next((index for index, pair in enumerate(zip(before, piece.data, strict=False)) if pair[0] != pair[1]),
                     min(len(before), len(piece.data)))  # fmt: skip
        wrong = [Difference(f"from byte {place}", shown(before[place:]), shown(piece.data[place:]))]
    yield "expected the very bytes that went in", wrong


def check_message(source: Source, expected: ExpectedFrame, at: Where, message: Message) -> Iterator[Mismatch]:
    """Yield findings about the decoded message: its API, version, client id and body."""
    wrong = []
    if expected.api is not None and schema.names()[expected.api] != message.api.key:
        wrong.append(Difference("api", expected.api, message.api.name))
    if expected.version is not None and expected.version != message.version:
        wrong.append(Difference("version", str(expected.version), str(message.version)))
    if "client_id" in expected.model_fields_set and expected.client_id != message.header.get("client_id"):
        wrong.append(Difference("client_id", shown(expected.client_id), shown(message.header.get("client_id"))))
    if wrong:
        yield "another frame", wrong
        return
    for name, raw in (("body", expected.body), ("exactly", expected.exactly)):
        if raw is not None:
            key, version, direction = message.api.key, message.version, message.direction
            values = Reader(source, expected=True).body(key, version, direction, raw, (*at, name))
            fields = layout.body(key, version, direction)
            if found := list(differences(fields, values, message.body, whole=name == "exactly")):
                yield f"another {called(message)}", found
