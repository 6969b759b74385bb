"""Batches of magic 2: against the batches of Python clients, rewritten, damaged."""

from __future__ import annotations

import dataclasses
import random
import tracemalloc
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import Batch, Producer, Record, check_crc, decode, encode_batch, entries, rewrite
from kproxy.protocol.records.entry import BATCH, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from tests.protocol.records.test_record import RECORDS as ANY
from tests.support.wait import undisturbed

NAMES = ["none", "gzip", "snappy", "lz4", "zstd"]
START = 1700000000000
RECORDS = [
    Record(i, START + 7 * i % 40, b"key %d" % i if i % 3 else None, b"v" * i if i % 5 else None, (("n", b"%d" % i),))
    for i in range(60)
]
KAFKA_PYTHON_HAS = [0, 1, 3]  # without further packages


def batch_of(data: bytes) -> Batch:
    (entry,) = entries(data)
    assert isinstance(entry, Batch)
    return entry


@settings(deadline=None, max_examples=60)
@given(st.lists(ANY, max_size=6), st.integers(0, 4), st.integers(0, 2**40))
def test_there_and_back(records: list[Record], codec: int, base: int) -> None:
    """Any records come back equal from a batch of any codec, under a crc that holds."""
    records = [dataclasses.replace(record, offset=base + i) for i, record in enumerate(records)]
    batch = batch_of(encode_batch(records, codec=codec))
    check_crc(batch)

    assert records == list(decode(batch))
    assert batch.raw == rewrite(batch, records)


@pytest.mark.parametrize(
    ("builder", "codec"),
    [(AiokafkaBuilder, codec) for codec in range(5)] + [(KafkaPythonBuilder, codec) for codec in KAFKA_PYTHON_HAS],
)
def test_batches_of_other_clients_are_read(builder: type, codec: int) -> None:
    """What a client's builder makes is decoded to the same records, and plain ones are written again equal."""
    made = builder(2, codec, 1, 77, 3, 11, 1 << 20)
    for record in RECORDS:
        made.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = batch_of(bytes(made.build()))
    check_crc(batch)

    assert (codec, 60, 77, 3, 11, True) == (
        *(batch.codec, batch.count, batch.producer_id, batch.producer_epoch, batch.base_sequence),
        batch.is_transactional,
    )
    assert RECORDS == list(decode(batch))
    if not codec:
        assert batch.raw == rewrite(batch, RECORDS)


@pytest.mark.parametrize("codec", range(5), ids=NAMES)
def test_other_clients_read_what_is_written(codec: int) -> None:
    """The parsers of two clients give the records back and find the crc right."""
    data = encode_batch(RECORDS, codec=codec, producer=Producer(5, 1, 0))
    readers = [AiokafkaBatch] + ([KafkaPythonBatch] if codec in KAFKA_PYTHON_HAS else [])
    for reader in readers:
        batch = reader(data)
        assert batch.validate_crc()
        found = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]

        assert RECORDS == found


def test_log_append_time() -> None:
    """A consumer sees the broker's time on all records; the stored times survive a rewrite."""
    batch = batch_of(encode_batch(RECORDS, codec=3, log_append_time=START + 999))

    assert batch.attributes & LOG_APPEND_TIME
    assert {START + 999} == {record.timestamp for record in decode(batch)}
    assert RECORDS == list(decode(batch, stored=True))
    again = batch_of(rewrite(batch, list(decode(batch, stored=True))))
    assert RECORDS == list(decode(again, stored=True))
    assert START + 999 == again.max_timestamp


def test_rewriting_keeps_the_header() -> None:
    """Records may change and go; offsets, sequence, producer and leader epoch stay, count and max timestamp follow."""
    batch = batch_of(encode_batch(RECORDS, codec=4, partition_leader_epoch=6, producer=Producer(5, 1, 100)))
    kept = [dataclasses.replace(record, value=b"changed") for record in RECORDS[10:20]]
    again = batch_of(rewrite(batch, kept))
    check_crc(again)

    assert kept == list(decode(again))
    same = {"count": 10, "max_timestamp": max(record.timestamp for record in kept)}
    expected = dataclasses.replace(batch, **same, length=again.length, crc=again.crc, raw=again.raw)
    assert expected == again


def test_times_at_both_ends() -> None:
    """Times further apart than 63 bits can say come back all the same: the delta wraps around, as in Java."""
    records = [Record(0, -(2**63), None, None), Record(1, 2**63 - 1, None, None)]

    assert records == list(decode(batch_of(encode_batch(records))))


