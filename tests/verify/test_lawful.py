"""Lawful histories that look as if a guarantee were broken: none of them proves anything, and most have no finding."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from tests.verify.history import CONSUMER, COORDINATOR, TOPIC, TOPIC_ID, History, assignment, batch, marker, thinned

A, B = batch(b"a"), batch(b"b", at=1)
COMMIT = {"group_id": "g", "generation_id_or_member_epoch": 1, "member_id": ""}


def sent(sequence: int, value: bytes = b"", *, producer: int = 7, epoch: int = 0, transactional: bool = False) -> bytes:
    """Return a batch of producer 7, or another."""
    return batch(value or b"value %d" % sequence, producer=(producer, epoch, sequence), transactional=transactional)


def committed(number: int = 0, offset: int = 5) -> dict[str, object]:
    """Return a topic with one partition, for requests about commits."""
    return {"name": TOPIC, "partitions": [{"partition_index": number, "committed_offset": offset}]}


def a_retry_in_a_topic_that_was_made_anew(history: History) -> None:
    history.write(1, sent(4), None)
    history.read(2, 0, *((number, sent(number)) for number in range(5)))
    history.write(3, sent(4), 0)


def sequences_that_go_on_in_a_topic_that_was_made_anew(history: History) -> None:
    history.read(1, 0, *((number, sent(number)) for number in range(5)))
    history.write(2, sent(9), 2)


def writes_to_a_topic_that_was_made_anew(history: History) -> None:
    history.write(1, A, 5)
    history.write(2, B, 0)
    history.write(3, B, 5)


def a_write_read_from_a_topic_that_was_made_anew(history: History) -> None:
    history.write(1, A, 0)
    history.read(2, 0, (0, B))


def a_batch_sent_again_to_a_topic_that_was_made_anew(history: History) -> None:
    history.write(1, A, None)
    history.write(2, A, 0)
    history.read(1.5, 3, (3, A))


def a_transaction_in_a_topic_that_was_made_anew(history: History) -> None:
    history.read(1, 0, (0, sent(0, transactional=True)), committed=True)
    aborted = (0, sent(0, producer=8)), (1, sent(1, transactional=True)), (2, marker(7, 0, commit=False))
    history.read(2, 0, *aborted, committed=True, aborted=((7, 1),))


def a_producer_that_begins_again_behind_what_was_deleted(history: History) -> None:
    """Where the log begins is told before it was deleted, and not when the producer begins again."""
    history.read(1, 0, (0, sent(0)), (1, sent(1)), (2, sent(2)))
    history.write(2, sent(0, b"again"), 3)
    history.write(3, sent(1, b"again"), 4)


def a_producer_that_began_again_seen_from_the_middle(history: History) -> None:
    history.read(1, 0, (0, sent(0)), (1, sent(1)), (2, sent(2)))
    history.write(3, sent(1, b"again"), 4)


def a_retry_at_a_new_leader_of_what_its_followers_lacked(history: History) -> None:
    history.write(1, sent(0), 5, acks=1)
    history.write(2, sent(0), 7, acks=1)


def a_marker_that_was_cleaned(history: History) -> None:
    """Between data that was committed and the marker of a later transaction was another marker."""
    history.read(1, 0, (0, sent(0, transactional=True)), committed=True)
    history.read(2, 0, (3, marker(7, 0, commit=False)), committed=True)


def a_topic_that_was_compacted_for_a_while(history: History) -> None:
    history.configs(0.3, False)
    history.write(1, A, 0)
    history.write(2, B, 1)
    history.read(3, 0, (1, B))
    history.read(4, 10, (10, thinned(b"a", last=2)), high=20)


def a_producer_that_gets_an_epoch_for_each_transaction_from_now_on(history: History) -> None:
    """As with an upgrade: two transactions of before had one epoch."""
    history.end(1, 7, 4, commit=True, version=5)
    data = [sent(number, epoch=3, transactional=True) for number in (0, 1)]
    markers = marker(7, 3, commit=True), marker(7, 3, commit=False)
    history.read(2, 0, (0, data[0]), (1, markers[0]), (2, data[1]), (3, markers[1]))


def an_assignor_that_gives_all_to_everybody(history: History) -> None:
    members = [{"member_id": member, "assignment": assignment(0)} for member in ("m1", "m2")]
    request = {"group_id": "g", "generation_id": 3, "member_id": "m1", "assignments": members}
    join = {"group_id": "g", "session_timeout_ms": 1000, "rebalance_timeout_ms": 2000, "member_id": "m1",
            "protocol_type": "consumer", "protocols": []}  # fmt: skip
    joined = {"generation_id": 3, "protocol_name": "everybody"}
    history.add(1, "JoinGroup", 4, join, joined, who=COORDINATOR)
    history.add(2, "SyncGroup", 4, request, {"assignment": b""}, who=COORDINATOR)


def a_commit_that_its_client_wanted_for_a_second(history: History) -> None:
    parts = {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}
    history.read(0.5, 4, (4, A))
    history.add(1, "OffsetCommit", 2, COMMIT | {"retention_time_ms": 1000, "topics": [committed()]}, parts)
    history.told(3, -1)


def commits_in_zookeeper(history: History) -> None:
    parts = {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}
    told = {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 2}]}]}
    asked = {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    history.read(0.5, 4, (4, A))
    history.add(1, "OffsetCommit", 8, COMMIT | {"topics": [committed()]}, parts)
    history.add(2, "OffsetFetch", 0, asked, told)


def what_a_follower_reads_before_it_is_truncated(history: History) -> None:
    history.read(1, 0, (0, A))
    request = history.pairs[-1].front
    assert request is not None and request.request is not None
    asked = request.request.data
    begin = asked.index(b"\xff\xff\xff\xff")
    request.request.data = asked[:begin] + b"\0\0\0\3" + asked[begin + 4 :]
    history.read(2, 0, (0, B))


def equal_batches_without_a_time(history: History) -> None:
    timeless = batch(b"ping", at=-1_795_262_400_001)
    history.write(1, timeless, None)
    history.write(2, timeless, 1)
    history.read(3, 0, (0, timeless), (1, timeless))


LAWFUL = (
    a_retry_in_a_topic_that_was_made_anew,
    sequences_that_go_on_in_a_topic_that_was_made_anew,
    writes_to_a_topic_that_was_made_anew,
    a_write_read_from_a_topic_that_was_made_anew,
    a_batch_sent_again_to_a_topic_that_was_made_anew,
    a_transaction_in_a_topic_that_was_made_anew,
    a_topic_that_was_compacted_for_a_while,
)
"""Histories that the record does not tell all about."""
ALWAYS_LAWFUL = (
    a_producer_that_begins_again_behind_what_was_deleted,
    a_producer_that_began_again_seen_from_the_middle,
    a_retry_at_a_new_leader_of_what_its_followers_lacked,
    a_marker_that_was_cleaned,
    a_producer_that_gets_an_epoch_for_each_transaction_from_now_on,
    an_assignor_that_gives_all_to_everybody,
    a_commit_that_its_client_wanted_for_a_second,
    commits_in_zookeeper,
    what_a_follower_reads_before_it_is_truncated,
    equal_batches_without_a_time,
)


@pytest.mark.parametrize("lived", [*LAWFUL, *ALWAYS_LAWFUL], ids=lambda lived: lived.__name__)
def test_what_may_have_been_is_no_proof(lived: Callable[[History], None]) -> None:
    """The topic's id and configs are told once, and not again at the end."""
    history = History(compacted=None)
    lived(history)
    history.over = True
    assert "proved" not in history.findings().values()
    if lived in ALWAYS_LAWFUL:
        assert "proved" not in history.findings(complete=True).values()


