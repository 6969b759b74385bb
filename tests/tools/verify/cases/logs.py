"""Histories of logs: batches that were written and read, and their offsets."""

from __future__ import annotations

from uuid import UUID

from tests.support.exchange_factory import Somebody
from tests.tools.verify.cases.table import broken, lawful
from tests.tools.verify.history import TOPIC, History, batch, thinned

A, B, C = batch(b"a", b"aa"), batch(b"b", b"bb", at=1), batch(b"c", b"cc", at=2)
OTHER = Somebody(9, client_port=50009, client_id="writer")
"""The same client on another connection, as after one that was lost."""
STRANGER = Somebody(4, client_port=50004, client_id="other")


def sent(sequence: int, *, epoch: int = 0, codec: int = 0) -> bytes:
    """Return a batch of one record of producer 7."""
    return batch(b"value %d" % sequence, producer=(7, epoch, sequence), codec=codec)


@lawful(
    "lost-write", "watermark-behind", "inconsistent-offset", "duplicate", "order", "offset-given-twice",
    "thinned-batch", "read-disorder",
)  # fmt: skip
def writes_that_are_read(history: History) -> None:
    history.write(1, A, 0)
    history.write(2, B, 2)
    history.read(3, 0, (0, A), (2, B))


# ---- lost-write


@broken("lost-write")
def a_write_that_readers_do_not_get(history: History) -> None:
    history.write(1, A, 0)
    history.write(2, B, 2)
    history.read(3, 0, (2, B))


@broken("lost-write")
def a_write_that_an_overlapping_response_lacks(history: History) -> None:
    """The response may be over before the write is: a batch that follows the hole was appended later."""
    history.write(1, A, 0, took=3)
    history.read(2, 0, (2, B))


@lawful("lost-write", "thinned-batch", compacted=True)
def a_compacted_log(history: History) -> None:
    history.write(1, A, 0)
    history.write(2, B, 2)
    history.read(3, 0, (2, B), (4, thinned(b"a", last=2)))


@lawful("lost-write")
def a_write_below_the_start_of_the_log(history: History) -> None:
    history.write(1, A, 0)
    history.read(3, 0, (2, B), start=2)


@lawful("lost-write", "inconsistent-offset", "offset-given-twice")
def a_topic_that_is_deleted_and_created_again(history: History) -> None:
    history.write(1, A, 0)
    history.add(2, "DeleteTopics", 4, {"topic_names": [TOPIC]}, {"responses": [{"name": TOPIC, "error_code": 0}]})
    history.write(3, B, 0)
    history.read(4, 0, (0, B))


@lawful("lost-write", "inconsistent-offset", "offset-given-twice")
def a_topic_with_another_id(history: History) -> None:
    history.write(1, A, 0)
    history.metadata(2, UUID(int=5))
    history.write(3, B, 0)
    history.read(4, 0, (0, B))


# ---- watermark-behind


@broken("watermark-behind", level="suspect")
def a_high_watermark_below_an_acknowledged_write(history: History) -> None:
    history.write(1, A, 0)
    history.read(3, 2, high=1)


@broken("watermark-behind", level="suspect")
def a_high_watermark_of_zero(history: History) -> None:
    history.write(1, A, 0)
    history.write(2, B, 2, who=OTHER)
    history.read(3, 0, high=0)


@lawful("watermark-behind")
def a_high_watermark_of_before_the_acknowledgement(history: History) -> None:
    history.write(1, A, 0, took=3)
    history.read(2, 0, high=0)


@lawful("watermark-behind")
def a_high_watermark_behind_a_write_with_acks_1(history: History) -> None:
    history.write(1, A, 0, acks=1)
    history.read(2, 0, high=0)


# ---- offset-given-twice


@broken("offset-given-twice")
def an_offset_inside_of_another_batch(history: History) -> None:
    history.write(1, A, 0)
    history.write(2, B, 1, who=OTHER)


@broken("offset-given-twice")
def an_offset_of_two_batches(history: History) -> None:
    history.write(1, A, 5)
    history.write(2, B, 5, who=STRANGER)


