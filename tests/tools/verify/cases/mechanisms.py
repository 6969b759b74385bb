"""Broken histories with other mechanisms than those of the other files, for each check."""

from __future__ import annotations

from typing import Any

from tests.support.exchange_factory import Somebody
from tests.support.frames import fetch_body, fetched_body, produce_body, produced_body
from tests.tools.verify.cases.coordinators import COMPLETE, beat, heartbeat, init, join, sync, txn_commit
from tests.tools.verify.cases.table import broken
from tests.tools.verify.history import COORDINATOR, PRODUCER, TOPIC, History, Stored, assignment, batch, marker, stored

A, B, C = (batch(value, value, at=at) for at, value in enumerate((b"a", b"b", b"c")))
LONG = batch(b"1", b"2", b"3", b"4", at=9)
OTHER = Somebody(9, client_port=50009, client_id="writer")
THIRD = Somebody(10, client_port=50010, client_id="third")
ELSEWHERE = Somebody(8, client_port=50008, client_id="reader", node=2)
COMMIT, ABORT = marker(7, 0, commit=True), marker(7, 0, commit=False)
NOT_ENOUGH_REPLICAS, PRODUCER_FENCED, NOT_LEADER = 19, 90, 6


def sent(sequence: int, *values: bytes, epoch: int = 0, producer: int = 7, transactional: bool = False) -> bytes:
    """Return a batch of a producer with an id, of one record if no values are given."""
    return batch(*(values or (b"%d" % sequence,)), producer=(producer, epoch, sequence), transactional=transactional)


DATA = sent(0, transactional=True)


def write_with_start(history: History, at: float, data: bytes, base: int, start: int) -> None:
    """Add a Produce. Its response has this log start."""
    response = produced_body(TOPIC, offset=base)
    response["responses"][0]["partition_responses"][0]["log_start_offset"] = start
    history.add(at, "Produce", 9, produce_body((TOPIC, 0, data), acks=-1), response, who=PRODUCER)


def session_read(history: History, at: float, epoch: int, position: int | None, *batches: Stored) -> None:
    """Add a Fetch of session 77. `position`: None if the request does not list the partition."""
    places = () if position is None else (TOPIC,)
    request = fetch_body(*places, offset=position or 0, session_id=77 if epoch else 0, session_epoch=epoch)
    response = fetched_body((TOPIC, 0, stored(*batches)), high_watermark=6, session_id=77)
    response["responses"][0]["partitions"][0] |= {"last_stable_offset": 6, "log_start_offset": 0}
    history.add(at, "Fetch", 11, request, response)


# ---- logs


@broken("lost-write")
def the_second_batch_of_one_write(history: History) -> None:
    history.write(1, A + B, 0)
    history.write(2, C, 4)
    history.read(3, 0, (0, A), (4, C))


@broken("lost-write")
def a_write_that_a_fetch_session_passes_over(history: History) -> None:
    """The last request does not list the partition. Its position is that of the request before."""
    for base, data in ((0, A), (2, B), (4, C)):
        history.write(1 + base / 10, data, base)
    session_read(history, 2, 0, 0, (0, A))
    session_read(history, 3, 1, 2)
    session_read(history, 4, 2, None, (4, C))


@broken("read-then-gone")
def a_record_between_others_that_another_client_misses(history: History) -> None:
    history.read(1, 0, (0, A), (2, B), (4, C))
    history.read(2, 0, (0, A), (4, C), who=OTHER)


@broken("read-then-gone")
def a_marker_that_is_gone(history: History) -> None:
    history.read(1, 0, (0, DATA), (1, COMMIT), (2, B))
    history.read(2, 0, (0, DATA), (2, B))


@broken("phantom-record", terms=COMPLETE)
def a_record_of_another_partition(history: History) -> None:
    history.create(0.5)
    history.add(1, "Produce", 9, produce_body((TOPIC, 1, A), acks=-1), produced_body((TOPIC, 1)), who=PRODUCER)
    history.read(2, 0, (0, A))


@broken("phantom-record", level="suspect", terms=COMPLETE)
def a_record_of_nobody_for_a_share_group(history: History) -> None:
    history.create(0.5)
    history.write(1, A, 0)
    history.share(2, (2, B), acquired=((2, 3),))


@broken("phantom-record", terms=COMPLETE)
def a_record_of_an_unknown_producer_between_others(history: History) -> None:
    history.create(0.5)
    history.write(1, sent(0), 0)
    history.write(1.2, sent(1), 2)
    history.read(2, 0, (0, sent(0)), (1, sent(0, producer=9)), (2, sent(1)))


