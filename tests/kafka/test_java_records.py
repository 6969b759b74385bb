"""Records of every magic and codec against Kafka's own code: each reads what the other writes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kproxy.protocol.records import (
    Control,
    Cut,
    Producer,
    Record,
    check_crc,
    decode,
    decode_control,
    encode_batch,
    encode_control,
    encode_message_set,
    entries,
    rewrite,
)
from tests.support.java_program import JavaProgram

pytestmark = pytest.mark.timeout(120, func_only=True)  # the first run fetches jars
START = 1700000000000
CODECS = {0: range(4), 1: range(4), 2: range(5)}


def rows(records: list[Record]) -> list[list[Any]]:
    """Records as the Java program shows them."""

    def hexed(data: bytes | None) -> str | None:
        return None if data is None else data.hex()

    return [
        [r.offset, r.timestamp, hexed(r.key), hexed(r.value), [[key, hexed(value)] for key, value in r.headers]]
        for r in records
    ]


def read(data: bytes) -> list[Record]:
    found = []
    for entry in entries(data):
        assert not isinstance(entry, Cut)
        check_crc(entry)
        found += list(decode(entry))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_what_java_writes(java_records: JavaProgram, seed: int) -> None:
    """Java's batches and message sets of every magic, codec and kind of timestamp give Java's records."""
    sets = java_records("sets", seed=seed)

    assert {(magic, codec) for magic, codec, _, _ in sets} == {(m, c) for m, codecs in CODECS.items() for c in codecs}
    for _, _, data, expected in sets:
        assert expected == rows(read(bytes.fromhex(data)))


@pytest.mark.parametrize("seed", range(4))
def test_what_java_writes_rewritten(java_records: JavaProgram, seed: int) -> None:
    """Taken apart and put together again, Java's sets are still the same to Java; uncompressed ones to the byte."""
    for _, codec, data, expected in java_records("sets", seed=seed):
        raw = bytes.fromhex(data)
        again = b""
        for entry in entries(raw):
            assert not isinstance(entry, Cut)
            again += rewrite(entry, list(decode(entry, stored=True)))

        assert codec or raw == again
        assert expected == java_records("records", bytes=again.hex())


@pytest.mark.parametrize(("magic", "codec"), [(magic, codec) for magic, codecs in CODECS.items() for codec in codecs])
def test_what_java_reads(java_records: JavaProgram, magic: int, codec: int) -> None:
    """Java finds every crc right and reads the records that were written; lz4 blocks and the odd checksum included."""
    chance = random.Random(codec)
    records = [
        Record(
            100 + i,
            START - i if magic else -1,
            None if i % 3 else chance.randbytes(9),
            bytes(chance.choice((0, 100))) if i % 5 else chance.randbytes(150_000),
            (("h", b"1"), ("h", None)) if magic == 2 and i % 2 else (),
        )
        for i in range(12)
    ]
    data = encode_batch(records, codec=codec) if magic == 2 else encode_message_set(records, magic, codec=codec)

    assert rows(records) == java_records("records", bytes=data.hex())


def test_times_at_both_ends(java_records: JavaProgram) -> None:
    """Java agrees on times whose difference does not fit 64 bits."""
    records = [Record(0, -(2**62) - 5, None, None), Record(1, 2**62 + 5, None, None)]

    assert rows(records) == java_records("records", bytes=encode_batch(records).hex())


def test_log_append_time(java_records: JavaProgram) -> None:
    records = [Record(i, START + i, None, b"v") for i in range(3)]
    for data in (
        encode_batch(records, log_append_time=START + 99),
        encode_message_set(records, 1, log_append_time=START + 99),
        encode_message_set(records, 1, codec=1, log_append_time=START + 99),
    ):
        assert rows(read(data)) == java_records("records", bytes=data.hex())
        assert {START + 99} == {record.timestamp for record in read(data)}


CONTROLS = [
    (Control(0, {"coordinator_epoch": 7}), ["ABORT", 7]),
    (Control(1, {"coordinator_epoch": -1}), ["COMMIT", -1]),
    (
        Control(2, {"version": 0, "leader_id": 3, "voters": [{"voter_id": 3}, {"voter_id": 4}], "granting_voters": []}),
        ["LEADER_CHANGE", 3, 3, 4],
    ),
    (Control(3, {"last_contained_log_timestamp": START}), ["SNAPSHOT_HEADER"]),
    (Control(4, {}), ["SNAPSHOT_FOOTER"]),
    (Control(5, {"kraft_version": 1}), ["KRAFT_VERSION"]),
]


@pytest.mark.parametrize(("control", "expected"), CONTROLS, ids=[row[1][0] for row in CONTROLS])
def test_control_records(java_records: JavaProgram, control: Control, expected: list[Any]) -> None:
    """Control batches are control batches to Java, with the same type and fields."""
    record = encode_control(control, 5, START)
    data = encode_batch([record], control=True, producer=Producer(9, 1, transactional=control.type < 2))

    assert [expected] == java_records("control", bytes=data.hex())
    assert control.name == decode_control(record).name
