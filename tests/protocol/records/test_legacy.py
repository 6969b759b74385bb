"""Message sets of magic 0 and 1: an old document's frame, the builders of Python clients, wrappers, damage."""

from __future__ import annotations

import dataclasses
import random

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch as AiokafkaBatch
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch as KafkaPythonBatch
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import LegacyEntry, Record, check_crc, decode, encode_message_set, entries, rewrite
from kproxy.protocol.records.batch import write_message
from kproxy.protocol.records.compression import compress
from kproxy.protocol.records.entry import LOG_APPEND_TIME
from tests.protocol.records.test_record import RECORDS as ANY

# The message set of a Produce v0 request, from a guide of the 0.8 era: value "hello world", no key
HELLO = bytes.fromhex("0000000000000000 00000019 73acf77c 00 00 ffffffff 0000000b 68656c6c6f20776f726c64")
START = 1700000000000


def records_of(magic: int, base: int = 0, count: int = 12) -> list[Record]:
    return [
        Record(base + i, START + i if magic else -1, b"key %d" % i if i % 3 else None, b"v" * i if i % 5 else None)
        for i in range(count)
    ]


def whole(data: bytes, stored: bool = False) -> list[Record]:
    found = []
    for entry in entries(data):
        assert isinstance(entry, LegacyEntry)
        check_crc(entry)
        found += [dataclasses.replace(r, attributes=0) for r in decode(entry, stored=stored)]
    return found


def wrapper_of(data: bytes) -> LegacyEntry:
    (entry,) = entries(data)
    assert isinstance(entry, LegacyEntry)
    return entry


def test_the_oldest_message() -> None:
    """The message that an old guide prints is read, its crc holds, and it is written again to the byte."""
    assert [Record(0, -1, None, b"hello world")] == whole(HELLO)
    assert HELLO == encode_message_set(whole(HELLO), 0)


@settings(deadline=None, max_examples=60)
@given(st.lists(ANY, max_size=5), st.integers(0, 3), st.integers(0, 1), st.integers(1, 2**40))
def test_there_and_back(records: list[Record], codec: int, magic: int, base: int) -> None:
    """Any records without headers come back equal from a set of either magic and any codec, under crcs that hold."""
    plain = [
        Record(base + i, record.timestamp if magic else -1, record.key, record.value)
        for i, record in enumerate(records)
    ]

    assert plain == whole(encode_message_set(plain, magic, codec=codec))


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("magic", [0, 1])
def test_sets_of_other_clients_are_read(magic: int, codec: int) -> None:
    """What the builders of two clients make is decoded to the same records; uncompressed, it is written again equal."""
    for builder in (AiokafkaBuilder, KafkaPythonBuilder):
        if (codec == 2 and builder is KafkaPythonBuilder) or (codec == 3 and not magic):
            continue  # no snappy in one; neither makes lz4 of magic 0 without a further package
        made = builder(magic, codec, 1 << 20)
        expected = records_of(magic)
        for record in expected:
            made.append(record.offset, record.timestamp, record.key, record.value)
        data = bytes(made.build())
        if codec and magic:  # a producer leaves the wrapper's offset at 0, the broker sets it to the last
            data = (11).to_bytes(8, "big") + data[8:]

        assert expected == whole(data)
        if not codec:
            assert data == encode_message_set(expected, magic)


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("magic", [0, 1])
def test_other_clients_read_what_is_written(magic: int, codec: int) -> None:
    """The parsers of two clients give the records back and find the crc right."""
    expected = records_of(magic, base=100)
    data = encode_message_set(expected, magic, codec=codec)
    for reader in (AiokafkaBatch, KafkaPythonBatch):
        if (codec == 2 and reader is KafkaPythonBatch) or (codec == 3 and not magic):
            continue
        found = []
        for entry in entries(data):
            batch = reader(bytearray(entry.raw), magic)
            assert batch.validate_crc()
            found += [Record(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value) for r in batch]

        assert expected == found


def test_relative_offsets() -> None:
    """Inside a wrapper of magic 1 offsets are relative to the last; a broker moves the set by the wrapper alone."""
    data = encode_message_set(records_of(1, base=500), 1, codec=1)
    moved = (1011).to_bytes(8, "big") + data[8:]

    assert 511 == wrapper_of(data).offset
    assert list(range(1000, 1012)) == [record.offset for record in whole(moved)]