@broken("offset-given-twice")
def an_offset_of_two_batches_with_acks_1(history: History) -> None:
    history.write(1, A, 0, acks=1)
    history.write(2, B, 0, acks=1, who=OTHER)


@lawful("offset-given-twice", "duplicate-sequence", "duplicate", "order")
def an_idempotent_retry(history: History) -> None:
    history.write(1, sent(0), None, who=OTHER)
    history.write(2, sent(0), 0)
    history.write(3, sent(0), 0)
    history.write(4, sent(1), 1)
    history.read(5, 0, (0, sent(0)), (1, sent(1)))


# ---- inconsistent-offset


@broken("inconsistent-offset")
def another_batch_than_was_acknowledged(history: History) -> None:
    history.write(1, A, 0)
    history.read(3, 0, (0, batch(b"x", b"y")))


@broken("inconsistent-offset", level="suspect", known=False)
def another_batch_in_a_topic_without_an_id(history: History) -> None:
    history.write(1, A, 0)
    history.read(3, 0, (0, batch(b"x", b"y")))


@broken("inconsistent-offset")
def another_batch_than_was_read(history: History) -> None:
    history.read(1, 0, (0, A))
    history.read(2, 0, (0, batch(b"x", b"y")), who=STRANGER)


@broken("inconsistent-offset")
def another_batch_for_a_share_group(history: History) -> None:
    history.write(1, batch(b"a"), 0)
    history.share(2, (0, batch(b"b", at=1)), acquired=((0, 0),))


@broken("inconsistent-offset", terms={"records": True})
def another_record_in_a_batch_that_the_broker_compressed(history: History) -> None:
    history.write(1, A, 0)
    history.read(2, 0, (0, batch(b"a", b"ab", codec=3)))


@lawful("inconsistent-offset", terms={"records": True})
def a_batch_that_the_broker_compressed(history: History) -> None:
    history.write(1, A, 0)
    history.read(2, 0, (0, batch(b"a", b"aa", codec=3)))


@lawful("inconsistent-offset", "offset-given-twice", "duplicate-sequence")
def a_retry_of_a_batch_that_the_broker_compressed(history: History) -> None:
    """Both writes are acknowledged. Between them the batch is read in its stored form."""
    history.write(1, sent(0), 0)
    history.read(2, 0, (0, sent(0, codec=3)))
    history.write(3, sent(0), 0)


# ---- duplicate


@broken("duplicate", terms={"assume_complete": True}, compacted=None)
def a_batch_at_more_offsets_than_writes(history: History) -> None:
    history.write(1, A, 0)
    history.read(2, 0, (0, A), (2, A))


@broken("duplicate", level="suspect")
def a_batch_that_was_sent_again_on_another_connection(history: History) -> None:
    history.write(1, A, None)
    history.write(2, A, 2, who=OTHER)
    history.read(3, 0, (0, A), (2, A))


@broken("duplicate", level="suspect")
def a_batch_that_was_sent_again_after_a_timeout(history: History) -> None:
    """After REQUEST_TIMED_OUT the batch may be stored. The share group gets it twice."""
    history.write(1, A, 0, error=7)
    history.write(2, A, 2)
    history.share(3, (0, A), (2, A), acquired=((0, 3),))


@lawful("duplicate")
def equal_batches_that_were_all_acknowledged(history: History) -> None:
    history.write(1, A, 0)
    history.write(2, A, 2)
    history.read(3, 0, (0, A), (2, A))


@lawful("duplicate")
def equal_batches_with_acks_0(history: History) -> None:
    for at in (1, 2):
        history.write(at, A, None, acks=0)
    history.read(3, 0, (0, A), (2, A))


# ---- duplicate-sequence


@broken("duplicate-sequence")
def a_sequence_that_is_read_at_two_offsets(history: History) -> None:
    history.write(1, sent(0), 0)
    history.read(2, 0, (0, sent(0)), (1, sent(0)))