@broken("refused-but-stored", terms=COMPLETE)
def a_write_without_enough_replicas_for_a_share_group(history: History) -> None:
    history.create(0.5)
    history.write(1, A, -1, error=NOT_ENOUGH_REPLICAS)
    history.share(2, (0, A), acquired=((0, 1),))


@broken("refused-but-stored", terms=COMPLETE)
def a_write_of_a_fenced_producer_that_is_stored(history: History) -> None:
    history.create(0.5)
    history.write(1, DATA, -1, error=PRODUCER_FENCED)
    history.read(2, 0, (0, DATA))


@broken("watermark-behind", level="suspect")
def a_high_watermark_below_an_idempotent_write(history: History) -> None:
    history.write(1, sent(0), 0)
    history.read(3, 0, high=0)


@broken("watermark-behind", level="note")
def a_high_watermark_of_another_node(history: History) -> None:
    history.write(1, A, 0)
    history.read(3, 0, high=0, who=ELSEWHERE)


@broken("log-goes-back", terms={"assume_complete": True})
def a_last_stable_offset_that_goes_back_in_list_offsets(history: History) -> None:
    history.bound(1, 9, committed=True)
    history.bound(2, 7, committed=True)


@broken("log-goes-back", level="suspect")
def a_log_start_that_goes_back_in_a_produce_response(history: History) -> None:
    history.write(1, A, 10)
    history.read(2, 10, (10, A), start=5)
    write_with_start(history, 3, B, 12, 3)


@broken("log-goes-back", level="suspect")
def a_log_start_that_goes_back_in_list_offsets(history: History) -> None:
    history.bound(1, 5, time=-2)
    history.bound(2, 3, time=-2)


@broken("out-of-range", level="suspect")
def a_refused_read_with_the_log_start_in_a_produce_response(history: History) -> None:
    history.write(1, A, 0)
    history.refused_read(2, 1, epoch=0)
    write_with_start(history, 3, B, 2, 0)


@broken("out-of-range")
def a_refused_read_of_the_first_of_two_idempotent_writes(history: History) -> None:
    history.write(1, sent(0), 0)
    history.write(1.2, sent(1), 1)
    history.refused_read(2, 0, epoch=0)
    history.bound(3, 0, time=-2)


@broken("deleted-read", also=("log-goes-back",), level="suspect")
def a_deleted_batch_that_another_client_reads(history: History) -> None:
    history.delete_records(1, 4)
    history.read(3, 1, (0, LONG), who=OTHER)


@broken("offset-given-twice")
def an_offset_of_two_sequences(history: History) -> None:
    history.write(1, sent(0), 0)
    history.write(2, sent(1), 0)


@broken("offset-given-twice")
def a_large_batch_over_a_small_one(history: History) -> None:
    history.write(1, A, 2)
    history.write(2, LONG, 0, who=OTHER)


@broken("inconsistent-offset")
def a_batch_that_begins_within_a_written_one(history: History) -> None:
    history.write(1, A, 0)
    history.read(2, 1, (1, B))


@broken("inconsistent-offset")
def a_batch_of_another_producer(history: History) -> None:
    history.write(1, sent(0), 0)
    history.read(2, 0, (0, sent(0, producer=8)))


@broken("inconsistent-offset")
def two_batches_for_share_groups(history: History) -> None:
    history.share(1, (0, A), acquired=((0, 1),))
    history.share(2, (0, B), acquired=((0, 1),))


@broken("inconsistent-offset")
def a_longer_batch_than_was_read(history: History) -> None:
    history.read(1, 0, (0, A))
    history.read(2, 0, (0, LONG))


@broken("duplicate", level="suspect")
def a_batch_at_two_offsets_in_two_responses(history: History) -> None:
    history.write(1, A, None)
    history.write(1.5, A, 2, who=OTHER)
    history.read(2, 0, (0, A))
    history.read(3, 2, (2, A), who=THIRD)


@broken("duplicate", terms=COMPLETE)
def a_batch_with_acks_0_that_is_stored_twice(history: History) -> None:
    history.create(0.5)
    history.write(1, A, None, acks=0)
    history.read(2, 0, (0, A), (2, A))


@broken("duplicate", terms=COMPLETE)
def a_batch_that_a_share_group_receives_at_three_offsets(history: History) -> None:
    history.create(0.5)
    history.write(1, A, 0)
    history.share(2, (0, A), (2, A), (4, A), acquired=((0, 5),))


@broken("duplicate-sequence", level="suspect")
def a_sequence_that_was_acknowledged_at_two_offsets(history: History) -> None:
    """Responses to writes of this version have no log start, so the broker may have forgotten the producer."""
    history.write(1, sent(0), 0)
    history.write(2, sent(0), 5, who=OTHER)


