"""Hostile records: many headers, many batches, and bombs, which are short compressed and long decompressed."""

from __future__ import annotations

import json
from contextlib import suppress
from mmap import mmap
from typing import Any

import cramjam
import pytest
from crc32c import crc32c

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import compression, spans
from kproxy.protocol.records.batch import encode_batch
from kproxy.protocol.records.compression import GZIP, PIECE, SHORT, SNAPPY, ZSTD, decompress
from kproxy.protocol.records.entry import BATCH, read_digest
from kproxy.protocol.records.record import Record, read_record, write_record
from kproxy.rules.kinds import require
from kproxy.tools.rehearse.dialogue import Dialogue
from tests.support.frames import produce
from tests.support.hooks import hooked
from tests.support.line_count import LineCount
from tests.support.pace import within
from tests.support.stretches import IN_BOTH_UNITS, TRIES, Stopwatch, Unit, Watch

LONGEST = {"lines": 15_000, "seconds": 0.050}
KINDS: dict[str, dict[str, Any]] = {
    "set_record": {"value": None},
    "drop_records": {"fraction": 0.5},
    "duplicate_records": {},
    "reorder_records": {},
    "poison_records": {},
    "corrupt_records": {},
    "malformed_batch": {"defect": "negative_count"},
    "require": {"max_record": "1KB"},
}


def with_headers(records: int, headers: int) -> bytes:
    """A batch of so many records that have so many headers each."""
    return encode_batch(
        [Record(n, 1_700_000_000_000, b"k", b"%d" % n, (("h", b""),) * headers) for n in range(records)]
    )


def bomb(count: int) -> bytes:
    """A batch of zstd with so many records without a key or value: a byte for a hundred of them and more."""
    one = write_record(Record(0, 0, None, None), 0, 0)
    made = bytearray(encode_batch([Record(0, 1_700_000_000_000, None, None)], codec=ZSTD)[: BATCH.size])
    made += bytes(cramjam.zstd.compress(one * count, 3))
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    made[57:61] = count.to_bytes(4, "big")
    made[17:21] = crc32c(bytes(made[21:])).to_bytes(4, "big")
    return bytes(made)


HOSTILE = {
    "a record of many headers": with_headers(1, 99_999),
    "some headers in each of many records": with_headers(2_000, 31),
    "many batches": with_headers(1, 0) * 5_000,
}


def dialogue(kind: str) -> Dialogue:
    rule = {"name": "a", "kind": kind, **KINDS[kind]}
    return Dialogue(json.dumps({"rules": [rule if kind == "require" else rule | {"at": "produce"}]}))


@IN_BOTH_UNITS
@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("kind", KINDS)
def test_rule_with_hostile_records_yields(kind: str, what: str, unit: Unit) -> None:
    frame = produce(1, "t", records=HOSTILE[what], acks=1)

    def work(watch: Watch) -> None:
        talk = dialogue(kind)
        with watch:
            talk.client(frame, 262144)
        assert talk.closed is None

    unit.check(work, LONGEST[unit.name])