def test_a_wrapper_at_offset_0() -> None:
    """Old producers leave the wrapper's offset at 0: then the inner offsets are taken as they are."""
    data = bytes(8) + encode_message_set(records_of(1, base=500), 1, codec=1)[8:]

    assert list(range(12)) == [record.offset for record in whole(data)]


def test_log_append_time() -> None:
    """The wrapper's time stands for all of them; the stored times survive a rewrite."""
    data = encode_message_set(records_of(1), 1, codec=3, log_append_time=START + 999)
    entry = wrapper_of(data)
    stored = list(decode(entry, stored=True))

    assert entry.attributes & LOG_APPEND_TIME
    assert {START + 999} == {record.timestamp for record in whole(data)}
    assert records_of(1) == stored
    assert data == rewrite(entry, stored)
    plain = encode_message_set(records_of(1), 1, log_append_time=START + 999)
    assert {START + 999} == {record.timestamp for record in whole(plain)}


def test_rewriting_one_message() -> None:
    """A plain message keeps its offset, magic and time while its value changes."""
    entry, *_ = entries(encode_message_set(records_of(1, base=3), 1))
    assert isinstance(entry, LegacyEntry)
    (record,) = decode(entry)
    (again,) = whole(rewrite(entry, [dataclasses.replace(record, value=b"new")]))

    assert Record(3, START, None, b"new") == again
    assert b"" == rewrite(entry, [])


def test_what_old_formats_lack() -> None:
    """Headers, zstd, magic 2 and numbers that do not fit are refused."""
    with pytest.raises(RecordsError, match="1 headers, magic 1 has none"):
        encode_message_set([Record(0, 0, None, None, (("a", None),))], 1)
    with pytest.raises(RecordsError, match="zstd"):
        encode_message_set(records_of(1), 1, codec=4)
    with pytest.raises(RecordsError, match="magic 2, expected 0 or 1"):
        encode_message_set(records_of(1), 2)
    with pytest.raises(RecordsError, match="message at offset 9223372036854775808"):
        encode_message_set([Record(2**63, 0, None, None)], 1)
    with pytest.raises(RecordsError, match="message at offset 0"):
        encode_message_set([Record(0, 2**63, None, None)], 1)


INNER = encode_message_set(records_of(1), 1)
BAD = {
    "null value": (None, "its value is null"),
    "nothing inside": (compress(1, b""), "no message in it"),
    "another magic inside": (compress(1, HELLO), "legacyentry in it, expected plain magic 1"),
    "a cut message inside": (compress(1, INNER[:-1]), "cut in it"),
    "a wrapper inside": (compress(1, encode_message_set(records_of(1), 1, codec=1)), "expected plain magic 1"),
    "offsets above the wrapper's": (compress(1, encode_message_set(records_of(1, base=9), 1)), "relative offset 20"),
    "no gzip": (b"plain text", "bad gzip data of 10 bytes"),
}


@pytest.mark.parametrize(("value", "message"), BAD.values(), ids=BAD)
def test_bad_wrappers(value: bytes | None, message: str) -> None:
    """Each way for a wrapper to be wrong has its message."""
    entry = wrapper_of(write_message(11, 1, 1, START, None, value))

    with pytest.raises(RecordsError, match=message):
        list(decode(entry))


def test_a_bomb() -> None:
    """A wrapper that decompresses to more than the limit is refused."""
    entry = wrapper_of(encode_message_set([Record(0, 0, None, bytes(1 << 22))], 1, codec=3))

    with pytest.raises(RecordsError, match="longer than 1048576 bytes"):
        list(decode(entry, limit=1 << 20))


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("magic", [0, 1])
def test_damage(magic: int, codec: int) -> None:
    """Cut at any byte or changed at random, a set gives records or RecordsError, nothing else."""
    data = encode_message_set(records_of(magic), magic, codec=codec)
    first = len(next(iter(entries(data))).raw)
    chance = random.Random(codec)
    for length in range(26 if magic else 18, first):
        resized = data[:8] + (length - 12).to_bytes(4, "big") + data[12:length]
        with pytest.raises(RecordsError):
            _ = [list(decode(entry)) for entry in entries(resized)]
    for _ in range(500):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            for entry in entries(changed):
                list(decode(entry, limit=1 << 20))
        except RecordsError:
            continue