@broken("duplicate-sequence", level="suspect")
def a_sequence_at_two_offsets_for_a_share_group(history: History) -> None:
    history.share(1, (0, sent(0)), (3, sent(0)), acquired=((0, 3),))


@broken("thinned-batch")
def a_batch_with_more_records_than_offsets(history: History) -> None:
    data = bytearray(batch(b"a", b"b", b"c"))
    data[23:27] = (1).to_bytes(4, "big")
    history.read(1, 0, (0, bytes(data)))


@broken("thinned-batch", level="suspect")
def a_batch_without_records(history: History) -> None:
    data = bytearray(batch(b"a"))
    data[57:61] = bytes(4)
    history.read(1, 0, (0, bytes(data)))


@broken("read-disorder", also=("inconsistent-offset",))
def a_batch_that_begins_within_the_one_before(history: History) -> None:
    history.read(1, 0, (0, LONG), (2, B))


@broken("order")
def sequences_that_do_not_ascend_in_two_responses(history: History) -> None:
    history.read(1, 0, (0, sent(5)))
    history.read(2, 1, (1, sent(3)))


@broken("order", level="suspect")
def sequences_of_acknowledged_writes_that_do_not_ascend(history: History) -> None:
    """Responses to writes of this version have no log start, so the broker may have forgotten the producer."""
    history.write(1, sent(1), 0, who=OTHER)
    history.write(2, sent(0), 1)


@broken("realtime-order", level="suspect")
def a_later_transactional_write_with_a_lower_offset(history: History) -> None:
    history.init(0.5, 7, 0)
    history.write(1, A, 5)
    history.write(2, DATA, 2, who=OTHER)


@broken("realtime-order")
def a_later_write_with_acks_1_and_a_lower_offset(history: History) -> None:
    history.write(1, A, 5)
    history.write(2, B, 2, who=OTHER, acks=1)


@broken("sequence-gap", level="suspect", terms=COMPLETE)
def a_gap_where_sequences_wrap_around(history: History) -> None:
    history.write(1, sent((1 << 31) - 1), 0)
    history.write(2, sent(1), 1)


@broken("sequence-gap", level="suspect", terms=COMPLETE)
def a_gap_between_two_transactions(history: History) -> None:
    history.write(1, DATA, 0)
    history.end(1.5, 7, 0, commit=True)
    history.write(2, sent(2, transactional=True), 2)


@broken("epoch-goes-back", level="suspect")
def a_leader_epoch_that_goes_back_in_fetch_responses(history: History) -> None:
    for at, epoch in ((1, 5), (2, 3)):
        body = fetched_body((TOPIC, 0, None))
        leader = {"leader_id": 1, "leader_epoch": epoch}
        body["responses"][0]["partitions"][0] |= {"error_code": NOT_LEADER, "current_leader": leader}
        history.add(at, "Fetch", 12, fetch_body(TOPIC, session_epoch=-1), body)


@broken("epoch-goes-back", level="suspect")
def a_leader_epoch_that_goes_back_in_produce_responses(history: History) -> None:
    for at, epoch in ((1, 5), (2, 3)):
        body = produced_body(TOPIC, offset=-1, error=NOT_LEADER)
        leader = {"leader_id": 2, "leader_epoch": epoch}
        body["responses"][0]["partition_responses"][0]["current_leader"] = leader
        history.add(at, "Produce", 10, produce_body((TOPIC, 0, A)), body, who=PRODUCER)


# ---- transactions


@broken("aborted-read")
def a_batch_whose_abort_marker_was_read_before(history: History) -> None:
    history.read(1, 1, (1, ABORT))
    history.read(2, 0, (0, DATA), (1, ABORT), committed=True)


@broken("aborted-read")
def a_batch_of_one_of_two_aborted_transactions(history: History) -> None:
    other = sent(0, producer=8, transactional=True)
    history.read(1, 0, (0, DATA), (1, other), (2, ABORT), (3, marker(8, 0, commit=False)), committed=True,
                 aborted=((7, 0),))  # fmt: skip


@broken("hidden-transaction")
def a_committed_transaction_whose_marker_was_read_before(history: History) -> None:
    history.read(1, 0, (0, DATA), (1, COMMIT), (2, B))
    history.read(2, 0, (0, DATA), committed=True, aborted=((7, 0),))


@broken("hidden-transaction")
def a_committed_transaction_after_an_aborted_one(history: History) -> None:
    more = sent(1, transactional=True)
    history.read(1, 0, (0, DATA), (1, ABORT), (2, more), (3, COMMIT), committed=True, aborted=((7, 0), (7, 2)))


