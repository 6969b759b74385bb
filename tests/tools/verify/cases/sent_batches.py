"""Histories of batches and their writes: stored or refused batches, their order, and batches that disappear."""

from __future__ import annotations

from tests.support.exchange_factory import Somebody
from tests.tools.verify.cases.table import broken, lawful
from tests.tools.verify.history import History, batch, marker

A, B, C = batch(b"a", b"aa"), batch(b"b", b"bb", at=1), batch(b"c", b"cc", at=2)
OTHER = Somebody(9, client_port=50009, client_id="writer")
COMPLETE = {"assume_complete": True}
NOT_ENOUGH_REPLICAS_AFTER_APPEND, TOPIC_AUTHORIZATION_FAILED, MESSAGE_TOO_LARGE, OUT_OF_ORDER = 20, 29, 10, 45
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID = 3, 100


def sent(sequence: int, value: bytes = b"", *, epoch: int = 0, transactional: bool = False) -> bytes:
    """Return a batch of producer 7 with one record."""
    return batch(value or b"%d" % sequence, producer=(7, epoch, sequence), transactional=transactional)


@broken("read-then-gone")
def a_record_that_a_later_response_passes_over(history: History) -> None:
    history.read(1, 0, (0, A), (2, B))
    history.read(2, 0, (2, B))


@broken("read-then-gone")
def a_record_of_a_share_group_that_is_gone(history: History) -> None:
    history.share(1, (2, B), acquired=((2, 3),))
    history.read(2, 0, (0, A), (4, C))


@lawful("read-then-gone", compacted=True)
def a_record_that_compaction_has_removed(history: History) -> None:
    history.read(1, 0, (0, A), (2, B))
    history.read(2, 0, (2, B))


@lawful("read-then-gone")
def a_record_that_retention_has_removed(history: History) -> None:
    history.read(1, 0, (0, A), (2, B))
    history.read(2, 0, (2, B), start=2)


@lawful("read-then-gone")
def a_record_that_is_read_again(history: History) -> None:
    history.read(1, 0, (0, A), (2, B))
    history.read(2, 0, (0, A), (2, B))
    history.read(3, 2, (2, B), (4, C))


@broken("phantom-record", terms=COMPLETE)
def a_record_that_nobody_has_written(history: History) -> None:
    history.write(1, A, 0)
    history.read(2, 0, (0, A), (2, B))


@broken("phantom-record", terms=COMPLETE)
def a_sequence_that_its_producer_has_not_written(history: History) -> None:
    history.create(0.5)
    history.write(1, sent(1), 1)
    history.read(2, 0, (0, sent(0)), (1, sent(1)))


@lawful("phantom-record", terms=COMPLETE)
def a_record_of_before_the_recording(history: History) -> None:
    history.write(1, B, 2)
    history.read(2, 0, (0, A), (2, B))


@lawful("phantom-record", terms=COMPLETE)
def records_whose_writes_have_no_response(history: History) -> None:
    history.write(1, A, None)
    history.write(2, B, None, acks=0, who=OTHER)
    history.write(3, sent(0), None, who=Somebody(8, client_port=50008))
    history.write(4, sent(0), 4, who=OTHER)
    history.read(5, 0, (0, A), (2, B), (4, sent(0)))


@lawful("phantom-record", terms=COMPLETE)
def records_in_another_form(history: History) -> None:
    """The broker compresses batches again, which changes their checksums."""
    data = batch(b"b", b"bb", producer=(7, 0, 0))
    history.write(1, A, None)
    history.write(2, data, None)
    stored = batch(b"b", b"bb", producer=(7, 0, 0), codec=3)
    history.read(3, 0, (0, batch(b"a", b"aa", codec=3)), (2, stored))


@lawful("phantom-record", "aborted-read", terms=COMPLETE)
def markers_that_the_coordinator_writes(history: History) -> None:
    history.write(1, sent(0, transactional=True), 0)
    history.end(2, 7, 0, commit=True)
    history.read(3, 0, (0, sent(0, transactional=True)), (1, marker(7, 0, commit=True)), committed=True)


@lawful("phantom-record")
def a_record_in_a_record_that_need_not_be_complete(history: History) -> None:
    history.write(1, A, 0)
    history.read(2, 0, (0, A), (2, B))


@broken("refused-but-stored", level="suspect")
def a_refused_batch_that_is_stored(history: History) -> None:
    history.write(1, A, -1, error=MESSAGE_TOO_LARGE)
    history.read(2, 0, (0, A))


@broken("refused-but-stored", terms=COMPLETE)
def a_denied_batch_that_is_stored(history: History) -> None:
    history.create(0.5)
    history.write(1, sent(0), -1, error=TOPIC_AUTHORIZATION_FAILED)
    history.read(2, 0, (0, sent(0)))