@broken("duplicate-sequence")
def a_sequence_that_two_responses_have_at_two_offsets(history: History) -> None:
    history.read(1, 0, (0, sent(0)))
    history.read(2, 1, (1, sent(0)))


@lawful("duplicate-sequence", "order", "duplicate")
def sequences_of_a_new_epoch(history: History) -> None:
    history.read(1, 0, (0, sent(0)), (1, sent(1)), (2, sent(0, epoch=1)), (3, sent(1, epoch=1)))


# ---- thinned-batch


@broken("thinned-batch", terms={"assume_complete": True})
def a_batch_that_lacks_records(history: History) -> None:
    history.create(0.5)
    history.read(1, 0, (0, thinned(b"a", last=2)))


@broken("thinned-batch", level="suspect")
def a_batch_that_lacks_records_in_a_topic_that_may_have_been_compacted(history: History) -> None:
    history.read(1, 0, (0, thinned(b"a", last=2)))


@broken("thinned-batch", terms={"assume_complete": True})
def a_batch_that_lacks_records_for_a_share_group(history: History) -> None:
    history.create(0.5)
    history.share(1, (0, thinned(b"a", last=2)), acquired=((0, 2),))


@lawful("thinned-batch", terms={"assume_complete": True})
def batches_with_all_their_records(history: History) -> None:
    history.create(0.3)
    for offset, data in ((0, A), (2, B)):
        history.write(0.5 + offset / 10, data, offset)
    history.read(1, 0, (0, A), (2, B))


@lawful("thinned-batch", compacted=True)
def a_compacted_batch_for_a_share_group(history: History) -> None:
    history.write(1, batch(b"a", b"b", b"c"), 0)
    history.share(2, (0, thinned(b"a", last=2)), acquired=((0, 2),))


# ---- read-disorder


@broken("read-disorder")
def a_response_whose_offsets_go_back(history: History) -> None:
    history.read(1, 0, (2, B), (0, A))


@broken("read-disorder")
def a_response_with_a_batch_twice(history: History) -> None:
    history.read(1, 0, (0, A), (0, A))


@broken("read-disorder")
def a_response_to_a_share_group_whose_offsets_go_back(history: History) -> None:
    history.share(1, (2, B), (0, A), acquired=((0, 3),))


@lawful("read-disorder")
def responses_to_a_share_group_from_the_end_and_back(history: History) -> None:
    history.write(1, batch(b"a"), 0)
    history.write(2, batch(b"b", at=1), 1)
    history.share(3, (1, batch(b"b", at=1)), acquired=((1, 1),))
    history.share(4, (0, batch(b"a")), acquired=((0, 0),))


@lawful("read-disorder", compacted=True)
def a_response_with_holes_of_compaction(history: History) -> None:
    history.read(1, 0, (3, B), (9, A))


# ---- order


@broken("order")
def sequences_that_do_not_ascend(history: History) -> None:
    history.read(1, 0, (0, sent(4)), (1, sent(3)))


@broken("order")
def sequences_between_others_that_do_not_ascend(history: History) -> None:
    """The middle of the log is read last: each batch is compared with its neighbours."""
    history.read(1, 0, (0, sent(0)), (9, sent(9)))
    history.read(2, 4, (4, sent(6)), (5, batch(b"x", producer=(8, 0, 0))), (6, sent(4)))


@broken("order")
def writes_of_a_connection_in_the_wrong_order(history: History) -> None:
    history.write(1, A, 2)
    history.write(2, B, 0)


@broken("order", level="suspect")
def writes_of_a_connection_at_the_same_time_in_the_wrong_order(history: History) -> None:
    history.write(1, A, 2, took=2)
    history.write(2, B, 0, took=2)


@lawful("order")
def writes_of_a_connection_whose_order_is_not_known(history: History) -> None:
    history.write(0.5, B, 0, took=2)
    history.write(1, A, 2, took=1.52)


@lawful("order")
def writes_of_two_connections(history: History) -> None:
    history.write(1, A, 2, took=3, who=OTHER)
    history.write(2, B, 0)
