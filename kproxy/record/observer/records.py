"""Reads the records in an exchange with whole frames: written by Produce, read by Fetch or ShareFetch.

Strategy: the frame is decoded once more, records as views into it; batches are decompressed one after the other, each
up to a limit. Unreadable batches are skipped: the batches themselves contain the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kproxy.base.errors import DecodeError, KproxyError, RecordsError
from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.elements import called, partitions_in
from kproxy.protocol.records import Batch, Cut, LegacyEntry, Record, decode, entries
from kproxy.protocol.records.record import TooManyHeaders, least_size
from kproxy.protocol.records.spans import EntrySpans, Span
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.rules.bodies import carries_records

MOST_RECORDS = 10_000
"""Records that are looked at in one exchange: some ten milliseconds of decoding."""
MOST_BYTES = 8 << 20
"""Bytes that may come out of one batch's codec; producers send 1 MB by default, few compress more than eightfold."""
MOST_UNPACKED = 8 * MOST_BYTES
"""Bytes that may come out of the codecs of one exchange: some fifty milliseconds. A frame of a megabyte has room for
three thousand zstd batches that unpack to eight megabytes of zeros each, which would take 15 s."""


MOST_HEADERS = 100_000
"""Headers of these records, together. Two bytes out of a codec make one, so that a kilobyte can have millions."""


class RecordLimits(NamedTuple):
    """Records that are looked at in one exchange, their headers, and bytes that may come out of its codecs."""

    records: int
    unpacked: int
    headers: int = MOST_HEADERS


OF_FILES = RecordLimits(MOST_RECORDS, MOST_UNPACKED)
"""For callers that keep no other work waiting."""
LIVE = RecordLimits(2500, MOST_BYTES, 10_000)
"""While traffic passes: at most some thirty milliseconds of an event loop."""


class NotKept(KproxyError):
    """Error of an operation on an exchange that needs bytes which were not kept; the message names them and the
    reason."""


@dataclass(frozen=True, slots=True)
class RecordsField:
    """Records of one partition, as in the frame. `topic` is the id as text where no name is known."""

    topic: str
    partition: int
    data: memoryview


class FoundRecord(NamedTuple):
    """Record of a user, with the topic and partition that it was written to or read from, and its place in its
    batch."""

    topic: str
    partition: int
    spans: EntrySpans
    span: Span


def record_fields(seen: ObservedExchange) -> list[RecordsField]:
    """Return the records of an exchange, a `RecordsField` for each partition that has any.

    Raises NotKept where the frame that holds them was not kept whole.
    """
    direction = "request" if seen.key == PRODUCE else "response"
    if not carries_records(seen.key, direction):
        return []
    frame = seen.request if direction == "request" else seen.response
    if frame is None:
        return []
    body = _body(seen, frame, direction)
    return [
        RecordsField(
            called(part, lambda topic_id: seen.who.topic_of(str(topic_id))), part.number, memoryview(part.records)
        )
        for part in partitions_in(seen.key, seen.version, direction, body)
        if part.records
    ]


def _body(seen: ObservedExchange, frame: Frame, direction: str) -> dict[str, Any]:
    if frame.form is not Form.WHOLE:
        kept = {Form.NONE: "nothing", Form.HEAD: "the beginning", Form.SKETCH: "all but its records"}[frame.form]
        raise NotKept(f"of the {direction} {kept} was kept{f' ({frame.withheld})' if frame.withheld else ''}")
    try:
        if direction == "request":
            return decode_request(frame.data, trailing=True).body
        return decode_response(frame.data, seen.key, seen.version, trailing=True).body
    except DecodeError as error:
        raise NotKept(f"the {direction} cannot be read: {error}") from None


def records_of(
    seen: ObservedExchange, limits: RecordLimits = OF_FILES, wanted: Callable[[str], bool] = lambda topic: True
) -> Iterator[FoundRecord]:
    """Yield the users' records of an exchange in order, of topics that are `wanted`.

    Raises NotKept where their frame was not kept whole, and where there is more than the limits allow.
    """
    left, unpacked = limits.records, Unpacked(limits.unpacked, limits.headers)
    for field in record_fields(seen):
        if not wanted(field.topic):
            continue
        for spans, span in _readable(field.data, unpacked):
            if not left:
                raise NotKept(f"it has more than {limits.records} records, and no more are looked at")
            left -= 1
            yield FoundRecord(field.topic, field.partition, spans, span)


class Unpacked:
    """Counter of the bytes that came out of the codecs of one exchange, or may have. `headers`: how many headers of its
    records may still be looked at."""

    def __init__(self, most: int = MOST_UNPACKED, headers: int = MOST_HEADERS) -> None:
        self.size, self.most, self.headers = 0, most, headers

    def records(self, entry: Batch | LegacyEntry, *, stored: bool = False) -> Iterator[Record]:
        """Yield the records of an entry, up to the limit. Raises RecordsError if it cannot be read, and NotKept when
        there are more bytes or headers than are looked at."""
        try:
            for record in decode(entry, MOST_BYTES, stored, self.headers):
                self.headers -= len(record.headers)
                if entry.codec:
                    self.add(least_size(record))
                yield record
        except RecordsError as error:
            if isinstance(error.__cause__, TooManyHeaders):
                raise NotKept(f"no more headers are looked at: {error}") from None
            if entry.codec:  # it may have been as much as one batch may have
                self.add(MOST_BYTES)
            raise

    def spans(self, entry: Batch | LegacyEntry) -> Iterator[tuple[EntrySpans, Span]]:
        """Yield the places of the records of an entry; the limits and errors are those of `records`."""
        spans = None
        try:
            spans = EntrySpans(entry, MOST_BYTES, self.headers)
            if entry.codec:
                self.add(len(spans.data))
            for span in spans:
                yield spans, span
        except RecordsError as error:
            if spans is not None and spans.has_too_many_headers:
                raise NotKept(f"no more headers are looked at: {error}") from None
            if entry.codec and spans is None:
                self.add(MOST_BYTES)
            raise
        finally:
            self.headers = self.headers if spans is None else spans.headers_left

    def add(self, size: int) -> None:
        """Add `size` bytes. Raises NotKept when there are more than `most`."""
        self.size += size
        if self.size > self.most:
            raise NotKept(f"more than {self.most} bytes come out of its batches, and no more are unpacked")


def _readable(data: memoryview, unpacked: Unpacked) -> Iterator[tuple[EntrySpans, Span]]:
    """Yield the records of these batches that can be read, without control records, which are not users'."""
    try:
        for entry in entries(data):
            if isinstance(entry, Batch) and entry.is_control:
                continue
            try:
                yield from () if isinstance(entry, Cut) else unpacked.spans(entry)
            except RecordsError:
                continue
    except RecordsError:
        return
