"""Sequence numbers."""

from __future__ import annotations

from kproxy.protocol.records import Batch, Producer, Record, encode_batch, entries
from kproxy.tools.replay.producer_fix import MOST_SEQUENCES, REMEMBERED, ProducerPartition, SequenceNumbers

HERE: ProducerPartition = (7, 0, "orders", 0)


def batch(sequence: int, count: int) -> Batch:
    """A batch of so many records that begins with this sequence number."""
    records = [Record(number, 0, None, b"") for number in range(count)]
    (found,) = entries(encode_batch(records, producer=Producer(7, 0, sequence)))
    assert isinstance(found, Batch)
    return found


def test_numbers_begin_at_zero_and_have_no_gaps() -> None:
    """Also where the recording begins late, or lacks a batch."""
    sequences = SequenceNumbers()

    assert [sequences.number(HERE, batch(*one)) for one in ((40, 5), (45, 1), (90, 2))] == [0, 5, 6]


def test_a_batch_that_was_sent_twice_keeps_its_number() -> None:
    """The broker then knows it again."""
    sequences = SequenceNumbers()

    assert [sequences.number(HERE, batch(*one)) for one in ((0, 5), (5, 1), (0, 5), (6, 1))] == [0, 5, 0, 6]


def test_only_as_many_are_remembered_as_a_broker_does() -> None:
    """What is older is a new batch."""
    sequences = SequenceNumbers()
    numbers = [sequences.number(HERE, batch(number, 1)) for number in (*range(REMEMBERED + 1), 0)]

    assert numbers == [*range(REMEMBERED + 1), REMEMBERED + 1]


def test_partitions_and_epochs_are_counted_apart() -> None:
    """Each from 0 on; a batch without a number has none."""
    sequences = SequenceNumbers()
    sequences.number(HERE, batch(3, 3))

    assert sequences.number((7, 1, "orders", 0), batch(3, 3)) == 0
    assert sequences.number((7, 0, "orders", 1), batch(3, 3)) == 0
    assert sequences.number(HERE, batch(-1, 3)) == -1


def test_they_begin_again_after_the_last() -> None:
    """As producers do."""
    sequences = SequenceNumbers()
    sequences.next[HERE] = MOST_SEQUENCES - 2

    assert [sequences.number(HERE, batch(*one)) for one in ((0, 3), (3, 1))] == [MOST_SEQUENCES - 2, 1]