@broken("read-beyond-stable", level="suspect")
def a_plain_batch_beyond_the_stable_offset(history: History) -> None:
    history.read(1, 0, (0, A), (2, B), committed=True, stable=2)


@broken("torn-transaction", terms=COMPLETE)
def two_markers_in_two_partitions(history: History) -> None:
    history.end(1, 7, 8, commit=True, version=5)
    history.read(2, 0, (1, marker(7, 10, commit=False)))
    body = fetched_body((TOPIC, 1, stored((0, marker(7, 10, commit=True)))), high_watermark=5)
    history.add(3, "Fetch", 11, fetch_body((TOPIC, 1), session_epoch=-1), body)


@broken("torn-transaction", terms=COMPLETE)
def a_commit_marker_after_an_abort(history: History) -> None:
    history.write(1, DATA, 0)
    history.end(2, 7, 0, commit=False)
    history.read(3, 0, (0, DATA), (1, COMMIT))


@broken("zombie-write", level="suspect")
def a_write_with_the_epoch_before_the_last_end(history: History) -> None:
    """Partitions learn of the end later than the producer."""
    history.init(1, 7, 0)
    history.end(2, 7, 0, commit=True, version=5)
    history.write(3, DATA, 0)


@broken("producer-id-reused")
def a_producer_id_of_an_idempotent_producer_for_a_transactional_id(history: History) -> None:
    init(history, 1, 7, 0, None)
    init(history, 2, 7, 0, "a", who=OTHER)


@broken("producer-id-reused")
def a_producer_id_in_the_response_to_another_transactional_id(history: History) -> None:
    init(history, 1, 7, 0, "a")
    history.end(2, 7, 0, commit=True, version=5)


@broken("producer-epoch-goes-back")
def an_epoch_in_the_response_to_an_end_that_is_lower(history: History) -> None:
    init(history, 1, 7, 4)
    history.end(2, 7, 2, commit=True, version=5)


@broken("producer-epoch-goes-back")
def an_expected_epoch_that_is_lower_than_before(history: History) -> None:
    init(history, 1, 7, 6)
    init(history, 2, 7, 5, expected=(7, 4))


# ---- groups


@broken("commit-beyond")
def a_commit_beyond_the_offset_of_a_later_write(history: History) -> None:
    history.read(1, 0, (0, A), high=2)
    history.commit(2, 9)
    history.write(3, B, 2)


@broken("commit-beyond")
def a_commit_of_the_largest_offset(history: History) -> None:
    history.read(1, 0, (0, A), high=2)
    history.commit(2, (1 << 63) - 1)
    history.write(3, B, 2)


@broken("lost-commit", terms=COMPLETE)
def no_offset_after_a_commit(history: History) -> None:
    history.commit(1, 5)
    history.told(3, -1)


