"""Records in lines of text: a line for the header of each batch, then one for each of its records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from kproxy.cli.frame_output import is_utf8
from kproxy.errors import RecordsError
from kproxy.observe.records import MOST_BYTES, RecordsField
from kproxy.terminal import in_line
from kproxy.wire.records import Batch, Cut, Entry, LegacyEntry, Record, check_crc, decode, entries
from kproxy.wire.records.compression import CODECS

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
    headers = " ".join(f"{in_line(name)}={shown(value)}" for name, value in record.headers)
    when = "-" if record.timestamp < 0 else moment(record.timestamp)
    return f"{record.offset:>6}  {when}  {shown(record.key)}  {shown(record.value)}  {headers}".rstrip()


def moment(milliseconds: int) -> str:
    """Return a timestamp (milliseconds since 1970) in UTC; the number itself if it is beyond the calendar."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def shown(data: bytes | None) -> str:
    """Return a key or value, cut if it is long: UTF-8 text in quotes, other bytes in hex, `null` for None."""
    if data is None:
        return "null"
    if is_utf8(data):
        text = data.decode()
        cut = f"{text[:MOST_SHOWN]}…" if len(text) > MOST_SHOWN else text
        return json.dumps(cut, ensure_ascii=False)
    cut = data[: MOST_SHOWN // 3].hex(" ")
    return f"{len(data)} bytes: {cut}{' …' if len(data) > MOST_SHOWN // 3 else ''}"