@lawful("refused-but-stored", terms=COMPLETE)
def a_refused_batch_that_is_sent_again(history: History) -> None:
    history.write(1, A, -1, error=TOPIC_AUTHORIZATION_FAILED)
    history.write(2, A, 0)
    history.read(3, 0, (0, A))


@lawful("refused-but-stored", terms=COMPLETE)
def a_refused_retry_of_a_stored_batch(history: History) -> None:
    history.write(1, sent(0), None)
    history.write(2, sent(0), -1, error=OUT_OF_ORDER, who=OTHER)
    history.read(3, 0, (0, sent(0)))


@lawful("refused-but-stored", terms=COMPLETE)
def an_error_after_the_batch_was_appended(history: History) -> None:
    """Brokers look for the topic again before they answer a write with acks=all."""
    history.write(1, A, -1, error=NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    history.write(2, B, -1, error=UNKNOWN_TOPIC_ID)
    history.write(3, C, -1, error=UNKNOWN_TOPIC_OR_PARTITION)
    history.read(4, 0, (0, A), (2, B), (4, C))


@lawful("refused-but-stored")
def another_batch_with_the_sequence_of_a_refused_one(history: History) -> None:
    """A producer uses the sequence of a refused batch again. The write of the other batch is not in the record."""
    history.write(1, sent(0, b"large"), -1, error=MESSAGE_TOO_LARGE)
    history.read(2, 0, (0, sent(0, b"small")))


@broken("realtime-order")
def a_later_write_with_a_lower_offset(history: History) -> None:
    history.write(1, A, 5)
    history.write(2, B, 2, who=OTHER)


@broken("realtime-order", terms=COMPLETE)
def a_later_idempotent_write_with_a_lower_offset(history: History) -> None:
    history.init(0.5, 7, 0)
    history.write(1, A, 5)
    history.write(2, sent(0), 2, who=OTHER)
    history.write(3, sent(0), 2, who=OTHER)


@lawful("realtime-order")
def writes_that_overlap(history: History) -> None:
    history.write(1, A, 5, took=3)
    history.write(2, B, 2, who=OTHER)


@lawful("realtime-order")
def a_retry_with_the_offset_of_an_earlier_attempt(history: History) -> None:
    history.write(1, sent(0), None)
    history.write(2, A, 5, who=Somebody(8, client_port=50008))
    history.write(3, sent(0), 2, who=OTHER)


@lawful("realtime-order")
def a_retry_whose_earlier_attempt_is_answered_late(history: History) -> None:
    history.write(1, sent(0), 2, took=4)
    history.write(2, A, 5, who=Somebody(8, client_port=50008))
    history.write(3, sent(0), 2, who=OTHER)


@lawful("realtime-order")
def a_retry_of_a_batch_that_was_read_before(history: History) -> None:
    history.read(1, 2, (2, sent(0)))
    history.write(2, A, 5)
    history.write(3, sent(0), 2, who=OTHER)


@broken("sequence-gap", level="suspect", terms=COMPLETE)
def a_batch_that_does_not_follow_the_last_one(history: History) -> None:
    history.write(1, sent(0), 0)
    history.write(2, sent(3), 1)


@broken("sequence-gap", level="suspect", terms=COMPLETE)
def an_epoch_that_does_not_start_at_0(history: History) -> None:
    history.write(1, sent(0), 0)
    history.write(2, sent(2, epoch=1), 1)


@broken("sequence-gap", level="suspect", terms=COMPLETE)
def a_refused_batch_that_a_producer_passes_over(history: History) -> None:
    history.write(1, sent(0), 0)
    history.write(2, sent(1), -1, error=MESSAGE_TOO_LARGE)
    history.write(3, sent(2), 1)


@lawful("sequence-gap")
def sequences_of_writes_without_responses(history: History) -> None:
    history.write(1, sent(0), 0)
    history.write(2, sent(1), None)
    history.write(3, sent(2), 2, who=OTHER)
    history.write(4, sent(4), 4, who=OTHER)
    history.read(5, 0, (0, sent(0)), (1, sent(1)), (2, sent(2)), (3, sent(3)), (4, sent(4)))


@lawful("sequence-gap", terms=COMPLETE)
def an_epoch_that_starts_at_0(history: History) -> None:
    history.write(1, sent(0), 0)
    history.write(2, sent(1), -1, error=MESSAGE_TOO_LARGE)
    history.write(3, sent(0, b"again", epoch=1), 1)


@lawful("sequence-gap", terms=COMPLETE)
def a_producer_that_was_there_before_the_recording(history: History) -> None:
    history.write(1, sent(5), 5)
    history.write(2, sent(6), 6)
    history.write(3, sent(5), 5)
