"""Batches with another producer."""

from __future__ import annotations

from kproxy.protocol.records import (
    Batch,
    Producer,
    Record,
    check_crc,
    decode,
    encode_batch,
    encode_message_set,
    entries,
)
from kproxy.tools.replay.producer_fix import restamped

RECORDS = [Record(number, 1000 + number, b"k", b"v" * 50) for number in range(5)]


def test_the_header_is_written_anew_and_the_records_stay() -> None:
    """Compressed bytes are the same bytes; the checksum is right; it is transactional as before."""
    old = encode_batch(RECORDS, codec=4, producer=Producer(7, 1, 20, transactional=True))
    new = restamped(old, lambda batch: Producer(99, 2, 0))
    (batch,) = entries(new)

    assert isinstance(batch, Batch)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (99, 2, 0)
    assert batch.is_transactional
    check_crc(batch)
    assert list(decode(batch)) == RECORDS
    assert new[61:] == old[61:]


def test_batches_of_nobody_and_old_messages_stay_as_they_are() -> None:
    """Nobody is asked about them, and a cut end is kept."""
    field = encode_batch(RECORDS) + encode_message_set(RECORDS, magic=1) + b"\0" * 9

    assert restamped(field, lambda batch: Producer(1, 1, 1)) == field


def test_a_batch_may_be_left_alone() -> None:
    """None means that."""
    field = encode_batch(RECORDS, producer=Producer(7, 1, 20))

    assert restamped(field, lambda batch: None) == field
