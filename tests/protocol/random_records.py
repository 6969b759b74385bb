"""Random `records` fields, and what their digest has to be, by the reader that looks at everything."""

from __future__ import annotations

from random import Random

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import (
    Batch,
    Cut,
    Entry,
    LegacyEntry,
    Producer,
    Record,
    encode_batch,
    encode_control,
    encode_message_set,
    entries,
)
from kproxy.protocol.records.compression import CODECS
from kproxy.protocol.records.entry import HEADER_FIELDS, MOST_HEADERS, RecordsDigest
from kproxy.protocol.records.record import Control


def some_records(random: Random, first: int) -> list[Record]:
    count = random.randrange(1, 6)
    return [Record(first + i, 1000 + i, None, random.randbytes(random.choice((0, 3, 90)))) for i in range(count)]


def random_entries(random: Random, first: int) -> bytes:
    """One batch, or some messages of the same magic."""
    codec = random.randrange(5)
    match random.randrange(6):
        case 0:
            return encode_message_set(some_records(random, first), random.randrange(2))
        case 1:
            return encode_message_set(some_records(random, first), 1, codec=random.choice((1, 2, 3)))
        case 2:
            marker = Control(random.randrange(2), {"version": 0, "coordinator_epoch": 3})
            control = encode_control(marker, offset=first, timestamp=5)
            return bytes(encode_batch([control], base_offset=first, producer=Producer(9, 1, -1, True), control=True))
        case _:
            producer = random.choice((Producer(), Producer(5, 2, 40, True), Producer(0, 0, 0)))
            return encode_batch(some_records(random, first), codec=codec, producer=producer)


def random_field(random: Random) -> bytes | None:
    """Null, empty, whole, cut, or not what it should be."""
    kind = random.randrange(12)
    if kind == 0:
        return None
    data = b"".join(random_entries(random, 10 * i) for i in range(random.randrange(5)))
    if kind < 4 and data:
        return data[: random.randrange(len(data))]
    if kind == 4:
        return data + random.randbytes(random.randrange(200))
    return data


def plain(entry: Entry) -> bool:
    return isinstance(entry, LegacyEntry) and not entry.codec


def expected(data: bytes | memoryview | None) -> RecordsDigest | None:
    """The digest, made from entries that were read whole."""
    if data is None:
        return None
    found: list[Batch | LegacyEntry] = []
    told = True
    try:
        found.extend(entry for entry in entries(data) if not isinstance(entry, Cut))
    except RecordsError:
        told = False
    told = told and all(plain(one) or (isinstance(one, Batch) and one.count >= 0) for one in found)
    digest = RecordsDigest(len(data), 0, None, "", None, None, None, None, None)
    if told:
        digest.records = sum(one.count * (not one.is_control) if isinstance(one, Batch) else 1 for one in found)
    digest.batches = sum(not (i and plain(one) and plain(found[i - 1])) for i, one in enumerate(found))
    digest.control = sum(isinstance(one, Batch) and one.is_control for one in found)
    headers = [tuple(getattr(one, name) for name in HEADER_FIELDS) for one in found if isinstance(one, Batch)]
    digest.headers = headers[:MOST_HEADERS] or None
    if found:
        first, last = found[0], found[-1]
        digest.codec = CODECS.get(first.codec, "unknown")
        digest.last_offset = last.last_offset if isinstance(last, Batch) else last.offset
        if isinstance(first, LegacyEntry):
            digest.base_offset = None if first.codec else first.offset
        else:
            digest.base_offset, digest.crc, digest.attributes = first.base_offset, first.crc, first.attributes
            digest.transactional = first.is_transactional
            if first.producer_id >= 0:
                digest.producer_id, digest.producer_epoch = first.producer_id, first.producer_epoch
                digest.base_sequence = first.base_sequence
    return digest
