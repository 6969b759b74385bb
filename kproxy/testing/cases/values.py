"""Conversion of bodies in a test file into the values of a message; every mistake is noted with its place.

A `Reader` reads for sending; with `expected` it reads what is to be found, where a number may also be a range such as
`">0"` or `900-1100`. Bytes are text, `{hex: …}` or `{zeros: 10kB}`; records are in `records.py`.
"""

from __future__ import annotations

import struct
from typing import Any

from kproxy.rules.document.model import found, unknown
from kproxy.rules.document.ranges import Range, parse_range
from kproxy.rules.document.source import Source, Where
from kproxy.rules.document.units import parse_size
from kproxy.rules.select.selected import error_number, topic_id
from kproxy.wire.table import layout
from kproxy.wire.table.layout import FIXED, INTEGERS, Slot, Struct

from .records import RecordsRead, read_records

TAGGED = "_tagged_fields"
FORMS = ("hex", "zeros")
MOST_ZEROS = 64 << 20
"""Largest number of bytes in `{zeros: …}`; a test holds several copies of each frame that it sends."""


class Reader:
    """Converter of the values in one source."""

    def __init__(self, source: Source, expected: bool = False) -> None:
        self.source, self.expected = source, expected

    def body(self, key: int, version: int, direction: str, raw: dict[Any, Any], at: Where) -> dict[str, Any]:
        """Return the fields of a body that are given. Each one that does not fit is noted and left out."""
        return self.fields(layout.body(key, version, direction), raw, at)

    def fields(self, of: Struct, raw: dict[Any, Any], at: Where) -> dict[str, Any]:
        slots = {slot.name: slot for slot in of.all_slots}
        values = {}
        for name, value in raw.items():
            where = (*at, name)
            if name == TAGGED and of.flexible:
                values[TAGGED] = self.tagged(value, where)
            elif name in slots:
                values[name] = self.value(slots[name], value, where)
            else:
                self.source.note(where, unknown("field", name, slots), key=True)
        return values

    def tagged(self, raw: Any, at: Where) -> list[tuple[int, bytes]]:
        """Return tagged fields that kproxy does not know, as pairs of a tag and its bytes."""
        pairs = []
        for index, pair in enumerate(raw if isinstance(raw, list) else [raw]):
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], int):
                pairs.append((pair[0], self.octets(pair[1], (*at, index, 1)) or b""))
            else:
                self.source.note((*at, index), f"a tag and its bytes are wanted, [10000, {{hex: 00}}], {told(pair)}")
        return pairs

    def value(self, slot: Slot, raw: Any, at: Where) -> Any:
        if raw is None:
            if not slot.nullable:
                self.source.note(at, f"{slot.name} is never null here")
            return None
        if not slot.array:
            return self.one(slot, raw, at)
        if not isinstance(raw, list):
            self.source.note(at, f"{slot.name} is a list, {told(raw)}")
            return []
        return [self.one(slot, each, (*at, index)) for index, each in enumerate(raw)]

    def one(self, slot: Slot, raw: Any, at: Where) -> Any:
        if slot.struct is not None:
            if isinstance(raw, dict):
                return self.fields(slot.struct, raw, at)
            self.source.note(at, f"a mapping with fields of {slot.name} is wanted, {told(raw)}")
            return {}
        if slot.type == "records":
            return self.records(raw, at)
        if slot.type == "bytes":
            return self.octets(raw, at)
        if slot.type in INTEGERS:
            return self.integer(slot, raw, at)
        return self.scalar(slot, raw, at)

    def integer(self, slot: Slot, raw: Any, at: Where) -> int | Range:
        try:
            if isinstance(raw, int) and not isinstance(raw, bool):
                struct.pack(">" + FIXED[slot.type][0], raw)
                return raw
            if slot.kind == "error_code" and isinstance(raw, str) and raw.replace("_", "").isalpha():
                return error_number(raw)
            if self.expected and isinstance(raw, str):
                return parse_range(raw)
            self.source.note(at, f"{slot.name} is a whole number, {told(raw)}")
        except struct.error:
            self.source.note(at, f"{slot.name} is an {slot.type}, the number {raw} does not fit")
        except ValueError as error:
            self.source.note(at, str(error))
        return 0

    def scalar(self, slot: Slot, raw: Any, at: Where) -> Any:
        match slot.type:
            case "bool" if isinstance(raw, bool):
                return raw
            case "float64" if isinstance(raw, int | float) and not isinstance(raw, bool):
                return float(raw)
            case "string" if isinstance(raw, str):
                return raw
            case "uuid" if isinstance(raw, str):
                try:
                    return topic_id(raw)
                except ValueError as error:
                    self.source.note(at, str(error))
                    return slot.default()
        wanted = {"bool": "true or false", "float64": "a number", "string": "text", "uuid": "a UUID"}[slot.type]
        self.source.note(at, f"{slot.name} is {wanted}, {told(raw)}")
        return slot.default()

    def octets(self, raw: Any, at: Where) -> bytes | None:
        """Return bytes from text (as UTF-8), `{hex: "00ff"}` or `{zeros: 10kB}`; None for null."""
        if raw is None:
            return None
        if isinstance(raw, str):
            return raw.encode("utf-8", "surrogateescape")
        try:
            if isinstance(raw, dict) and list(raw) == ["hex"]:
                return bytes.fromhex(str(raw["hex"]))
            if isinstance(raw, dict) and list(raw) == ["zeros"]:
                size = parse_size(raw["zeros"])
                if isinstance(size, int) and 0 <= size <= MOST_ZEROS:
                    return bytes(size)
        except ValueError as error:
            self.source.note((*at, *raw), str(error))
            return b""
        self.source.note(at, f"bytes are text, {{hex: 00ff}} or {{zeros: 10kB}} of at most 64 MiB, {told(raw)}")
        return b""

    def records(self, raw: Any, at: Where) -> bytes | RecordsRead | None:
        """Return a records field that is given as bytes or as a batch: a list of records, or a mapping with `batch`."""
        read = None
        if isinstance(raw, list):
            read = read_records(self.source, {"batch": raw}, at, at, self.octets)
        elif isinstance(raw, dict) and "batch" in raw:
            read = read_records(self.source, raw, at, (*at, "batch"), self.octets)
        if read is not None:
            return read if self.expected else read.encoded(self.source, at)
        return self.octets(raw, at)


def told(raw: Any) -> str:
    return f"found {found(raw)}"