@IN_BOTH_UNITS
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.endswith("_records") or kind == "set_record"])
def test_rule_leaves_a_record_bomb_unchanged(kind: str, unit: Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bomb has a kilobyte for each ten thousand records, and would fill the memory. The other batch is changed."""
    monkeypatch.setattr(spans, "MOST_RECORDS", 20_000)
    usual, much = with_headers(10, 1), bomb(40_000)
    assert len(much) < 1000

    def work(watch: Watch) -> None:
        talk = dialogue(kind)
        with watch:
            talk.client(produce(1, "t", records=usual + much, acks=1))
        assert usual not in talk.to_broker
        assert (much in talk.to_broker) == (kind != "corrupt_records")  # it flips bits of compressed bytes

    unit.check(work, LONGEST[unit.name])


def test_what_was_really_sent_is_changed_however_much_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The room grows with the bytes of the frame."""
    monkeypatch.setattr(spans, "MOST_RECORDS", 100)
    batches = b"".join(with_headers(10, 0) for _ in range(100))
    assert b"\x02k\x020" in batches
    talk = dialogue("set_record").client(produce(1, "t", records=batches, acks=1))
    assert b"\x02k\x020" not in talk.to_broker


def test_records_that_are_too_short_to_break_a_rule_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """`require` passes over them by their lengths."""
    made: list[int] = []
    monkeypatch.setattr(require, "read_record", lambda *of: made.append(1) or read_record(*of))
    dialogue("require").client(produce(1, "t", records=bomb(100_000), acks=1))
    assert made == []


PACK = {GZIP: cramjam.gzip.compress, SNAPPY: cramjam.snappy.compress_raw, ZSTD: cramjam.zstd.compress}


def packed(codec: int, size: int, *, spoilt: bool = False) -> bytes:
    data = bytes(PACK[codec](bytes(size)))
    return data[:-1] + b"xyz" * 9 if spoilt else data


def unpacking(codec: int, data: bytes) -> float:
    """Return the longest stretch of CPU seconds in the loop while a thread decompresses `data`, the best of `TRIES`."""
    longest = 1.0
    for _ in range(TRIES):
        with Stopwatch() as watch, suppress(RecordsError):
            decompress(codec, data)
        longest = min(longest, watch.longest)
    return longest


TOO_LONG, SPOILT = 101 << 20, 99 << 20
"""Bytes of a bomb, and of data that is wrong at its end. Both fill the whole buffer first."""


@pytest.mark.measured
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, ZSTD])
def test_decompression_in_a_thread_leaves_the_loop_free(codec: int) -> None:
    """To clear a hundred megabytes takes long, and a thread that does it keeps the interpreter to itself."""
    assert within(unpacking(codec, packed(codec, 100 << 20)), 0.025)


@pytest.mark.measured
@pytest.mark.parametrize("size", [TOO_LONG, SPOILT])
@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_buffer_of_a_failed_decompression_is_freed_fast(codec: int, size: int) -> None:
    assert within(unpacking(codec, packed(codec, size, spoilt=size == SPOILT)), 0.010)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, ZSTD])
def test_long_buffer_is_pages_that_a_thread_fills(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel clears a page at its first use, and only short data is decompressed in the loop."""
    data, buffers, threads = packed(codec, 100 << 20), list[Any](), list[int]()
    room = compression.room
    monkeypatch.setattr(compression, "room", lambda size: buffers.append(room(size)) or buffers[-1])

    def apart(work: Any) -> Any:
        threads.append(len(buffers[-1]))
        return work()

    with hooked(lambda: None, apart):
        assert len(decompress(codec, data)) == 100 << 20
    long = [one for one in buffers if len(one) > SHORT]
    assert long and all(isinstance(one, mmap) for one in long)
    assert threads == [len(one) for one in long]


@pytest.mark.parametrize("size", [TOO_LONG, SPOILT])
@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_buffer_of_a_failed_decompression_is_freed_in_pieces(
    codec: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[int | None] = []
    monkeypatch.setattr(compression, "free_pages", lambda buffer, start, size: log.append(size))
    with hooked(lambda: log.append(None)), pytest.raises(RecordsError):
        decompress(codec, packed(codec, size, spoilt=size == SPOILT))
    assert log[1::2] == [None] * (len(log) // 2), "a yield follows each piece"
    pieces = [one for one in log[::2] if one is not None]
    assert max(pieces) <= PIECE
    assert sum(pieces) >= 99 << 20


def test_digest_of_many_batches_yields() -> None:
    field = with_headers(1, 0) * 10_000
    with LineCount(fine=True) as count:
        found, end = read_digest(field, 0, len(field))
    assert (found.batches, end) == (10_000, len(field))
    assert count.longest <= 2000
