"""Lawful histories that look broken: the record lacks, mixes up or repeats something. Nothing may be proved."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from crc32c import crc32c

from kproxy.protocol.records import encode_batch
from kproxy.protocol.records.entry import BATCH, BATCH_CRC_FROM, DELETE_HORIZON
from kproxy.record.exchange import Form
from tests.support.exchange_factory import Somebody
from tests.tools.verify.cases.table import unproved
from tests.tools.verify.history import (
    CONSUMER,
    COORDINATOR,
    NOW,
    PRODUCER,
    TOPIC,
    History,
    assignment,
    batch,
    marker,
    thinned,
)  # fmt: skip

A, B, A3 = batch(b"a"), batch(b"b", at=1), batch(b"a", b"aa", b"aaa")
AGAIN = replace(PRODUCER, number=21, client_port=50021)
"""The writer on another connection, as after one that was lost."""
OVERTAKEN = "a response overtakes another one on its connection"
COMMIT = {"group_id": "g", "generation_id_or_member_epoch": 1, "member_id": ""}


def sent(sequence: int, value: bytes = b"", *, producer: int = 7, epoch: int = 0, transactional: bool = False) -> bytes:
    """Return a batch of producer 7, or another."""
    return batch(value or b"value %d" % sequence, producer=(producer, epoch, sequence), transactional=transactional)


def committed(number: int = 0, offset: int = 5) -> dict[str, object]:
    """Return a topic with one partition, for requests about commits."""
    return {"name": TOPIC, "partitions": [{"partition_index": number, "committed_offset": offset}]}


def with_horizon(data: bytes, at: int) -> bytes:
    """Return a batch with a delete horizon in milliseconds: compaction may remove its tombstones after it."""
    fields = list(BATCH.unpack_from(data))
    fields[5] |= DELETE_HORIZON
    fields[7] = at
    made = BATCH.pack(*fields) + data[BATCH.size :]
    fields[4] = crc32c(made[BATCH_CRC_FROM:])
    return BATCH.pack(*fields) + data[BATCH.size :]


@unproved(ended=False)
def a_retry_in_a_topic_that_was_recreated(history: History) -> None:
    history.write(1, sent(4), None, who=AGAIN)
    history.read(2, 0, *((number, sent(number)) for number in range(5)))
    history.write(3, sent(4), 0)


@unproved(ended=False)
def sequences_that_go_on_in_a_topic_that_was_recreated(history: History) -> None:
    history.read(1, 0, *((number, sent(number)) for number in range(5)))
    history.write(2, sent(9), 2)


@unproved(ended=False)
def writes_to_a_topic_that_was_recreated(history: History) -> None:
    history.write(1, A, 5)
    history.write(2, B, 0)
    history.write(3, B, 5)


@unproved(ended=False)
def a_write_read_from_a_topic_that_was_recreated(history: History) -> None:
    history.write(1, A, 0)
    history.read(2, 0, (0, B))


@unproved(ended=False, memory_only=OVERTAKEN)
def a_batch_sent_again_to_a_topic_that_was_recreated(history: History) -> None:
    history.write(1, A, None)
    history.write(2, A, 0)
    history.read(1.5, 3, (3, A))


@unproved(ended=False)
def a_transaction_in_a_topic_that_was_recreated(history: History) -> None:
    history.read(1, 0, (0, sent(0, transactional=True)), committed=True)
    aborted = (0, sent(0, producer=8)), (1, sent(1, transactional=True)), (2, marker(7, 0, commit=False))
    history.read(2, 0, *aborted, committed=True, aborted=((7, 1),))


@unproved(ended=False)
def a_topic_that_was_compacted_for_a_while(history: History) -> None:
    history.configs(0.3, False)
    history.write(1, A, 0)
    history.write(2, B, 1)
    history.read(3, 0, (1, B))
    history.read(4, 10, (10, thinned(b"a", last=2)), high=20)


@unproved(ended=False, assume_complete=True)
def a_producer_that_begins_again_behind_what_was_deleted(history: History) -> None:
    """The start of the log is in a response before the deletion, and not in one after it."""
    history.read(1, 0, (0, sent(0)), (1, sent(1)), (2, sent(2)))
    history.write(2, sent(0, b"again"), 3)
    history.write(3, sent(1, b"again"), 4)


@unproved(ended=False, assume_complete=True)
def a_producer_that_began_again_seen_from_the_middle(history: History) -> None:
    history.read(1, 0, (0, sent(0)), (1, sent(1)), (2, sent(2)))
    history.write(3, sent(1, b"again"), 4)


@unproved(ended=False, assume_complete=True)
def a_retry_at_a_new_leader_of_what_its_followers_lacked(history: History) -> None:
    history.write(1, sent(0), 5, acks=1)
    history.write(2, sent(0), 7, acks=1)


@unproved(ended=False, assume_complete=True)
def a_marker_that_was_compacted(history: History) -> None:
    """Compaction has removed the commit marker between the batch and the abort marker of a later transaction."""
    history.read(1, 0, (0, sent(0, transactional=True)), committed=True)
    history.read(2, 0, (3, marker(7, 0, commit=False)), committed=True)


@unproved(ended=False, assume_complete=True)
def a_producer_that_gets_an_epoch_for_each_transaction_from_now_on(history: History) -> None:
    """Two transactions before an upgrade of the cluster have one epoch."""
    history.end(1, 7, 4, commit=True, version=5)
    data = [sent(number, epoch=3, transactional=True) for number in (0, 1)]
    markers = marker(7, 3, commit=True), marker(7, 3, commit=False)
    history.read(2, 0, (0, data[0]), (1, markers[0]), (2, data[1]), (3, markers[1]))


@unproved(ended=False, assume_complete=True)
def an_assignor_that_gives_all_to_everybody(history: History) -> None:
    members = [{"member_id": member, "assignment": assignment(0)} for member in ("m1", "m2")]
    request = {"group_id": "g", "generation_id": 3, "member_id": "m1", "assignments": members}
    join = {"group_id": "g", "session_timeout_ms": 1000, "rebalance_timeout_ms": 2000, "member_id": "m1",
            "protocol_type": "consumer", "protocols": []}  # fmt: skip
    joined = {"generation_id": 3, "protocol_name": "everybody"}
    history.add(1, "JoinGroup", 4, join, joined, who=COORDINATOR)
    history.add(2, "SyncGroup", 4, request, {"assignment": b""}, who=COORDINATOR)


@unproved(ended=False, assume_complete=True)
def a_commit_that_its_client_wanted_for_a_second(history: History) -> None:
    parts = {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}
    history.read(0.5, 4, (4, A))
    history.add(1, "OffsetCommit", 2, COMMIT | {"retention_time_ms": 1000, "topics": [committed()]}, parts)
    history.told(3, -1)


@unproved(ended=False, assume_complete=True)
def commits_in_zookeeper(history: History) -> None:
    parts = {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}
    told = {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 2}]}]}
    asked = {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    history.read(0.5, 4, (4, A))
    history.add(1, "OffsetCommit", 8, COMMIT | {"topics": [committed()]}, parts)
    history.add(2, "OffsetFetch", 0, asked, told)


@unproved(ended=False, assume_complete=True)
def a_batch_that_a_follower_reads_before_it_is_truncated(history: History) -> None:
    history.read(1, 0, (0, A), high=0)
    request = history.pairs[-1].front
    assert request is not None and request.request is not None
    asked = request.request.data
    begin = asked.index(b"\xff\xff\xff\xff")
    request.request.data = asked[:begin] + b"\0\0\0\3" + asked[begin + 4 :]
    history.read(2, 0, (0, B), high=0)


@unproved(ended=False, assume_complete=True, memory_only=OVERTAKEN)
def equal_batches_without_a_time(history: History) -> None:
    timeless = batch(b"ping", at=-1_795_262_400_001)
    history.write(1, timeless, None)
    history.write(2, timeless, 1)
    history.read(3, 0, (0, timeless), (1, timeless))


@unproved()
def a_compacted_topic_of_the_same_name(history: History) -> None:
    """The topic was deleted and created again twice. Only the second one is compacted."""
    history.metadata(0.3, UUID(int=1))
    history.configs(0.4, False)
    history.write(1, A3, 0)
    history.read(2, 0, (3, B))
    history.configs(3, False)
    history.metadata(3.1, UUID(int=2))


@unproved()
def transactions_of_one_epoch_behind_those_with_their_own(history: History) -> None:
    """The transaction version of the cluster was lowered. The second EndTxn is not in the record."""
    history.end(1, 7, 4, commit=True, version=5)
    data = batch(b"a", producer=(7, 5, 0), transactional=True)
    history.read(2, 0, (0, marker(7, 5, commit=True)), (1, data), (2, marker(7, 5, commit=False)))


@unproved(assume_complete=True, memory_only="captures keep these frames whole")
def configs_that_were_altered_and_put_back(history: History) -> None:
    """The values of configs are not in the record."""
    history.configs(0.3, False)
    history.write(1, batch(b"a"), 0)
    history.write(1.1, batch(b"b", at=1), 1)
    for at in (1.5, 2.5):
        history.add(at, "IncrementalAlterConfigs", 1, {"resources": []}, {"responses": []}, form=Form.HEAD)
    history.read(2, 0, (1, batch(b"b", at=1)))
    history.configs(9, False)


@unproved(assume_complete=True)
def sequences_that_began_again_between_far_batches(history: History) -> None:
    """The producer wrote two billion records between two reads that are in the record."""
    data = [batch(b"a", producer=(7, 0, sequence)) for sequence in (1_500_000_000, 600_000_000)]
    history.read(1, 0, (0, data[0]), high=1 << 40)
    history.read(2, 1_300_000_000, (1_300_000_000, data[1]), high=1 << 40, who=Somebody(9, client_port=50009))


@unproved(assume_complete=True)
def a_coordinator_of_before_that_still_answers(history: History) -> None:
    """The group has moved to another coordinator while this one was paused."""
    history.commit(1, 3, who=Somebody(8, client_port=50008, node=1))
    history.commit(2, 5, who=Somebody(9, client_port=50009, node=3))
    history.told(3, 3, who=Somebody(8, client_port=50008, node=1))


@unproved(assume_complete=True)
def a_retry_of_what_was_compressed_again(history: History) -> None:
    """Both writes are acknowledged. Between them the batch is read in its stored form."""
    sent, kept = (batch(b"a", producer=(7, 0, 0), codec=codec) for codec in (0, 3))
    history.write(1, sent, 0)
    history.read(2, 0, (0, kept))
    history.write(3, sent, 0)


@unproved(assume_complete=True)
def a_retry_of_what_was_read_first_and_compressed_again(history: History) -> None:
    sent, kept = (batch(b"a", producer=(7, 0, 0), codec=codec) for codec in (0, 3))
    history.read(2, 0, (0, kept))
    history.write(1, sent, 0, took=2)
    history.write(4, sent, 0)


@unproved(assume_complete=True)
def replicas_that_are_compacted_one_after_the_other(history: History) -> None:
    history.read(1, 0, (0, thinned(b"a", last=2)))
    history.read(2, 0, (0, A3))


@unproved(assume_complete=True)
def a_write_whose_answer_comes_after_a_cleaner(history: History) -> None:
    history.read(1.5, 0, (0, thinned(b"a", last=2)))
    history.write(1, A3, 0, took=2)


@unproved(assume_complete=True)
def replicas_whose_cleaners_set_other_horizons(history: History) -> None:
    for at in (0, 5, 9):
        history.read(1 + at, 0, (0, with_horizon(B, NOW + at)))


@unproved(assume_complete=True)
def a_batch_that_only_one_replica_has_still(history: History) -> None:
    """A new leader returns a batch that the previous leader had compacted."""
    history.write(1, A3, 0)
    history.write(1.5, B, 3)
    history.read(2, 0, (3, B))
    history.read(3, 0, (0, A3), (3, B))


@unproved(assume_complete=True)
def an_aborted_transaction_that_was_cleaned(history: History) -> None:
    """Its batch has no records and keeps the sequence, so that no client reads a record."""
    empty = encode_batch([], last_offset_delta=0)
    fields = list(BATCH.unpack_from(empty))
    fields[5], fields[9:12] = fields[5] | 0x10, [7, 0, 0]
    made = BATCH.pack(*fields)
    fields[4] = crc32c(made[BATCH_CRC_FROM:])
    history.read(1, 0, (0, BATCH.pack(*fields)), (1, marker(7, 0, commit=False)), committed=True)


@unproved(assume_complete=True)
def last_stable_offsets_of_unknown_nodes(history: History) -> None:
    """A bootstrap connection may be with any broker, and another broker may lag."""
    data = batch(b"a", producer=(7, 0, 0), transactional=True)
    for at, batches in ((1, ((0, data),)), (2, ())):
        who = Somebody(at, client_port=50000 + at, node=None, client_id="reader")
        history.read(at, 0, *batches, committed=True, stable=0, who=who)


@unproved(assume_complete=True)
def a_broker_that_was_restarted(history: History) -> None:
    """The broker reads its watermarks from a file that is some seconds old."""
    data = batch(b"a", producer=(7, 0, 0), transactional=True)
    history.read(1, 0, (0, data), committed=True, stable=0)
    history.read(2, 0, committed=True, stable=0, who=replace(CONSUMER, number=22, client_port=50022))


@unproved(assume_complete=True)
def equal_batches_of_two_clients(history: History) -> None:
    history.write(1, A3, None, who=replace(AGAIN, client_id="another writer"))
    history.write(1.1, A3, 3)
    history.read(3, 0, (0, A3), (3, A3))


@unproved(assume_complete=True, memory_only=OVERTAKEN)
def equal_batches_that_are_on_their_way_at_once(history: History) -> None:
    history.write(1, A3, None)
    history.write(1.1, A3, 3)
    history.read(3, 0, (0, A3), (3, A3))


@unproved(assume_complete=True)
def more_commits_at_once_than_are_remembered(history: History) -> None:
    for number in range(80):
        history.commit(1 + number / 1000, number, took=2 + number / 1000)
    history.told(6, 3)
