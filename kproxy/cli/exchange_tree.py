"""Trees of an exchange's frames with the bytes beside each field, and its records in lines of text.

Strategy: the tree of `kproxy decode --tree`, with hex in front of each value; long values show their first bytes. A
frame that was not kept whole is shown as far as it goes; a last line tells how much is missing, and why. Of records
there is a line for the header of each batch, then one for each of its records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from kproxy.base.errors import DecodeError, RecordsError
from kproxy.base.terminal import in_line
from kproxy.protocol import decode_response
from kproxy.protocol.codec.structs import find
from kproxy.protocol.codec.trace import TraceStep
from kproxy.protocol.records import Batch, Cut, Entry, LegacyEntry, Record, check_crc, decode, entries
from kproxy.protocol.records.compression import CODECS
from kproxy.protocol.table.errors import numbers
from kproxy.protocol.table.schema import Api, load, paths
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.record.observer.credentials import SECRET_KINDS
from kproxy.record.observer.records import MOST_BYTES, RecordsField

from .frame_text import Row, is_utf8, rows, shown

ACROSS = 12
"""Bytes in a line: with the offset they take half of a terminal."""
MOST_LINES = 4
"""Lines of hex that one value has at most."""
BLANK = " " * (3 * ACROSS - 1)


def hex_tree(seen: ObservedExchange, direction: str, frame: Frame) -> Iterator[str]:
    """Yield lines `offset  hex  field` of a frame. Offsets count from the first byte behind the length field."""
    data, kept = frame.data, len(frame.data)
    for row in _frame_rows(seen, direction, frame):
        if isinstance(row, str):
            yield f"{'':>8}  {BLANK}  {row}"
        else:
            yield from _byte_lines(row, data)
    missing = frame.size - 4 - kept
    if frame.withheld and missing:
        yield f"{kept:>8}  {missing} bytes withheld: {frame.withheld}"
    elif missing:
        yield f"{kept:>8}  {missing} bytes were not kept"
    elif frame.withheld:
        yield f"{'':>8}  overwritten with *: {frame.withheld}"


def _frame_rows(seen: ObservedExchange, direction: str, frame: Frame) -> Iterator[Row | str]:
    """Yield the rows of a frame as far as it can be read, and then a line that tells why it cannot be read further."""
    if frame.form is Form.NONE:
        return
    try:
        api = find(seen.key)
        version = seen.version if direction == "request" else answered_version(api, seen, frame)
        yield from rows(api, version, direction, frame.data, brief)
    except (DecodeError, KeyError) as error:
        if frame.form is Form.WHOLE:
            yield f"it cannot be read further: {error.args[0]}"


def brief(step: TraceStep) -> str:
    """Return a value's text beside its bytes: errors and APIs with their names, of bytes only how many there are."""
    if isinstance(step.value, bytes | memoryview) and (step.slot is None or step.slot.kind not in SECRET_KINDS):
        return "empty" if not step.value else f"{len(step.value)} bytes"
    text = shown(step, secrets=False)
    if step.slot is not None and step.what == "value":
        if step.slot.kind == "error_code" and step.value in numbers():
            return f"{text} {numbers()[step.value].name}"
        if step.slot.name == "request_api_key" and step.value in paths():
            return f"{text} {load(step.value).name}"
    return text


def answered_version(api: Api, seen: ObservedExchange, frame: Frame) -> int:
    """Return the version of a response, which may be lower than the request's for ApiVersions (KIP-511)."""
    try:
        return decode_response(frame.data, api.key, seen.version, trailing=True).version
    except DecodeError:
        return seen.version


def _byte_lines(row: Row, data: bytes) -> Iterator[str]:
    if row.end is None:
        yield f"{row.start:>8}  {BLANK}  {'  ' * row.depth}{row.text}"
        return
    seen = data[row.start : min(row.end, row.start + ACROSS * MOST_LINES)]
    for at in range(0, max(len(seen), 1), ACROSS):
        text = f"{'  ' * row.depth}{row.text}" if not at else ""
        yield f"{row.start + at:>8}  {seen[at : at + ACROSS].hex(' '):{len(BLANK)}}  {text}".rstrip()
    if row.end - row.start > len(seen):
        yield f"{'':>8}  … {row.end - row.start - len(seen)} more"


MOST_SHOWN = 60
"""Characters of a key or a value in a line."""


def record_lines(field: RecordsField, most: int) -> Iterator[str]:
    """Yield the lines of one partition's batches, and of the first `most` of its records."""
    yield f"{in_line(field.topic)}[{field.partition}]: {len(field.data)} bytes of records"
    left = most
    try:
        for entry in entries(field.data):
            yield f"  {header_line(entry)}"
            if isinstance(entry, Cut):
                continue
            count = 0
            try:
                for record in decode(entry, MOST_BYTES):
                    count += 1
                    if left:
                        left -= 1
                        yield f"    {record_line(record)}"
                if not left and count > most:
                    yield f"    … {most} of {count} records shown"
            except RecordsError as error:
                yield f"    cannot be read: {error}"
    except RecordsError as error:
        yield f"  cannot be read further: {error}"


def header_line(entry: Entry) -> str:
    """Return a batch's header in words: offsets, number of records, codec, producer, checksum."""
    if isinstance(entry, Cut):
        return f"the beginning of a batch, {len(entry.raw)} bytes; brokers cut the last one off (KIP-74)"
    codec = CODECS.get(entry.codec, f"codec {entry.codec}")
    if isinstance(entry, LegacyEntry):
        return f"message at offset {entry.offset}, magic {entry.magic}, {codec}, {_crc(entry)}"
    said = [f"batch at offset {entry.base_offset} to {entry.last_offset}", f"{entry.count} records", codec]
    if entry.producer_id >= 0:
        said.append(f"producer {entry.producer_id} epoch {entry.producer_epoch} sequence {entry.base_sequence}")
    said += ["transactional"] if entry.is_transactional else []
    said += ["control"] if entry.is_control else []
    return ", ".join((*said, f"leader epoch {entry.partition_leader_epoch}", _crc(entry)))


def _crc(entry: Batch | LegacyEntry) -> str:
    try:
        check_crc(entry)
    except RecordsError as error:
        return str(error).partition(": ")[2]
    return "crc right"


def record_line(record: Record) -> str:
    """Return a record in a line: offset, time, key, value, headers."""
    headers = " ".join(f"{in_line(name)}={key_or_value(value)}" for name, value in record.headers)
    when = "-" if record.timestamp < 0 else moment(record.timestamp)
    return f"{record.offset:>6}  {when}  {key_or_value(record.key)}  {key_or_value(record.value)}  {headers}".rstrip()


def moment(milliseconds: int) -> str:
    """Return a timestamp (milliseconds since 1970) in UTC; the number itself if it is beyond the calendar."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def key_or_value(data: bytes | None) -> str:
    """Return a key or value, cut if it is long: UTF-8 text in quotes, other bytes in hex, `null` for None."""
    if data is None:
        return "null"
    if is_utf8(data):
        text = data.decode()
        cut = f"{text[:MOST_SHOWN]}…" if len(text) > MOST_SHOWN else text
        return json.dumps(cut, ensure_ascii=False)
    cut = data[: MOST_SHOWN // 3].hex(" ")
    return f"{len(data)} bytes: {cut}{' …' if len(data) > MOST_SHOWN // 3 else ''}"
