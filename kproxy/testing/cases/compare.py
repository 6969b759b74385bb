"""Comparison of a message that a case expects with the one that was found, value by value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kproxy.errors import RecordsError
from kproxy.rules.document.ranges import LARGEST, Range
from kproxy.wire.table import errors as error_codes
from kproxy.wire.table.layout import Slot, Struct

from .records import RecordsRead, seen_in
from .values import TAGGED

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
    """Return a value as it stands in one line of a failure; an error code with its name."""
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
            return f"{len(data)} bytes: {data[:SHOWN].hex(' ')}{' …' if len(data) > SHOWN else ''}".rstrip(": ")
        case str():
            return f'"{value}"'
        case dict():
            return "{" + ", ".join(f"{key}: {shown(inner)}" for key, inner in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(shown(inner) for inner in value) + "]"
        case UUID():
            return str(value)
    return str(value)
