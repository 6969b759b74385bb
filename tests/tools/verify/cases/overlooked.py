"""Violations in places that the other files do not cover, each with its lawful twin."""

from __future__ import annotations

from typing import Any

from tests.tools.verify.cases.coordinators import COMPLETE, txn_commit
from tests.tools.verify.cases.mechanisms import ABORT, COMMIT, DATA, LONG, OTHER, A, B, sent
from tests.tools.verify.cases.table import broken, lawful
from tests.tools.verify.history import COORDINATOR, PRODUCER, TOPIC, History, batch

OVERLAP = "the responses of one connection come in the order of its requests"
MORE = sent(1, transactional=True)


# ---- a response from the middle of a batch


@broken("lost-write")
def a_write_that_a_response_from_its_middle_lacks(history: History) -> None:
    history.write(1, LONG, 0)
    history.write(2, B, 4)
    history.read(3, 2, (4, B))


@broken("lost-write", memory_only=OVERLAP)
def a_late_write_that_a_response_from_its_middle_lacks(history: History) -> None:
    history.write(1, LONG, 0, took=3)
    history.read(2, 2, (4, B))


@broken("read-then-gone")
def a_record_that_a_response_from_its_middle_lacks(history: History) -> None:
    history.read(1, 0, (0, LONG), (4, B))
    history.read(2, 2, (4, B))


@lawful("lost-write", "read-then-gone", assume_complete=True)
def responses_from_the_middle_of_a_batch(history: History) -> None:
    """The second response is behind the start of the log, which contains the last offset of the first batch."""
    history.write(1, LONG, 0)
    history.write(2, B, 4)
    for at, start in ((3, 0), (4, 3)):
        history.read(at, 3, (0, LONG), (4, B), start=start)
    history.read(5, 4, (4, B), start=4)


# ---- bounds of the log


@broken("watermark-behind", level="suspect")
def an_end_below_an_acknowledged_write(history: History) -> None:
    history.write(1, A, 0)
    history.bound(3, 1)


@lawful("watermark-behind")
def a_last_stable_offset_below_an_acknowledged_write(history: History) -> None:
    """A transaction is open. The end before the acknowledgement, and the offset of a time, may be lower."""
    history.write(1, DATA, 0, took=2)
    history.bound(2, 0, who=OTHER)
    history.bound(4, 0, committed=True)
    history.bound(5, 0, time=1_795_262_400_000)
    history.bound(6, 1)


@broken("log-goes-back", terms={"assume_complete": True})
def a_last_stable_offset_that_goes_back_in_a_leader_epoch(history: History) -> None:
    history.metadata(0.5, epoch=3)
    history.read(1, 2, high=9, stable=8, epoch=3)
    history.read(2, 2, high=9, stable=7, epoch=3)


@lawful("log-goes-back", assume_complete=True)
def a_last_stable_offset_that_waits_for_a_transaction(history: History) -> None:
    history.metadata(0.5, epoch=3)
    for at, high, stable in ((1, 4, 4), (2, 6, 4), (3, 8, 4), (4, 9, 9)):
        history.read(at, 2, high=high, stable=stable, epoch=3)


@broken("log-goes-back", level="suspect")
def a_high_watermark_below_the_end_in_list_offsets(history: History) -> None:
    history.bound(1, 10)
    history.read(2, 5, high=7)


@broken("log-goes-back", level="suspect")
def an_end_in_list_offsets_below_the_high_watermark(history: History) -> None:
    history.read(1, 5, high=10)
    history.bound(2, 7)


@broken("deleted-read")
def deleted_records_of_a_share_group(history: History) -> None:
    history.delete_records(1, 2)
    history.share(2, (0, A), acquired=((0, 1),))


@lawful("deleted-read")
def a_share_group_that_reads_a_batch_around_the_first_record(history: History) -> None:
    history.delete_records(1, 2)
    history.share(2, (0, LONG), acquired=((2, 3),))


# ---- batches


@broken("offset-given-twice")
def an_offset_of_two_equal_batches(history: History) -> None:
    """Without a producer id each write gets an own offset, so one of them is not stored."""
    history.write(1, A, 0)
    history.write(2, A, 0, who=OTHER)


@lawful("offset-given-twice", memory_only=OVERLAP)
def a_write_that_two_proxies_recorded(history: History) -> None:
    history.write(1, A, 0, took=1)
    history.write(1.2, A, 0, took=0.5, who=OTHER)


@broken("inconsistent-offset", terms={"records": True})
def another_record_with_the_same_checksum(history: History) -> None:
    """The checksum in the header is not that of the bytes."""
    data = batch(b"abc")
    history.write(1, data, 0)
    history.read(2, 0, (0, data.replace(b"abc", b"abd")))


@broken("duplicate-sequence")
def a_sequence_within_an_earlier_batch(history: History) -> None:
    history.read(1, 0, (0, sent(0, b"a", b"b")), (2, sent(1, b"b")))


@broken("duplicate-sequence")
def a_sequence_within_a_batch_that_wraps_around(history: History) -> None:
    history.read(1, 0, (0, sent((1 << 31) - 1, b"a", b"b")), (2, sent(0, b"b")))


