"""Entries of a `records` field: found by their headers, kept byte for byte."""

from __future__ import annotations

import random
from struct import Struct

import pytest

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import (
    Batch,
    Cut,
    LegacyEntry,
    Producer,
    Record,
    check_crc,
    encode_batch,
    encode_message_set,
    entries,
)
from kproxy.protocol.records.entry import BATCH as HEADER
from kproxy.protocol.records.entry import BATCH_HEADER, batch_at, batch_fields

RECORDS = [Record(7 + i, 1700000000000 + i, b"k%d" % i, b"value %d" % i) for i in range(3)]
BATCH = encode_batch(RECORDS, codec=1, partition_leader_epoch=4, producer=Producer(9, 2, 5, True))
V0 = encode_message_set(RECORDS, 0)
V1 = encode_message_set(RECORDS, 1, codec=2)
MIXED = V0 + BATCH + V1 + BATCH


def test_a_field_of_all_magics() -> None:
    """Batches and messages of magic 0, 1 and 2 may stand in one field; their bytes joined are the field again."""
    found = list(entries(MIXED))

    assert [0, 0, 0, 2, 1, 2] == [entry.magic for entry in found if not isinstance(entry, Cut)]
    assert MIXED == b"".join(entry.raw for entry in found)


def test_the_header_of_a_batch() -> None:
    """All numbers of a batch are there without decompressing it."""
    (batch,) = entries(BATCH)

    assert isinstance(batch, Batch)
    assert (7, len(BATCH) - 12, 4, 2) == (batch.base_offset, batch.length, batch.partition_leader_epoch, batch.magic)
    assert (1, True, False, False) == (batch.codec, batch.is_transactional, batch.is_control, batch.is_log_append_time)
    assert (2, 9, 3) == (batch.last_offset_delta, batch.last_offset, batch.count)
    assert (1700000000000, 1700000000002) == (batch.base_timestamp, batch.max_timestamp)
    assert (9, 2, 5) == (batch.producer_id, batch.producer_epoch, batch.base_sequence)


def test_the_header_of_messages() -> None:
    """Magic 0 has no timestamp, a wrapper of magic 1 has the largest of those in it and the last offset."""
    first, *_ = entries(V0)
    (wrapper,) = entries(V1)

    assert isinstance(first, LegacyEntry)
    assert isinstance(wrapper, LegacyEntry)
    assert (7, -1, 0) == (first.offset, first.timestamp, first.codec)
    assert (9, 1700000000002, 2) == (wrapper.offset, wrapper.timestamp, wrapper.codec)


def test_null_and_empty() -> None:
    assert [] == list(entries(None))
    assert [] == list(entries(b""))


def test_cut_at_every_byte() -> None:
    """Wherever a field is cut, the whole entries are found, the rest is one cut entry, and nothing is lost."""
    ends = {0}
    for entry in entries(MIXED):
        ends.add(max(ends) + len(entry.raw))
    for length in range(len(MIXED)):
        found = list(entries(memoryview(MIXED)[:length]))

        assert MIXED[:length] == b"".join(entry.raw for entry in found)
        assert (length not in ends) == any(isinstance(entry, Cut) for entry in found)
        assert all(isinstance(entry, Batch | LegacyEntry) for entry in found[:-1])


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("change", [-1, 1, 0x7FFFFFFF, -0x80000000, 0])
def test_a_bad_length(magic: int, change: int) -> None:
    """A length too small for its magic is an error with both numbers; one that is too large makes a cut entry."""
    shortest = {0: 14, 1: 22, 2: 49}[magic]
    length = max(-0x80000000, shortest - 1) if change < 1 else change
    data = bytes(8) + length.to_bytes(4, "big", signed=True) + bytes((0, 0, 0, 0, magic)) + bytes(44)

    if length < shortest:
        with pytest.raises(RecordsError, match=rf"length {length}, expected at least {shortest} with magic {magic}"):
            list(entries(data))
    else:
        assert [Cut(memoryview(data))] == list(entries(data))


def test_an_unknown_magic() -> None:
    """The magic is named with the byte at which its entry begins."""
    data = BATCH + BATCH[:16] + b"\x03" + BATCH[17:]

    with pytest.raises(RecordsError, match=rf"byte {len(BATCH)}: magic 3, expected 0, 1 or 2"):
        list(entries(data))


@pytest.mark.parametrize("data", [BATCH, V0, V1], ids=["batch", "magic 0", "magic 1"])
def test_a_changed_bit_is_noticed(data: bytes) -> None:
    """A checksum covers all bytes behind it, and none of offset and leader epoch."""
    chance = random.Random(1)
    first = next(iter(entries(data)))
    assert not isinstance(first, Cut)
    check_crc(first)
    covered = 17 if first.magic == 2 else 12
    for position in chance.sample(range(covered, len(first.raw)), 20):
        changed = bytearray(first.raw)
        changed[position] ^= 1 << chance.randrange(8)
        for entry in entries(changed) if position != 16 else ():
            assert not isinstance(entry, Cut)
            with pytest.raises(RecordsError, match=r"crc [0-9a-f]{8}, expected [0-9a-f]{8}"):
                check_crc(entry)
    moved = (12345).to_bytes(8, "big") + bytes(first.raw[8:])
    check_crc(next(e for e in entries(moved) if not isinstance(e, Cut)))


def test_formats_of_parts_of_a_header_read_what_the_whole_does() -> None:
    """For any fields, in the header's order."""
    data = bytes(range(1, 1 + HEADER.size))
    whole = dict(zip(BATCH_HEADER, HEADER.unpack(data), strict=True))
    for first in BATCH_HEADER:
        for second in BATCH_HEADER:
            wanted = [name for name in BATCH_HEADER if name in (first, second)]
            assert Struct(f">{batch_fields(first, second)}").unpack_from(data) == tuple(map(whole.get, wanted))
        assert Struct(f">{BATCH_HEADER[first]}").unpack_from(data, batch_at(first)) == (whole[first],)