def test_a_topic_has_its_id_while_it_was_told_before_and_after() -> None:
    """By Metadata, or by requests that name the topic by its id."""
    for other, version, level in ((None, 11, "suspect"), (TOPIC_ID, 11, "proved"), (None, 13, "proved"),
                                  (UUID(int=5), 11, "suspect")):  # fmt: skip
        history = History()
        history.write(1, A, 0)
        if version == 13:
            part = {"partition_index": 0, "high_watermark": 9, "last_stable_offset": 9, "log_start_offset": 0,
                    "records": b"\0" * 8 + B[8:]}  # fmt: skip
            wanted = {"topic_id": TOPIC_ID, "partitions": [{"partition": 0, "fetch_offset": 0}]}
            told = {"responses": [{"topic_id": TOPIC_ID, "partitions": [part]}]}
            history.add(2, "Fetch", 13, {"session_epoch": -1, "topics": [wanted]}, told, who=CONSUMER)
        else:
            history.read(2, 0, (0, B))
        if other is not None:
            history.metadata(3, other)
        history.over = True
        assert history.findings() == {"inconsistent-offset": level}


def test_a_check_by_itself_finds_what_it_finds_among_all() -> None:
    """What one check knows by another is known, too, when the other is not asked for."""
    lost, torn, read = History(), History(), History()
    lost.write(1, A, 0)
    lost.write(2, B, 1)
    lost.read(3, 0, (1, B))
    data = sent(0, transactional=True)
    torn.write(1, data, 0)
    torn.end(2, 7, 0, commit=True)
    torn.read(3, 0, (0, data), (1, marker(7, 0, commit=False)))
    read.read(1, 0, (0, data), (1, marker(7, 0, commit=False)), committed=True)
    for history, check in ((lost, "lost-write"), (torn, "torn-transaction"), (read, "aborted-read")):
        found = history.findings()
        assert check in found
        assert history.findings(only=frozenset({check})) == {check: found[check]}
