"""Records that are made to keep a proxy busy or to fill it: many headers, many batches, and much out of little."""

from __future__ import annotations

import json
from contextlib import suppress
from time import thread_time
from typing import Any

import cramjam
import pytest
from crc32c import crc32c

from kproxy.errors import RecordsError
from kproxy.rules import records as bodies
from kproxy.rules.kinds.base import batch_checks
from kproxy.testing.dialogue import Dialogue
from kproxy.wire import breath
from kproxy.wire.records.batch import encode_batch
from kproxy.wire.records.compression import GZIP, SNAPPY, ZSTD, decompress
from kproxy.wire.records.digest import read_digest
from kproxy.wire.records.entry import BATCH
from kproxy.wire.records.record import Record, read_record, write_record
from tests.support.frames import produce
from tests.support.pace import within
from tests.support.stretches import Stopwatch

LONGEST = 0.050
TRIES = 4
KINDS: dict[str, dict[str, Any]] = {
    "set_record": {"value": None},
    "drop_records": {"fraction": 0.5},
    "duplicate_records": {},
    "reorder_records": {},
    "poison_records": {},
    "corrupt_records": {},
    "malformed_batch": {"how": "negative_count"},
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


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("kind", KINDS)
def test_no_stretch_is_long(kind: str, what: str) -> None:
    """Wherever a rule looks into records, there are places at which others may run."""
    frame, found = produce(1, "t", records=HOSTILE[what], acks=1), 1.0
    for _ in range(TRIES):
        talk, watch = dialogue(kind), Stopwatch()
        with watch:
            talk.client(frame, 262144)
        assert talk.closed is None
        found = min(found, watch.longest)
        if found <= LONGEST:
            break
    assert within(found, LONGEST), f"{found * 1000:.0f} ms in one go"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.endswith("_records") or kind == "set_record"])
def test_a_little_that_stands_for_much_is_left_as_it_is(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill the memory: a kilobyte for each ten thousand records. Beside it, what is sent is changed."""
    monkeypatch.setattr(bodies, "MOST_RECORDS", 20_000)
    usual, much = with_headers(10, 1), bomb(40_000)
    assert len(much) < 1000
    talk, watch = dialogue(kind), Stopwatch()
    with watch:
        talk.client(produce(1, "t", records=usual + much, acks=1))
    assert within(watch.longest, LONGEST)
    assert usual not in talk.to_broker
    assert (much in talk.to_broker) == (kind != "corrupt_records")  # it flips bits as they stand there


def test_what_was_really_sent_is_changed_however_much_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The room grows with the bytes of the frame."""
    monkeypatch.setattr(bodies, "MOST_RECORDS", 100)
    batches = b"".join(with_headers(10, 0) for _ in range(100))
    assert b"\x02k\x020" in batches
    talk = dialogue("set_record").client(produce(1, "t", records=batches, acks=1))
    assert b"\x02k\x020" not in talk.to_broker


def test_records_that_are_too_short_to_break_a_rule_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """`require` passes over them by their lengths."""
    made: list[int] = []
    monkeypatch.setattr(batch_checks, "read_record", lambda *of: made.append(1) or read_record(*of))
    dialogue("require").client(produce(1, "t", records=bomb(100_000), acks=1))
    assert made == []


PACK = {GZIP: cramjam.gzip.compress, SNAPPY: cramjam.snappy.compress_raw, ZSTD: cramjam.zstd.compress}


def unpacking(codec: int, data: bytes) -> float:
    """Return the longest stretch of seconds in the loop, of the best attempt, while this is unpacked in a thread."""
    longest = 1.0
    for _ in range(TRIES):
        watch = Stopwatch()

        def apart(work: Any, watch: Stopwatch = watch) -> Any:
            watch.look()
            try:
                return work()
            finally:
                watch.last = thread_time()  # a thread's time is not the loop's

        with watch:
            breath.use(watch.look, apart)
            with suppress(RecordsError):
                decompress(codec, data)
        longest = min(longest, watch.longest)
    return longest


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, ZSTD])
def test_room_for_what_comes_out_of_a_codec_is_made_at_once(codec: int) -> None:
    """To clear a hundred megabytes takes long, and a thread that does it keeps the interpreter to itself."""
    assert unpacking(codec, bytes(PACK[codec](bytes(100 << 20)))) <= 0.025


@pytest.mark.parametrize("spoilt", ["too long", "bad end"])
@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_room_for_what_cannot_be_unpacked_is_given_back_in_pieces(codec: int, spoilt: str) -> None:
    """Bombs, and data that are wrong behind a hundred megabytes: both fill the whole room first."""
    size = 101 << 20 if spoilt == "too long" else 99 << 20
    data = bytes(PACK[codec](bytes(size)))
    data = data if spoilt == "too long" else data[:-1] + b"xyz" * 9
    with pytest.raises(RecordsError):
        decompress(codec, data)
    assert unpacking(codec, data) <= 0.010


def test_a_digest_of_many_batches_is_made_in_short_steps() -> None:
    """Whoever watches reads all headers, however long a frame is for its records."""
    field = with_headers(1, 0) * 10_000
    with Stopwatch() as watch:
        found, end = read_digest(field, 0, len(field))
    assert (found.batches, end) == (10_000, len(field))
    assert watch.looks > 100
