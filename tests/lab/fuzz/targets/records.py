"""The bytes of `records` fields: entries, records, compression.

- nothing is raised but RecordsError, and what is read of an entry is bounded by the limit that was given
- entries are the field: their bytes follow each other and leave nothing out
- a digest counts the whole entries that there are
- an entry rewritten with its own records has the same records
- whatever a codec writes it reads; what it reads is never longer than the limit
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import (
    Batch,
    Cut,
    Record,
    check_crc,
    compression,
    decode,
    decode_control,
    encode_batch,
    encode_message_set,
    entries,
    rewrite,
)
from kproxy.protocol.records.entry import crc_of, read_digest
from tests.lab.fuzz.feed import Feed

LIMIT = 1 << 16
MOST = 3000
"""Records looked at of an entry."""


def check(data: bytes) -> None:
    """One input."""
    feed = Feed(data)
    (field, packed, unpacked, inner)[feed.below(4)](feed)


def field(feed: Feed) -> None:
    """A whole field as it is."""
    look(feed.rest())


def inner(feed: Feed) -> None:
    look(valid_outside(feed))


def valid_outside(feed: Feed) -> bytes:
    """Batch with a valid header, length and checksum."""
    codec, count = feed.below(5), feed.below(2000)
    made = bytearray(encode_batch([Record(0, 0, None, b"v")], base_offset=feed.below(70000)))
    payload = feed.rest()
    made[61:] = compression.compress(codec, payload) if feed.data[0] & 4 else payload
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    made[21:23] = (codec | feed.data[0] & 0x38).to_bytes(2, "big")
    made[57:61] = count.to_bytes(4, "big")
    made[17:21] = crc_of(made, 2).to_bytes(4, "big")
    return bytes(made)


def look(data: bytes) -> None:
    read_digest_of(data)
    found, size = [], 0
    try:
        for entry in entries(data):
            found.append(entry)
            size += len(entry.raw)
    except RecordsError:
        pass
    else:
        assert size == len(data)
    assert b"".join(entry.raw for entry in found) == data[:size]
    for entry in islice(found, 20):
        if isinstance(entry, Cut):
            assert entry is found[-1]
            continue
        with suppress(RecordsError):
            check_crc(entry)
        one(entry)


def read_digest_of(data: bytes) -> None:
    digest, end = read_digest(data, 0, len(data))
    assert end == len(data)
    assert digest.size == len(data)


def one(entry: Batch) -> None:
    try:
        records = list(islice(decode(entry, LIMIT, stored=True), MOST))
    except RecordsError:
        return
    assert sum(len(record.key or b"") + len(record.value or b"") for record in records) <= max(LIMIT, len(entry.raw))
    if isinstance(entry, Batch) and entry.is_control:
        for record in records:
            try:
                decode_control(record)
            except RecordsError:
                continue
        return
    if len(records) == MOST:
        return
    try:
        (again,) = entries(rewrite(entry, records))
    except (RecordsError, ValueError) as problem:
        assert isinstance(problem, RecordsError) or not records, problem
        return
    assert list(map(plain, decode(again, LIMIT * 2, stored=True))) == list(map(plain, records))
    check_crc(again)


def plain(record: Record) -> Record:
    """Without the bits that say how a set is written, which a message of magic 0 may have by mistake."""
    return replace(record, attributes=record.attributes & ~0x0F)


def packed(feed: Feed) -> None:
    """What may be anything, unpacked."""
    codec, magic, limit = feed.below(8), feed.below(3), feed.pick((0, 1, 100, 5000, LIMIT))
    data = feed.rest()
    try:
        out = compression.decompress(codec, data, limit, magic)
    except RecordsError:
        return
    assert codec == compression.NONE or len(out) <= limit


def unpacked(feed: Feed) -> None:
    """Packed and unpacked again."""
    codec, magic = feed.below(5), feed.below(3)
    data = feed.piece() * (1 + feed.byte()) + feed.rest()
    try:
        made = compression.compress(codec, data, magic)
    except RecordsError:
        assert codec == compression.ZSTD and magic < 2
        return
    assert bytes(compression.decompress(codec, made, len(data), magic)) == data
    if codec and data:
        try:
            compression.decompress(codec, made, len(data) - 1, magic)
        except RecordsError as problem:
            assert "longer than" in str(problem)
        else:
            raise AssertionError("more than the limit came out")
    if codec == compression.LZ4:
        as_kafka_had_it = compression.break_lz4_header(made)
        assert compression.break_lz4_header(compression.mend_lz4_header(as_kafka_had_it)) == as_kafka_had_it


def seeds() -> Iterator[bytes]:
    """Inputs to begin with."""
    records = [Record(number, 1000 + number, b"k", b"value" * number, (("h", b"x"),)) for number in range(4)]
    for codec in range(5):
        yield b"\0" + encode_batch(records, codec=codec)
        yield b"\1" + bytes((codec, 2, 3)) + compression.compress(codec, b"some text, some text, some text" * 3)
        yield b"\2" + bytes((codec, 2, 3)) + b"abcdef"
        yield b"\7" + bytes((codec, 0, 4, 0, 0)) + encode_batch(records)[61:]
    plain = [Record(number, 1000, b"k", b"value") for number in range(3)]
    for magic in (0, 1):
        for codec in range(4):
            yield b"\0" + encode_message_set(plain, magic, codec=codec)
    yield b"\0" + encode_batch([Record(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\7")], control=True)


WORDS = [compression.XERIAL_MAGIC, compression.MAGIC_NUMBER, b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x7f\xff\xff\xff"]