@broken("lost-commit", terms=COMPLETE)
def an_older_offset_in_a_response_of_version_5(history: History) -> None:
    history.commit(1, 5)
    history.commit(2, 7)
    parts = [{"partition_index": 0, "committed_offset": 5}]
    request = {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    history.add(3, "OffsetFetch", 5, request, {"topics": [{"name": TOPIC, "partitions": parts}]}, who=COORDINATOR)


@broken("aborted-commit", terms=COMPLETE)
def an_aborted_offset_without_require_stable(history: History) -> None:
    history.commit(1, 1)
    txn_commit(history, 2, 5)
    history.end(3, 7, 0, commit=False, version=5)
    history.told(4, 5)


@broken("commit-goes-back", level="suspect")
def a_commit_of_another_member_that_goes_back(history: History) -> None:
    history.commit(1, 5, member="m1")
    history.told(2, 5, stable=True, who=OTHER)
    history.commit(3, 2, generation=3, member="m2")


@broken("commit-goes-back", level="suspect")
def a_commit_of_0_after_several_responses(history: History) -> None:
    history.commit(1, 50)
    history.told(2, 50)
    history.told(2.5, 50)
    history.commit(3, 0, generation=9)


@broken("skipped-input", level="suspect")
def a_consumer_that_skips_offsets_after_an_empty_response(history: History) -> None:
    history.read(1, 0, (0, A), high=20)
    history.read(2, 2, (2, B), high=20)
    history.read(3, 9, high=20)


@broken("skipped-input", level="suspect")
def a_read_committed_consumer_that_skips_offsets(history: History) -> None:
    history.read(1, 0, (0, A), high=20, committed=True)
    history.read(2, 4, (4, B), high=20, committed=True)


@broken("two-owners")
def a_partition_of_three_members_by_the_assignor_in_join_group(history: History) -> None:
    request = {"group_id": "g", "session_timeout_ms": 9000, "rebalance_timeout_ms": 9000, "member_id": "m1",
               "protocol_type": "consumer", "protocols": []}  # fmt: skip
    response = {"generation_id": 3, "protocol_name": "sticky", "member_id": "m1"}
    history.add(0.5, "JoinGroup", 4, request, response, who=OTHER)
    given = [{"member_id": member, "assignment": assignment(2, 0)} for member in ("m1", "m2", "m3")]
    leader = {"group_id": "g", "generation_id": 3, "member_id": "m1", "assignments": given}
    history.add(1, "SyncGroup", 2, leader, {"assignment": assignment(2, 0)}, who=OTHER)


@broken("two-owners", terms=COMPLETE)
def a_partition_that_a_joining_member_is_given(history: History) -> None:
    heartbeat(history, 1, "m1", [], [0, 1], epoch=0)
    heartbeat(history, 2, "m2", [], [1, 2], epoch=0, now=2)
    heartbeat(history, 3, "m1", None, None)


@broken("generation-goes-back")
def an_assignment_of_an_older_generation_that_is_accepted(history: History) -> None:
    for at, generation in ((1, 5), (3, 4)):
        sync(history, at, generation)


@broken("generation-goes-back")
def a_heartbeat_of_a_much_older_generation_that_is_accepted(history: History) -> None:
    join(history, 1, 5)
    sync(history, 2, 5)
    beat(history, 3, 5)
    beat(history, 4, 1)


@broken("generation-goes-back", terms=COMPLETE)
def a_member_epoch_that_goes_back_in_responses(history: History) -> None:
    heartbeat(history, 1, "m1", None, None, epoch=4, now=9)
    heartbeat(history, 2, "m1", None, None, epoch=4, now=7)


@broken("rebalance-gap", level="note")
def a_rebalance_beyond_the_session_timeout_of_version_0(history: History) -> None:
    request = {
        "group_id": "g", "session_timeout_ms": 1000, "member_id": "", "protocol_type": "consumer", "protocols": [],
    }  # fmt: skip
    history.add(1, "JoinGroup", 0, request, {"error_code": 0, "protocol_name": "range"}, who=COORDINATOR)
    given = [{"member_id": "m1", "assignment": assignment(0)}]
    leader = {"group_id": "g", "generation_id": 1, "member_id": "m1", "assignments": given}
    history.add(5, "SyncGroup", 0, leader, {"assignment": assignment(0)}, who=COORDINATOR)


# ---- connections


def offer(first: int, last: int, *keys: int) -> dict[str, Any]:
    """Return an ApiVersions response."""
    return {"api_keys": [{"api_key": key, "min_version": first, "max_version": last} for key in keys]}


@broken("unsupported-version", known=False, compacted=None)
def a_version_below_those_that_were_offered(history: History) -> None:
    history.add(1, "ApiVersions", 2, {}, offer(2, 12, 1, 3))
    history.metadata(2)
    history.add(4, "Metadata", 1, {"topics": None}, {"brokers": [], "topics": []})


@broken("unsupported-version", known=False, compacted=None)
def a_version_of_an_older_offer(history: History) -> None:
    """The connection was offered fewer versions in the last two responses."""
    for at, last in ((1, 11), (2, 4), (3, 4)):
        history.add(at, "ApiVersions", 2, {}, offer(0, last, 1))
    history.read(4, 0, version=11)


@broken("conformance", level="note")
def a_heartbeat_after_a_leave_of_several_members(history: History) -> None:
    members = [{"member_id": "m", "group_instance_id": None}]
    left = {"members": [{"member_id": "m", "group_instance_id": None, "error_code": 0}]}
    history.add(1, "LeaveGroup", 3, {"group_id": "g", "members": members}, left)
    history.add(3, "Heartbeat", 3, {"group_id": "g", "generation_id": 1, "member_id": "m"}, {"error_code": 25})


@broken("conformance", level="note")
def a_transactional_write_after_the_end_of_its_transaction(history: History) -> None:
    request = {
        "v3_and_below_transactional_id": "t", "v3_and_below_producer_id": 7, "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
    }  # fmt: skip
    history.add(1, "AddPartitionsToTxn", 2, request, {"results_by_topic_v3_and_below": []}, who=PRODUCER)
    history.write(2, DATA, 0)
    history.end(3, 7, 0, commit=True)
    history.write(4, sent(1, transactional=True), 2)
