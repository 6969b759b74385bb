"""What can be asked of batches without trusting them."""

from __future__ import annotations

import pytest

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import Batch, Producer, Record, encode_batch, encode_message_set, entries
from kproxy.protocol.records.compression import CODECS
from kproxy.protocol.records.record import size_of
from kproxy.rules.kinds.require import DAMAGED, RecordSizes, codec_name, is_idempotent

ONE = Record(0, 5, b"key", b"v" * 10, (("h", b"12"),))


def batch(*values: bytes, codec: int = 0, producer: int = -1) -> Batch:
    records = [Record(number, 5, None, value) for number, value in enumerate(values)]
    (entry,) = entries(encode_batch(records, codec=codec, producer=Producer(producer, 0, 0)))
    assert isinstance(entry, Batch)
    return entry


@pytest.mark.parametrize("codec", CODECS)
def test_codec_and_producer_are_read_from_the_header(codec: int) -> None:
    """Nothing is decompressed for them."""
    entry = batch(b"x", codec=codec, producer=7)

    assert codec_name(entry) == CODECS[codec]
    assert is_idempotent(entry)
    assert not is_idempotent(batch(b"x", codec=codec))


def test_size_is_what_a_user_has_put_in() -> None:
    """Key, value, header names and values; not what the format adds."""
    assert size_of(ONE) == 3 + 10 + 1 + 2
    assert size_of(Record(0, 0, None, None)) == 0


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_that_is_too_large_is_found(codec: int) -> None:
    """In any codec; many small ones that are large together are none."""
    assert RecordSizes(1000).too_large(batch(b"a" * 1001, codec=codec)) == 1001
    assert RecordSizes(1000).too_large(batch(b"a" * 1000, codec=codec)) == 0
    assert RecordSizes(1000).too_large(batch(*[b"a" * 900] * 50, codec=codec)) == 0
    assert RecordSizes(1000).too_large(batch(*[b"a" * 900] * 50, b"b" * 2000, codec=codec)) == 2000


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2])
def test_old_formats_are_measured_too(magic: int, codec: int) -> None:
    """Message sets, wrapped or not."""
    data = encode_message_set([Record(0, 5 if magic else -1, None, b"a" * 500)], magic=magic, codec=codec)
    (entry,) = entries(data)

    assert RecordSizes(499).too_large(entry) == 500
    assert RecordSizes(500).too_large(entry) == 0


@pytest.mark.parametrize("codec", [1, 3, 4])
@pytest.mark.parametrize("magic", [1, 2])
def test_damaged_bombs_use_up_the_limit(codec: int, magic: int) -> None:
    """Of entries that turn out to be bad a few are tried; then nothing more may come out of any."""
    if magic == 1 and codec == 4:
        codec = 1  # zstd is younger than that
    record = Record(0, 5, None, bytes(100_000))
    whole = encode_batch([record], codec=codec) if magic == 2 else encode_message_set([record], 1, codec=codec)
    (bomb,) = entries(whole[:-9] + b"\xff" * 9)
    sizes = RecordSizes(200_000, left=8 * DAMAGED)

    for _ in range(8):
        with pytest.raises(RecordsError):
            sizes.too_large(bomb)
    assert sizes.left == 0
    assert sizes.too_large(batch(b"a" * 100, codec=codec)) == 200_001


def test_a_bomb_counts_as_too_large() -> None:
    """What would be longer than the limit is not decompressed; the limit is for all entries together."""
    bomb = batch(b"\x00" * 1_000_000, codec=4)
    sizes = RecordSizes(2_000_000, left=1_500_000)

    assert sizes.too_large(bomb) == 0
    assert sizes.too_large(bomb) > 2_000_000
    assert len(bomb.raw) < 1000


def test_what_cannot_be_read_is_not_taken_for_small() -> None:
    """Bad compressed bytes; a cut entry, which brokers do not store, and an empty batch have no record."""
    good = bytearray(encode_batch([ONE], codec=4))
    good[70:] = b"\xff" * (len(good) - 70)
    (bad,) = entries(bytes(good))
    (cut,) = entries(encode_batch([ONE])[:-1])
    (empty,) = entries(encode_batch([]))

    assert [RecordSizes(1).too_large(one) for one in (cut, empty)] == [0, 0]
    with pytest.raises(RecordsError):
        RecordSizes(1).too_large(bad)