BITS = {"plain": 0, "log append time": LOG_APPEND_TIME, "transaction": TRANSACTIONAL, "delete horizon": DELETE_HORIZON}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("codec", range(5), ids=NAMES)
def test_a_batch_of_which_no_record_is_left(codec: int, bits: str) -> None:
    """It is what compaction leaves (`DefaultRecordBatch.writeEmptyHeader`): offsets, times, producer and sequence stay,
    and neither a codec nor a delete horizon is told of nothing."""
    full = batch_of(encode_batch(RECORDS, codec=codec, base_offset=0, partition_leader_epoch=6,
                                 producer=Producer(5, 1, 100)))  # fmt: skip
    full = dataclasses.replace(full, attributes=full.attributes | BITS[bits])
    again = batch_of(rewrite(full, []))
    check_crc(again)

    assert again.attributes == BITS[bits] & ~DELETE_HORIZON
    kept = ("base_offset", "last_offset", "max_timestamp", "partition_leader_epoch", "producer_id", "producer_epoch",
            "base_sequence")  # fmt: skip
    assert [getattr(again, name) for name in kept] == [getattr(full, name) for name in kept]
    assert (len(again.raw), again.count, again.base_timestamp) == (BATCH.size, 0, full.max_timestamp)
    assert [] == list(decode(again))
    for reader in (AiokafkaBatch, KafkaPythonBatch):
        read = reader(bytes(again.raw))
        assert read.validate_crc()
        assert list(read) == []


@pytest.mark.parametrize("codec", range(5), ids=NAMES)
def test_a_batch_made_without_records(codec: int) -> None:
    """Whoever makes one names no codec in it."""
    assert batch_of(encode_batch([], codec=codec, base_offset=7, last_offset_delta=2)).codec == 0


def test_what_is_not_rewritten() -> None:
    """Control batches, and records whose offset is not the batch's, are refused."""
    control = batch_of(encode_batch(RECORDS[:1], control=True))
    plain = batch_of(encode_batch(RECORDS[:2]))

    with pytest.raises(RecordsError, match="control batch at offset 0"):
        rewrite(control, [])
    with pytest.raises(RecordsError, match="offset 2 outside its batch, 0 to 1"):
        rewrite(plain, RECORDS[:3])


@pytest.mark.parametrize("fields", [{"producer": Producer(1, 40000)}, {"base_offset": 2**63}])
def test_numbers_that_do_not_fit(fields: dict[str, Any]) -> None:
    """A header field that is too large for its place is a RecordsError."""
    with pytest.raises(RecordsError):
        encode_batch([], **fields)


@pytest.mark.parametrize("count", [-1, 0, 59, 61, 2**31 - 1])
def test_a_count_that_is_not_so(count: int) -> None:
    """Count and records must agree; a count of 2³¹−1 allocates nothing."""
    batch = dataclasses.replace(batch_of(encode_batch(RECORDS)), count=count)

    def little_is_allocated() -> None:
        tracemalloc.start()
        if count:
            with pytest.raises(RecordsError):
                list(decode(batch))
        else:
            assert [] == list(decode(batch))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 200_000

    undisturbed(little_is_allocated)  # other threads of the tests allocate, too


def test_a_bomb() -> None:
    """Records that decompress to more than the limit are refused."""
    batch = batch_of(encode_batch([Record(0, 0, None, bytes(1 << 22))], codec=4))

    assert len(batch.raw) < 2000
    with pytest.raises(RecordsError, match="longer than 1048576 bytes"):
        list(decode(batch, limit=1 << 20))


@pytest.mark.parametrize("codec", range(5), ids=NAMES)
def test_damage(codec: int) -> None:
    """A batch whose payload is cut at any byte, or changed at random, gives records or RecordsError, nothing else."""
    data = encode_batch(RECORDS[:12], codec=codec)
    chance = random.Random(codec)
    for length in range(BATCH.size, len(data)):
        resized = data[:8] + (length - 12).to_bytes(4, "big") + data[12:length]
        with pytest.raises(RecordsError):
            list(decode(batch_of(resized)))
    for _ in range(500):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(17, len(changed))] = chance.randrange(256)
        batch = batch_of(bytes(changed))
        try:
            found = list(decode(batch, limit=1 << 20))
        except RecordsError:
            continue
        assert len(found) == batch.count


@pytest.mark.parametrize("codec", [-1, 5, 9])
def test_a_codec_that_there_is_not(codec: int) -> None:
    """It is refused, not cut to the three bits that it has in a batch, where 9 would be gzip."""
    with pytest.raises(RecordsError, match=f"codec {codec} is not known, expected 0 to 4"):
        encode_batch([Record(0, 0, None, b"v")], codec=codec)
