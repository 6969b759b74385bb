"""Records of an entry as positions in its decompressed bytes, and entries written from such positions.

`EntrySpans(entry)` decompresses an entry of any magic. Iteration yields one *span* per record: a tuple of positions
and numbers, indexed by the constants below. A span costs a seventh of `decode`, since it copies nothing.

    START, END          the record's bytes, its length (magic 2) or its offset (magic 0, 1) included
    OFFSET_DELTA        as stored: added to `base_offset`
    TIMESTAMP_DELTA     as stored: added to `base_timestamp`
    FIELDS              the length of the key; attributes and deltas end here
    KEY, KEY_END        the key; KEY is -1 for a null key
    VALUE, VALUE_END    the value; VALUE is -1 for a null value. Headers fill the bytes from VALUE_END to END

Readers: `offset`, `timestamp`, `key`, `value`, `headers` (all pairs) and `header` (values by name).

Edits: `edit(span, value=…)` and `append_headers` write the changed record into a second buffer, and return its span.
This span is valid wherever the original span is, so later edits read the changes of earlier edits. Positions from `gap`
on lie in the second buffer. `edit` returns the same span if nothing changes.

Result: `write(spans)` copies the bytes of these spans in their order. It may omit, repeat and reorder spans. Unchanged
records are copied as bytes, adjoining records at once. `write` returns None if the records are the same as before.

Limits: MOST_RECORDS of an entry before and after a change, decompressed bytes (`limit`), headers (`headers`), and the
output (`most_output`). Input beyond a limit raises RecordsError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import islice
from typing import Literal

from kproxy.base.cooperative import FEW, yield_point, yielding, yielding_range
from kproxy.base.errors import DecodeError, EncodeError, RecordsError, plural
from kproxy.protocol.primitives import Buffer, read_bits, read_uvarint, read_varint, write_varint, write_varlong

from .batch import base_of, frame_batch, inner_entries, key_and_value, without_records, write_message
from .compression import DECOMPRESSED_LIMIT, SHORT_TO_PACK, compress, decompress
from .entry import LEGACY, Batch, LegacyEntry
from .record import ANY_HEADERS, HEADERS_LIMIT, TooManyHeaders, put, read_record, wrapped

Span = tuple[int, int, int, int, int, int, int, int, int]
Header = tuple[bytes, bytes | None]
START, OFFSET_DELTA, TIMESTAMP_DELTA, FIELDS, KEY, KEY_END, VALUE, VALUE_END, END = range(9)

MOST_RECORDS = 100_000
"""Records of one entry. A kilobyte of zstd can hold a million records."""
LEAST_OUTPUT = 8 << 20
OUTPUT_RATIO = 20
"""The uncompressed output of an entry may have LEAST_OUTPUT bytes, and this many bytes for each byte of the entry."""
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


def header_bytes(headers: Sequence[Header]) -> bytes:
    """Return headers as they are in a record of a batch, for `EntrySpans.append_headers`."""
    data = bytearray()
    for name, content in headers:
        put(data, name)
        put(data, content)
    return bytes(data)


class Unchanged(Enum):
    """Type of the default of `EntrySpans.edit`, where None means null."""

    KEEP = 0


KEEP = Unchanged.KEEP
Keep = Literal[Unchanged.KEEP]


class EntrySpans:
    """Spans of the records of one entry, and the entry with other records. Raises RecordsError for bad bytes."""

    def __init__(self, entry: Batch | LegacyEntry, limit: int = DECOMPRESSED_LIMIT, headers: int = ANY_HEADERS) -> None:
        self.entry = entry
        self.headers_left = headers
        self.has_too_many_headers = False
        self.scanned = 0  # records and headers
        self.added = bytearray()
        self.most_output = LEAST_OUTPUT + OUTPUT_RATIO * len(entry.raw)
        self.base_offset = self.base_timestamp = 0
        data: Buffer
        if isinstance(entry, Batch):
            if not 0 <= entry.count <= MOST_RECORDS:
                raise RecordsError(
                    f"expected 0 to {MOST_RECORDS} records, got {entry.count} (at offset {entry.base_offset})"
                )
            # compaction keeps empty batches, for the producer's sequence numbers
            data = decompress(entry.codec, entry.payload, limit) if entry.count else b""
            self.base_offset, self.base_timestamp = entry.base_offset, entry.base_timestamp
        elif entry.codec:
            _, value = key_and_value(entry)
            if value is None:
                raise RecordsError(f"wrapper at offset {entry.offset}: its value is null")
            data = decompress(entry.codec, value, limit, entry.magic)
            self.base_offset = base_of(entry, data)
        else:
            data = entry.raw
        # Reading bytes is faster than reading a memoryview. A copy of long data takes longer than that saves.
        self.data = bytes(data) if len(data) <= SHORT_TO_PACK else data
        self.gap = len(self.data) + 1  # so that no record of `added` adjoins the last record of `data`

    def __iter__(self) -> Iterator[Span]:
        if isinstance(self.entry, Batch):
            return self.scan_batch(self.entry.count)
        return self.scan_messages(self.entry)

    def scan_batch(self, count: int) -> Iterator[Span]:  # noqa: C901, PLR0912, PLR0915  # calls would cost more
        data, size, end = self.data, len(self.data), 0
        for first in range(0, count, FEW):
            yield_point()
            following = min(first + FEW, count)
            self.scanned += following - first
            for number in range(first, following):
                start = p = end
                # Varints of one and two bytes are read here. Checks of single lengths are not needed: positions only
                # increase, so a length beyond the record's end makes the last comparison fail.
                try:
                    n = data[p]
                    p += 1
                    if n >= 0x80:
                        if (more := data[p]) < 0x80:
                            n += (more << 7) - 0x80
                            p += 1
                        else:
                            n, p = read_uvarint(data, start)
                    end = p + (n >> 1)
                    if n & 1 or end > size:
                        raise self.unreadable(number, start)
                    timestamp = data[p + 1]  # after the attributes
                    p += 2
                    if timestamp >= 0x80:
                        if (more := data[p]) < 0x80:
                            timestamp += (more << 7) - 0x80
                            p += 1
                        else:
                            timestamp, p = read_bits(data, p - 1, 64, 10)
                    offset = data[p]
                    p += 1
                    if offset >= 0x80:
                        if (more := data[p]) < 0x80:
                            offset += (more << 7) - 0x80
                            p += 1
                        else:
                            offset, p = read_uvarint(data, p - 1)
                    fields = p
                    n = data[p]
                    p += 1
                    if n >= 0x80:
                        if (more := data[p]) < 0x80:
                            n += (more << 7) - 0x80
                            p += 1
                        else:
                            n, p = read_uvarint(data, p - 1)
                    if n & 1:
                        key = -1
                    else:
                        key = p
                        p += n >> 1
                    key_end = p
                    n = data[p]
                    p += 1
                    if n >= 0x80:
                        if (more := data[p]) < 0x80:
                            n += (more << 7) - 0x80
                            p += 1
                        else:
                            n, p = read_uvarint(data, p - 1)
                    if n & 1:
                        value = -1
                    else:
                        value = p
                        p += n >> 1
                    value_end = p
                    if data[p]:
                        p = self.skip_headers(p, end)
                    else:
                        p += 1
                    if p != end:
                        raise self.unreadable(number, start)
                except (DecodeError, IndexError):
                    raise self.unreadable(number, start) from None
                if (timestamp | offset) & 1:
                    timestamp = -timestamp - 1 if timestamp & 1 else timestamp
                    offset = -offset - 1 if offset & 1 else offset
                yield start, offset >> 1, timestamp >> 1, fields, key, key_end, value, value_end, end
        if end != size:
            raise RecordsError(f"{plural(size - end, 'byte')} left after {plural(count, 'record')}")

    def skip_headers(self, position: int, end: int) -> int:
        """Return the position after the headers of a record that ends at `end`. Raises DecodeError or IndexError."""
        yield_point()  # headers of many records take long even if each record has few
        data = self.data
        count, position = read_varint(data, position)
        if not 0 <= count <= HEADERS_LIMIT:
            raise DecodeError(f"{count} headers, expected 0 to {HEADERS_LIMIT}", offset=position)
        if count > self.headers_left:
            raise TooManyHeaders(
                f"{count} headers, and no more than {self.headers_left} are looked at", offset=position
            )
        for _ in yielding_range(count):
            for is_value in (0, 1):
                n = data[position]
                position += 1
                if n >= 0x80:
                    n, position = read_uvarint(data, position - 1)
                if not n & 1:
                    position += n >> 1
                elif not is_value:
                    raise DecodeError("header key is null", offset=position)
            if position > end:
                raise DecodeError(f"expected the end of fields at byte {end}, got {position}", offset=position)
        self.headers_left -= count
        self.scanned += count
        return position

    def unreadable(self, number: int, start: int) -> RecordsError:
        """Return the error that `decode` raises for this record."""
        assert isinstance(self.entry, Batch)
        problem: Exception | None = None
        try:
            read_record(memoryview(self.data), start, 0, 0, self.headers_left)
        except (DecodeError, IndexError) as found:
            problem = found
        self.has_too_many_headers = isinstance(problem, TooManyHeaders)
        return RecordsError(f"record {number} of {self.entry.count} at byte {start}: {problem}")

    def scan_messages(self, entry: LegacyEntry) -> Iterator[Span]:
        start = 0
        for number, message in enumerate(inner_entries(entry, self.data) if entry.codec else (entry,)):
            if number >= MOST_RECORDS:
                raise RecordsError(f"expected at most {MOST_RECORDS} records (at offset {entry.offset})")
            self.scanned += 1
            yield self.message_span(start, message)
            start += len(message.raw)

    def message_span(self, start: int, message: LegacyEntry) -> Span:
        key, value = key_and_value(message)
        end = start + len(message.raw)
        fields = end - len(message.body)
        key_end = fields + 4 + len(key or b"")
        key_at, value_at = -1 if key is None else fields + 4, -1 if value is None else key_end + 4
        return start, message.offset, message.timestamp, fields, key_at, key_end, value_at, end, end

    def part(self, start: int, end: int) -> bytes:
        """Return the bytes between two positions of one span."""
        gap = self.gap
        return bytes(self.data[start:end]) if start < gap else bytes(self.added[start - gap : end - gap])

    def offset(self, span: Span) -> int:
        return wrapped(self.base_offset + span[OFFSET_DELTA])

    def timestamp(self, span: Span) -> int:
        """Return the stored timestamp in ms. Consumers see another timestamp with log append time."""
        return wrapped(self.base_timestamp + span[TIMESTAMP_DELTA])

    def key(self, span: Span) -> bytes | None:
        return None if span[KEY] < 0 else self.part(span[KEY], span[KEY_END])

    def value(self, span: Span) -> bytes | None:
        return None if span[VALUE] < 0 else self.part(span[VALUE], span[VALUE_END])

    def headers(self, span: Span) -> list[Header]:
        """Return the headers in their order. Names are UTF-8 if the producer follows the protocol."""
        data = self.part(span[VALUE_END], span[END])
        if len(data) < 2:  # no headers; nothing at all in magic 0 and 1
            return []
        yield_point()
        count, p = read_varint(data, 0)
        found: list[Header] = []
        for _ in yielding_range(count):
            n, p = read_uvarint(data, p) if data[p] >= 0x80 else (data[p], p + 1)
            end = p + (n >> 1)
            name = data[p:end]
            n, p = read_uvarint(data, end) if data[end] >= 0x80 else (data[end], end + 1)
            end = p if n & 1 else p + (n >> 1)
            found.append((name, None if n & 1 else data[p:end]))
            p = end
        return found

    def header(self, span: Span, name: bytes) -> list[bytes | None]:
        if name not in self.part(span[VALUE_END], span[END]):
            return []
        return [value for one, value in self.headers(span) if one == name]

    def edit(
        self,
        span: Span,
        *,
        key: bytes | Keep | None = KEEP,
        value: bytes | Keep | None = KEEP,
        headers: Sequence[Header] | Keep = KEEP,
        timestamp: int | Keep = KEEP,
        offset_delta: int | Keep = KEEP,
    ) -> Span:
        """Return the span of the record with these parts: the same span if they do not differ.

        `timestamp` in ms, as stored. Raises RecordsError for a part that does not fit, and beyond the output limit.
        """
        if key is not KEEP and key == self.key(span):
            key = KEEP
        if value is not KEEP and value == self.value(span):
            value = KEEP
        if headers is not KEEP and list(headers) == self.headers(span):
            headers = KEEP
        if timestamp is not KEEP and timestamp == self.timestamp(span):
            timestamp = KEEP
        if offset_delta is not KEEP and offset_delta == span[OFFSET_DELTA]:
            offset_delta = KEEP
        if key is value is headers is timestamp is offset_delta is KEEP:
            return span
        number = span[OFFSET_DELTA] if offset_delta is KEEP else offset_delta
        delta = span[TIMESTAMP_DELTA] if timestamp is KEEP else wrapped(timestamp - self.base_timestamp)
        try:
            if timestamp is not KEEP and wrapped(timestamp) != timestamp:
                raise EncodeError(f"expected an int64 timestamp, got {timestamp}")
            if isinstance(self.entry, Batch):
                moved = timestamp is not KEEP or offset_delta is not KEEP
                return self.edit_record(span, key, value, headers, (delta, number) if moved else None)
            if headers is not KEEP:
                raise EncodeError(f"{len(headers)} headers, magic {self.entry.magic} has none")
            key, value = self.key(span) if key is KEEP else key, self.value(span) if value is KEEP else value
            attributes = LEGACY.unpack_from(self.part(span[START], span[END]))[-1]
            message = write_message(number, self.entry.magic, attributes, delta, key, value)
            return self.message_span(self.add(message), next(inner_entries(self.entry, message)))
        except EncodeError as problem:
            raise RecordsError(f"record at offset {self.offset(span)}: {problem}") from problem

    def edit_record(
        self,
        span: Span,
        key: bytes | Keep | None,
        value: bytes | Keep | None,
        headers: Sequence[Header] | Keep,
        deltas: tuple[int, int] | None,
    ) -> Span:
        """Edit a record of a batch. `deltas`: of timestamp and offset; None: unchanged. Raises EncodeError."""
        start, number, delta, fields, key_at, key_end, value_at, value_end, end = span
        buffer, shift = (self.data, 0) if start < self.gap else (self.added, self.gap)
        kept = start - shift  # from here on, bytes are not copied yet
        while buffer[kept] >= 0x80:  # the length
            kept += 1
        kept += 1
        body = bytearray()
        if deltas is not None:
            delta, number = deltas
            body += bytes((buffer[kept],)) + write_varlong(delta) + write_varint(number)
            kept = fields - shift
        new_fields = len(body) + fields - shift - kept
        key_field, value_field = key_end - fields, value_end - key_end
        key_size, value_size = key_end - key_at if key_at >= 0 else -1, value_end - value_at if value_at >= 0 else -1
        if key is not KEEP:
            body += buffer[kept : fields - shift]
            put(body, key)
            kept, key_size, key_field = key_end - shift, -1 if key is None else len(key), len(body) - new_fields
        if value is not KEEP:
            body += buffer[kept : key_end - shift]
            put(body, value)
            kept, value_size = value_end - shift, -1 if value is None else len(value)
            value_field = len(body) - new_fields - key_field
        if headers is not KEEP:
            body += buffer[kept : value_end - shift]
            body += write_varint(len(headers))
            for name, content in yielding(headers):
                put(body, name)
                put(body, content)
            kept = end - shift
        body += buffer[kept : end - shift]
        length = write_varint(len(body))
        start = self.add(length + body)
        fields = start + len(length) + new_fields
        key_end = fields + key_field
        value_end = key_end + value_field
        key_at = -1 if key_size < 0 else key_end - key_size
        value_at = -1 if value_size < 0 else value_end - value_size
        return start, number, delta, fields, key_at, key_end, value_at, value_end, start + len(length) + len(body)

    def append_headers(self, span: Span, headers: bytes, count: int) -> Span:
        """Return the span of a batch's record with `count` more headers, whose bytes are `headers` (`header_bytes`).

        It costs a third of `edit`, since the headers of the record are copied as bytes. Raises RecordsError beyond the
        output limit.
        """
        start, number, delta, fields, key, key_end, value, value_end, end = span
        buffer, shift = (self.data, 0) if start < self.gap else (self.added, self.gap)
        kept = start - shift
        while buffer[kept] >= 0x80:  # the length
            kept += 1
        kept += 1
        before, first = read_varint(buffer, value_end - shift)
        added, count_bytes = self.added, write_varint(before + count)
        size = value_end - shift - kept + len(count_bytes) + end - shift - first + len(headers)
        start = self.gap + len(added)
        added += write_varint(size)
        moved = self.gap + len(added) - kept - shift
        added += buffer[kept : value_end - shift]
        added += count_bytes
        added += buffer[first : end - shift]
        added += headers
        if len(added) > self.most_output:
            raise self.too_long()
        return (
            start, number, delta, fields + moved, key + moved if key >= 0 else -1, key_end + moved,
            value + moved if value >= 0 else -1, value_end + moved, self.gap + len(added),
        )  # fmt: skip

    def add(self, record: bytes) -> int:
        """Append a record to the second buffer. Returns its position."""
        start = self.gap + len(self.added)
        self.added += record
        if len(self.added) > self.most_output:
            raise self.too_long()
        return start

    def too_long(self) -> RecordsError:
        return RecordsError(f"expected at most {self.most_output} bytes of changed records in one entry")

    def write(self, spans: Iterable[Span], *, renumber: bool = False, fast: bool = False) -> bytes | None:
        """Return the entry with these records; None if they are the same as before.

        Kept are codec, offsets, producer, leader epoch, base timestamp and attributes. Computed are length, count, crc
        and `max_timestamp` (for create time). Without records, a batch has no codec (`without_records`), and a message
        set is empty.

        `renumber`: for Produce requests, offsets from the first one without gaps; nothing remains of an entry without
        records. `fast`: see `compress`. Raises RecordsError for a control batch, for an offset outside the batch, and
        beyond a limit.
        """
        entry, base, count = self.entry, self.base_timestamp, 0
        if isinstance(entry, Batch) and entry.is_control:
            raise RecordsError(f"control batch at offset {entry.base_offset} is never changed")
        low, high = LOWEST, HIGHEST
        if renumber:
            kept = list(islice(spans, MOST_RECORDS + 1))
            if self.is_whole(kept):
                return None  # an unchanged entry keeps its offsets
            spans = (self.edit(span, offset_delta=number) for number, span in enumerate(kept))
        elif isinstance(entry, Batch):
            low, high = 0, min(entry.last_offset_delta, HIGHEST - entry.base_offset)
        out, newest, offset = bytearray(), LOWEST, 0
        start = end = 0
        remaining = iter(spans)
        while some := tuple(islice(remaining, FEW)):
            yield_point()
            count += len(some)
            if count > MOST_RECORDS:
                raise RecordsError(f"expected at most {MOST_RECORDS} records in one entry")
            for span in some:
                first, offset, delta, _, _, _, _, _, last = span
                if first != end:
                    self.copy(out, start, end)
                    start = first
                end = last
                if not low <= offset <= high:
                    raise RecordsError(
                        f"offset {self.offset(span)} outside its batch, delta {offset} of {low} to {high}"
                    )
                timestamp = base + delta
                if timestamp > newest or timestamp < LOWEST:
                    newest = max(newest, wrapped(timestamp))
        if not out and start == 0 and end == len(self.data):
            return None
        self.copy(out, start, end)
        if len(out) == len(self.data) and out == self.data:
            return None
        return self.written(out, count, offset, newest, renumber, fast)

    def is_whole(self, spans: Iterable[Span]) -> bool:
        """Return True if these are all records of the entry in their order, without changes."""
        end = 0
        for span in yielding(spans):
            if span[START] != end:
                return False
            end = span[END]
        return end == len(self.data)

    def copy(self, out: bytearray, start: int, end: int) -> None:
        """Append the bytes between two positions of one buffer."""
        if len(out) + end - start > self.most_output:
            raise self.too_long()
        if start < self.gap:
            out += self.data[start:end]
        else:
            out += self.added[start - self.gap : end - self.gap]

    def written(self, records: bytearray, count: int, last: int, newest: int, renumber: bool, fast: bool) -> bytes:
        """Return the entry with these bytes of `count` records, the offset delta of the last one and the newest
        timestamp."""
        batch = self.entry
        if isinstance(batch, LegacyEntry):
            if not batch.codec or not count:
                return bytes(records)
            return self.written_wrapper(batch, records, last, newest, renumber, fast)
        if not count:
            return b"" if renumber else frame_batch(without_records(batch), b"")
        header = replace(
            batch,
            count=count,
            last_offset_delta=count - 1 if renumber else batch.last_offset_delta,
            max_timestamp=batch.max_timestamp if batch.is_log_append_time else newest,
        )
        return frame_batch(header, compress(batch.codec, records, fast=fast))

    def written_wrapper(
        self, wrapper: LegacyEntry, messages: bytearray, last: int, newest: int, renumber: bool, fast: bool
    ) -> bytes:
        """Return a wrapper of these messages. Its offset is the last one: the base of relative offsets follows from
        it."""
        base = 0 if renumber else self.base_offset
        if base and base + last == 0:  # offset 0 means absolute offsets inside
            raise RecordsError(f"wrapper at offset {wrapper.offset}: expected a last offset above 0, got 0")
        timestamp = wrapper.timestamp if wrapper.is_log_append_time else newest
        packed = compress(wrapper.codec, messages, wrapper.magic, fast=fast)
        return write_message(base + last, wrapper.magic, wrapper.attributes, timestamp, None, packed)