@lawful("duplicate-sequence", "order")
def batches_that_follow_where_sequences_wrap_around(history: History) -> None:
    history.read(1, 0, (0, sent((1 << 31) - 1, b"a", b"b")), (2, sent(1, b"b")), (3, sent(2, b"c")))


@broken("read-beyond-stable", level="suspect")
def a_batch_around_the_stable_offset(history: History) -> None:
    history.read(1, 0, (0, LONG), committed=True, stable=2)


# ---- transactions


@broken("aborted-read", level="suspect")
@broken("aborted-read", terms=COMPLETE)
def a_batch_of_a_transaction_that_end_txn_aborted(history: History) -> None:
    history.write(1, DATA, 0)
    history.end(2, 7, 0, commit=False)
    history.read(3, 0, (0, DATA), committed=True)


@lawful("aborted-read", "hidden-transaction", terms=COMPLETE)
def transactions_that_end_txn_ended(history: History) -> None:
    """The second batch is listed as aborted. The third one has a reader of uncommitted data."""
    history.write(1, DATA, 0)
    history.end(2, 7, 0, commit=True)
    history.write(3, MORE, 2)
    history.end(4, 7, 0, commit=False)
    history.read(5, 0, (0, DATA), (1, COMMIT), (2, MORE), (3, ABORT), committed=True, aborted=((7, 2),))
    history.read(6, 2, (2, MORE))


def add_partitions(history: History, at: float, epoch: int, error: int = 0) -> None:
    """Add an AddPartitionsToTxn of producer 7."""
    request = {
        "v3_and_below_transactional_id": "t", "v3_and_below_producer_id": 7, "v3_and_below_producer_epoch": epoch,
        "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
    }  # fmt: skip
    parts = [{"partition_index": 0, "partition_error_code": error}]
    response = {"results_by_topic_v3_and_below": [{"name": TOPIC, "results_by_partition": parts}]}
    history.add(at, "AddPartitionsToTxn", 2, request, response, who=PRODUCER)


def add_offsets(history: History, at: float, epoch: int, error: int = 0) -> None:
    """Add an AddOffsetsToTxn of producer 7."""
    request: dict[str, Any] = {"transactional_id": "t", "producer_id": 7, "producer_epoch": epoch, "group_id": "g"}
    history.add(at, "AddOffsetsToTxn", 2, request, {"error_code": error}, who=PRODUCER)


@broken("zombie-write")
def partitions_that_a_fenced_epoch_adds(history: History) -> None:
    history.init(1, 7, 3)
    add_partitions(history, 2, 2)


@broken("zombie-write")
def offsets_that_a_fenced_epoch_adds(history: History) -> None:
    history.init(1, 7, 3)
    add_offsets(history, 2, 2)


@broken("zombie-write", level="suspect")
def a_commit_of_a_fenced_epoch(history: History) -> None:
    """The partition of the group's offsets learns of the fence by a marker."""
    history.init(1, 7, 3)
    history.txn_commit(2, 5, 7, 2, who=COORDINATOR)


@lawful("zombie-write", assume_complete=True)
def requests_of_a_fenced_epoch_that_are_refused(history: History) -> None:
    history.init(1, 7, 2)
    add_partitions(history, 1.5, 2)
    add_offsets(history, 1.6, 2)
    history.txn_commit(1.7, 5, 7, 2, who=COORDINATOR)
    history.init(2, 7, 3)
    add_partitions(history, 3, 2, error=90)
    add_offsets(history, 4, 2, error=90)
    add_partitions(history, 5, 3)


# ---- offsets of open transactions


@broken("aborted-commit", level="suspect")
@broken("aborted-commit", terms=COMPLETE)
def an_offset_of_an_open_transaction_that_is_aborted_later(history: History) -> None:
    history.commit(1, 1)
    txn_commit(history, 2, 5)
    history.told(3, 5)
    history.end(4, 7, 0, commit=False)


@broken("lost-commit", level="suspect")
@broken("lost-commit", terms=COMPLETE)
def an_offset_of_an_open_transaction_that_is_committed_later(history: History) -> None:
    history.commit(1, 1)
    txn_commit(history, 2, 5)
    history.told(3, 5)
    history.end(4, 7, 0, commit=True)


@lawful("lost-commit", "aborted-commit", terms=COMPLETE, memory_only=OVERLAP)
def an_offset_of_a_transaction_that_ends_meanwhile(history: History) -> None:
    history.commit(1, 1)
    txn_commit(history, 2, 5)
    history.told(3, 5, took=2)
    history.end(4, 7, 0, commit=True, who=OTHER)


@lawful("lost-commit", "aborted-commit", terms=COMPLETE)
def an_offset_of_a_transaction_whose_end_has_no_response(history: History) -> None:
    history.commit(1, 1)
    txn_commit(history, 2, 5)
    history.end(2.5, 7, 0, commit=True, answered=False, who=OTHER)
    history.told(3, 5)
    history.end(4, 7, 0, commit=True)


@lawful("lost-commit", "aborted-commit", terms=COMPLETE)
def an_offset_of_a_transaction_that_never_ends(history: History) -> None:
    history.commit(1, 1)
    txn_commit(history, 2, 5)
    history.told(3, 1, stable=False)
