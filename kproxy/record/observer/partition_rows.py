"""Rows of an exchange: the numbers of a Produce, Fetch or ShareFetch that a summary counts, one row a partition.

Strategy. Rows are made of decoded bodies, or read by compiled readers in one pass over a frame that is here whole, with
no values built. A reader is a walk (`protocol/scan/walk_source.py`) in which the lines that would report a hit read the
value. The topic, the partition and the error stay in locals until the last field of a row. It accepts all that the
decoder accepts, and returns the same rows. It skips tagged fields, so it also accepts invalid ones. Where it meets
other bytes it gives no rows, and the frame is decoded as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct, error
from typing import Any

from kproxy.base.cooperative import yielding
from kproxy.base.errors import DecodeError
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.elements import Partition, partitions_in
from kproxy.protocol.framing import body_start
from kproxy.protocol.primitives import Buffer, read_compact_length
from kproxy.protocol.records.entry import CODEC, CODECS, CONTROL, OVERHEAD, batch_fields, read_digest
from kproxy.protocol.scan.walk_source import WalkWriter
from kproxy.protocol.scan.walk_support import Bad, far
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import FETCH, PRODUCE, SHARE_FETCH
from kproxy.protocol.table.layout import Slot
from kproxy.record.exchange import ObservedExchange

from .credentials import REQUEST, RESPONSE

TopicKey = str | bytes
"""A topic's name, or the 16 bytes of its id."""

PartitionRow = tuple[TopicKey, int, int, int, int, int, str, bool | None, int | None, int | None]
"""(topic, partition, error code, bytes, batches, records, codec, idempotent, last offset, high watermark)"""


ProducedRow = tuple[TopicKey, int, int, int, int, str, bool]
"""Row of a Produce request: (topic, partition, bytes, batches, records, codec, idempotent)"""


def rows_of(seen: ObservedExchange, asked: list[ProducedRow] | None = None) -> list[PartitionRow]:
    """Return the rows of an exchange that was answered, or is due no answer; none where they cannot be read.

    `asked`: the rows of its request, where they were read before.
    """
    if seen.key == PRODUCE:
        asked = asked_rows(seen.version, seen.request_body) if asked is None else asked
        if seen.acks != 0 and seen.response_body is None:  # unknown whether it was written
            return []
        return produce_rows(asked, written_answers(seen.version, seen.response_body))
    return fetch_rows(seen.key, seen.version, seen.response_body)


def asked_rows(version: int, request: dict[str, Any] | None) -> list[ProducedRow]:
    """Return the rows of a Produce request, one for each partition that was to be written."""
    rows: list[ProducedRow] = []
    for part in partitions_in(PRODUCE, version, "request", request):
        name, digest = topic_of(part), part.records
        if digest is None:
            rows.append((name, part.number, 0, 0, 0, "", False))
        else:
            number, idempotent = max(digest.records or 0, 0), digest.producer_id is not None
            rows.append((name, part.number, digest.size, digest.batches, number, digest.codec, idempotent))
    return rows


def written_answers(version: int, response: dict[str, Any] | None) -> dict[tuple[TopicKey, int], tuple[int, int]]:
    """Return (topic, partition) → (error code, base offset) of a Produce response."""
    return {
        (topic_of(part), part.number): (part.error_code, part.fields["base_offset"])
        for part in partitions_in(PRODUCE, version, "response", response)
    }


def produce_rows(asked: list[ProducedRow], answers: dict[tuple[TopicKey, int], tuple[int, int]]) -> list[PartitionRow]:
    """Return the rows of a Produce exchange from those of its request and the answers for each partition."""
    rows: list[PartitionRow] = []
    for name, index, size, batches, records, codec, idempotent in yielding(asked):
        error, base = answers.get((name, index), (0, -1))
        last = base + records - 1 if base >= 0 and records else None
        rows.append((name, index, error, size, batches, records, codec, idempotent, last, None))
    return rows


def fetch_rows(key: int, version: int, response: dict[str, Any] | None) -> list[PartitionRow]:
    """Return the rows of a Fetch or ShareFetch response, one for each partition in it."""
    rows: list[PartitionRow] = []
    for part in partitions_in(key, version, "response", response):
        fields, digest = part.fields, part.records
        mark = fields["high_watermark"] if key == FETCH and fields["high_watermark"] >= 0 else None
        read = (0, 0, 0, "", None, None)
        if digest is not None:
            number = max(digest.records or 0, 0)
            read = (digest.size, digest.batches, number, digest.codec, None, digest.last_offset)
        error = part.error_code or fields.get("acknowledge_error_code", 0)
        rows.append((topic_of(part), part.number, error, *read, mark))
    return rows


def share_codes(version: int, response: dict[str, Any] | None) -> list[int]:
    """Return the error codes of a ShareFetch response in its order: two for a partition, whose row has only one."""
    parts = partitions_in(SHARE_FETCH, version, "response", response)
    return [code for part in parts for code in (part.error_code, part.fields["acknowledge_error_code"])]


def topic_of(part: Partition) -> TopicKey:
    """Return the name of a partition's topic, or its id where the version of the API has ids in place of names."""
    return part.topic or "" if part.topic_id is None else part.topic_id.bytes


# ---- rows read from bytes


RowReader = Callable[[Buffer, int, int, list[Any]], tuple[int, int]]
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
"""Source of the row that the last field of a partition completes; see `ProducedRow` and `PartitionRow`."""

BATCH = Struct(
    ">" + batch_fields("base_offset", "length", "magic", "attributes", "last_offset_delta", "producer_id", "count")
)
LENGTH = Struct(">i")


class RowReaderWriter(WalkWriter):
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
def row_reader(key: int, version: int, direction: str) -> RowReader | None:
    """Return the reader of the bodies of this API version and direction; None if no rows are made of them."""
    if (key, direction) not in PATHS or version not in schema.load(key).versions:
        return None
    struct = layout.body(key, version, direction)
    if PATHS[key, direction][-1] not in {slot.path for slot in struct.everywhere()}:
        return None
    maker = RowReaderWriter(key, direction)
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
    rows: list[Any] = []
    try:
        start = body_start(buf, pos + 4, end, header_version(key, version, direction), direction)
        if start is None:
            return None
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
    """Return (size in bytes, start) of the records with their length at `start`; the size is -1 for null."""
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
