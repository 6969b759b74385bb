"""Compiled readers of rows: one pass over a Produce, Fetch or ShareFetch that is here whole, with no values built.

Strategy. A reader is a walk (`wire/scan/walk_source.py`) in which the lines that would note a hit read the value:
the topic, the partition and the error stay in locals until the field comes that ends a row. It accepts what the decoder
accepts, and gives the same rows; it passes over tagged fields, so it accepts broken ones, too. Where it meets other
bytes it gives no rows, and the frame is decoded as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct, error
from typing import Any

from kproxy.errors import DecodeError
from kproxy.wire.codec.headers import header_version
from kproxy.wire.primitives import Buffer, read_compact_length
from kproxy.wire.records.digest import CODECS, read_digest
from kproxy.wire.records.entry import CODEC, CONTROL, OVERHEAD, batch_fields
from kproxy.wire.scan.head import body_start
from kproxy.wire.scan.walk_source import WalkWriter
from kproxy.wire.scan.walk_support import Bad, far
from kproxy.wire.table import layout, schema
from kproxy.wire.table.api_keys import FETCH, PRODUCE, SHARE_FETCH
from kproxy.wire.table.layout import Slot

from .credentials import REQUEST, RESPONSE

Reader = Callable[[Buffer, int, int, list[Any]], tuple[int, int]]
"""fn(buf, start of the body, end, rows) → (position behind the body, acks). Raises one of WRONG for other bytes."""

WRONG = (Bad, DecodeError, IndexError, error)
NUMBERS = {
    "acks": "h",
    "index": "i",
    "partition_index": "i",
    "error_code": "h",
    "acknowledge_error_code": "h",
    "base_offset": "q",
    "high_watermark": "q",
}
TOPICS = ("name", "topic", "topic_id")
PATHS = {
    (PRODUCE, REQUEST): ("acks", "topic_data[].name", "topic_data[].topic_id", "topic_data[].partition_data[].index",
                         "topic_data[].partition_data[].records"),
    (PRODUCE, RESPONSE): ("responses[].name", "responses[].topic_id", "responses[].partition_responses[].index",
                          "responses[].partition_responses[].error_code",
                          "responses[].partition_responses[].base_offset"),
    (FETCH, RESPONSE): ("responses[].topic", "responses[].topic_id", "responses[].partitions[].partition_index",
                        "responses[].partitions[].error_code", "responses[].partitions[].high_watermark",
                        "responses[].partitions[].records"),
    (SHARE_FETCH, RESPONSE): ("responses[].topic_id", "responses[].partitions[].partition_index",
                              "responses[].partitions[].error_code",
                              "responses[].partitions[].acknowledge_error_code",
                              "responses[].partitions[].records"),
}  # fmt: skip
"""Fields that rows are made of, by (API key, direction); the last one ends a row."""
ROWS = {
    (PRODUCE, REQUEST): "(topic, index, *produced(buf, {start}, {end}))",
    (PRODUCE, RESPONSE): "(topic, index, error_code, base_offset)",
    (
        FETCH,
        RESPONSE,
    ): "(topic, partition_index, error_code, *read(buf, {start}, {end}), None if high_watermark < 0 else "
    "high_watermark)",
    (SHARE_FETCH, RESPONSE): "(topic, partition_index, error_code or acknowledge_error_code, "
    "*read(buf, {start}, {end}), None)",
}
"""Source of the row that the last field of a partition completes; see `rows.Asked` and `rows.Row`."""

BATCH = Struct(
    ">" + batch_fields("base_offset", "length", "magic", "attributes", "last_offset_delta", "producer_id", "count")
)
LENGTH = Struct(">i")


class RowMaker(WalkWriter):
    """Writer of the source of one row reader: a walk that reads the values it would note the places of."""

    def __init__(self, key: int, direction: str) -> None:
        super().__init__(frozenset(PATHS[key, direction]))
        self.row, self.last = ROWS[key, direction], PATHS[key, direction][-1]

    def hit(self, what: str, path: str, slot: Slot | None, start: str, end: str) -> None:
        if what != "value" or slot is None:
            return
        if slot.name in NUMBERS:
            self.put(f"{slot.name}, = {self.put.refer(Struct('>' + NUMBERS[slot.name]).unpack_from)}(buf, {start})")
        elif slot.type == "uuid":
            self.put(f"topic = bytes(buf[{start}:{end}])")
        elif slot.name in TOPICS:
            self.put(f"topic = text(buf, {start}, {end}, {slot.compact})")
        if path == self.last:
            compact = f"{end}, {slot.compact}"
            self.put(f"hits.append({self.row.format(start=start, end=compact)})")


@cache
def row_reader(key: int, version: int, direction: str) -> Reader | None:
    """Return the reader of the bodies of this API version and direction; None if no rows are made of them."""
    if (key, direction) not in PATHS or version not in schema.load(key).versions:
        return None
    struct = layout.body(key, version, direction)
    if PATHS[key, direction][-1] not in {slot.path for slot in struct.everywhere()}:
        return None
    maker = RowMaker(key, direction)
    maker.put.names.update(produced=produced, read=read, text=text, far=reach)
    with maker.put.block("def rows(buf, p, end, hits):"):
        maker.put("acks = topic = None")
        maker.struct(struct, "")
        maker.put(f"return {maker.at()}, acks")
    made: Any = maker.put.build("rows", f"{schema.load(key).name} {direction} v{version} rows")
    return made  # type: ignore[no-any-return]


def read_rows(key: int, version: int, direction: str, buf: Buffer, pos: int, end: int) -> tuple[list[Any], int] | None:
    """Return (rows, acks) of the frame in buf[pos:end] (length field first); None: it has to be decoded as usual."""
    reader = row_reader(key, version, direction)
    if reader is None:
        return None
    start = body_start(buf, pos + 4, end, header_version(key, version, direction), direction)
    if start is None:
        return None
    rows: list[Any] = []
    try:
        after, acks = reader(buf, start, end, rows)
    except WRONG:
        return None
    return (rows, acks) if after <= end else None


# ---- what readers call


def reach(buf: Buffer, at: int, size: int) -> int:
    """Return the bytes of a value with a compact length of several bytes, length included; see `walk_support.far`."""
    high = buf[at + 1]
    return 2 + size * ((high << 7 | buf[at] & 0x7F) - 1) if 0 < high < 0x80 else far(buf, at, size)


def text(buf: Buffer, start: int, end: int, compact: bool) -> str:
    """Return the string in buf[start:end], which begins with its length; empty for null."""
    if compact:
        start = start + 1 if buf[start] < 0x80 else read_compact_length(buf, start)[1]
    else:
        start += 2
    return str(bytes(buf[start:end]), "utf-8", "surrogateescape") if start < end else ""


def field(buf: Buffer, start: int, compact: bool) -> tuple[int, int]:
    """Return (size in bytes, start) of the records whose length stands at `start`; the size is -1 for null."""
    if compact:
        low = buf[start]
        high = buf[start + 1] if low >= 0x80 else 0x80
        if high < 0x80:  # two bytes, as for most batches
            return (high << 7 | low & 0x7F) - 1, start + 2
        return read_compact_length(buf, start)
    return LENGTH.unpack_from(buf, start)[0], start + 4


def produced(buf: Any, start: int, end: int, compact: bool) -> tuple[int, int, int, str, bool]:
    """Return (bytes, batches, records, codec, idempotent) of a records field of Produce, length included."""
    size, at = field(buf, start, compact)
    if size >= BATCH.size:
        _, length, magic, attributes, _, producer, count = BATCH.unpack_from(buf, at)
        if length + OVERHEAD == size and magic == 2 and count >= 0 and not attributes & CONTROL:
            return size, 1, count, CODECS[attributes & CODEC], producer >= 0
    if size < 0:
        return 0, 0, 0, "", False
    found = read_digest(bytes(buf[at:end]), 0, size)[0]
    return size, found.batches, max(found.records or 0, 0), found.codec, found.producer_id is not None


def read(buf: Any, start: int, end: int, compact: bool) -> tuple[int, int, int, str, None, int | None]:
    """Return (bytes, batches, records, codec, None, last offset) of a records field of a Fetch, length included."""
    size, at = field(buf, start, compact)
    if size >= BATCH.size:
        base, length, magic, attributes, delta, _, count = BATCH.unpack_from(buf, at)
        if length + OVERHEAD == size and magic == 2 and count >= 0 and not attributes & CONTROL:
            return size, 1, count, CODECS[attributes & CODEC], None, base + delta
    if size < 0:
        return 0, 0, 0, "", None, None
    found = read_digest(bytes(buf[at:end]), 0, size)[0]
    return size, found.batches, max(found.records or 0, 0), found.codec, None, found.last_offset
