"""Lawful histories of operators, shared client ids, unclean elections and forgetful brokers. Nothing may be proved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.exchange_factory import Somebody
from tests.tools.verify.cases.table import unproved
from tests.tools.verify.history import CONSUMER, NOW, PRODUCER, TOPIC, History, batch, marker

A, B, C, D = (batch(value, at=at) for at, value in enumerate((b"a", b"b", b"c", b"d")))
ONE, TWO = (Somebody(number, client_port=50000 + number, client_id="rdkafka") for number in (41, 42))
"""Two processes at one address, with librdkafka's default client id."""
ADMIN = Somebody(43, client_port=50043, client_id="admin", node=2)
LATE = replace(PRODUCER, number=44, client_port=50044)
OLD = -1_795_262_400_000
"""Milliseconds from the batches' usual time to the clock of the history."""
TIMED_OUT = 7


def sent(sequence: int, value: bytes = b"", *, epoch: int = 0, at: int = 0, transactional: bool = False) -> bytes:
    """Return a batch of producer 7."""
    return batch(value or b"v%d" % sequence, producer=(7, epoch, sequence), transactional=transactional, at=at)


def move_group(history: History, at: float, offset: int) -> None:
    """Set the offset of group g as alter_consumer_group_offsets does: generation -1, empty member."""
    history.commit(at, offset, generation=-1, who=ADMIN)


@unproved(assume_complete=True, compacted=False)
def a_group_that_an_operator_moves_ahead(history: History) -> None:
    history.read(1, 0, (0, A), (1, B), high=100)
    move_group(history, 2, 50)


@unproved(assume_complete=True, compacted=False)
def a_group_that_an_operator_moves_to_the_log_end(history: History) -> None:
    """The end of the log is known from responses to writes."""
    for offset, data in enumerate((A, B, C, D)):
        history.write(1 + offset / 10, data, offset)
    history.read(2, 0, (0, A), high=1)
    move_group(history, 3, 4)


@unproved(compacted=False)
def a_group_that_an_operator_moves_back_past_the_proxy(history: History) -> None:
    history.read(1, 0, (0, A), (1, B))
    history.commit(2, 2)
    history.told(3, 1)


@unproved(assume_complete=True, compacted=False)
def a_commit_of_records_whose_writes_have_no_response(history: History) -> None:
    history.read(1, 0, (0, A), high=1)
    history.write(2, B, None)
    history.commit(3, 2)


@unproved(assume_complete=True, compacted=False)
def equal_records_of_two_processes(history: History) -> None:
    history.write(1, A, None, who=ONE)
    history.write(2, A, 1, who=TWO)
    history.read(3, 0, (0, A), (1, A))


@unproved(assume_complete=True, compacted=False)
def an_application_that_sends_again_after_a_failure(history: History) -> None:
    history.write(1, A, 0, error=TIMED_OUT, who=ONE)
    history.write(2, A, 1, who=ONE)
    history.read(3, 0, (0, A), (1, A))


@unproved(assume_complete=True, compacted=False)
def an_application_that_sends_again_on_a_new_connection(history: History) -> None:
    history.write(1, A, None, who=ONE)
    history.write(9, A, 1, who=TWO)
    history.read(10, 0, (0, A), (1, A))


@unproved()
def an_unclean_election_after_acks_all(history: History) -> None:
    """The new leader lacks two batches. The configs are not in the record."""
    history.elect()
    for offset, data in enumerate((A, B, C)):
        history.write(1 + offset, data, offset)
    history.write(5, D, 1)
    history.read(6, 0, (0, A), (1, D))


@unproved(assume_complete=True, compacted=False, unclean=True)
def an_unclean_election_that_the_configs_permit(history: History) -> None:
    history.elect()
    for offset, data in enumerate((A, B, C)):
        history.write(1 + offset, data, offset)
    history.write(5, D, 1)
    history.read(6, 0, (0, A), (1, D))


@unproved(assume_complete=True, compacted=False)
def an_unclean_election_that_an_operator_requests(history: History) -> None:
    """The configs forbid unclean elections, which ElectLeaders ignores."""
    history.elect()
    for offset, data in enumerate((A, B, C)):
        history.write(1 + offset, data, offset)
    topics = [{"topic": TOPIC, "partitions": [0]}]
    history.add(4, "ElectLeaders", 2, {"election_type": 1, "topic_partitions": topics}, {}, who=ADMIN)
    history.write(5, D, 1)
    history.read(6, 0, (0, A), (1, D))


@unproved(assume_complete=True, compacted=False, unclean=True)
def an_idempotent_retry_after_an_unclean_election(history: History) -> None:
    history.elect()
    history.write(1, sent(0), 0)
    history.write(2, sent(1), 1)
    history.read(3, 0, (0, sent(0)), (1, sent(1)))
    history.write(4, sent(1), 0)


@unproved(assume_complete=True, compacted=False, unclean=True)
def a_commit_marker_that_an_unclean_election_lost(history: History) -> None:
    """A reader has the data, whose marker was lost. An operator aborts the transaction that seems to be open."""
    history.elect()
    data = sent(0, transactional=True)
    history.read(1, 0, (0, data), committed=True, stable=2)
    history.read(3, 0, (0, data), (1, marker(7, 0, commit=False)), committed=True, aborted=((7, 0),), who=TWO)


@unproved(assume_complete=True, compacted=False, unclean=True)
def a_commit_that_an_unclean_election_of_the_coordinator_lost(history: History) -> None:
    history.elect()
    history.commit(1, 1)
    history.commit(2, 2)
    history.told(4, 1)


@unproved(assume_complete=True, compacted=False, unclean=True)
def a_fence_that_an_unclean_election_lost(history: History) -> None:
    history.elect()
    history.init(1, 7, 1)
    history.write(3, sent(0, transactional=True), 0)


@unproved(compacted=False)
def a_transaction_that_an_operator_aborts_in_one_partition(history: History) -> None:
    """Each transaction has its own epoch. WriteTxnMarkers did not pass the proxy."""
    history.end(1, 7, 8, commit=True, version=5)
    history.read(2, 0, (1, marker(7, 9, commit=False)))
    history.end(4, 7, 9, commit=True, version=5)


@unproved(assume_complete=True, compacted=False)
def a_transaction_that_an_operator_aborts_through_the_proxy(history: History) -> None:
    topics: list[dict[str, Any]] = [{"name": TOPIC, "partition_indexes": [0]}]
    one = {"producer_id": 7, "producer_epoch": 9, "transaction_result": False, "topics": topics}
    history.end(1, 7, 8, commit=True, version=5)
    history.add(1.5, "WriteTxnMarkers", 1, {"markers": [one]}, {"markers": []}, who=ADMIN)
    history.read(2, 0, (1, marker(7, 9, commit=False)))
    history.end(4, 7, 9, commit=True, version=5)


@unproved(assume_complete=True, compacted=False)
def a_producer_that_the_broker_forgot(history: History) -> None:
    """The timestamps are older than producer.id.expiration.ms, so that the broker stores the retry."""
    old = sent(3, at=OLD)
    history.write(90_000, old, 0)
    history.write(90_002, old, 1)
    history.read(90_003, 0, (0, old), (1, old))


@unproved(assume_complete=True, compacted=False)
def a_producer_that_encodes_its_batch_again(history: History) -> None:
    """Both sends have the same sequence. The broker stores the first one, and acknowledges the second one."""
    first, second = sent(0, b"a"), sent(0, b"a", at=1)
    history.write(1, first, None, who=LATE)
    history.write(2, second, 0)
    history.read(3, 0, (0, first))


@unproved(assume_complete=True, compacted=False)
def a_last_stable_offset_of_a_broker_that_leads_again(history: History) -> None:
    """The broker read the offset before the data. Its offset went back when it became a follower and led again."""
    data = sent(0, transactional=True)
    history.read(1, 0, (0, data), committed=True, stable=0)
    history.read(2, 0, committed=True, stable=0)


@unproved(assume_complete=True, compacted=False)
def a_coordinator_of_an_unknown_node(history: History) -> None:
    """Bootstrap connections lead to any broker, and one of them is no longer the group's coordinator."""
    for number, at in ((45, 1.0), (46, 2.0)):
        history.commit(at, number, who=Somebody(number, client_port=50000 + number, node=None))
    history.told(3, 45, who=Somebody(47, client_port=50047, node=None))


@unproved(assume_complete=True, compacted=False)
def a_default_that_an_operator_restored(history: History) -> None:
    """AlterConfigs deletes the configs that it does not list, so that those of the brokers count."""
    history.elect()
    for at in (1.5, 3):
        resource = {"resource_type": 2, "resource_name": TOPIC, "configs": []}
        history.add(at, "AlterConfigs", 1, {"resources": [resource]}, {"responses": []}, who=ADMIN)
    history.write(1, A, 0)
    history.write(2, B, 0)
    history.read(2.5, 0, (0, B), who=CONSUMER)


assert NOW + OLD == 0, "batches of OLD have the times of the history"


RECENT = OLD + 4_000_000
"""Milliseconds from the batches' usual time to second 4000 of the history."""


@unproved(assume_complete=True, compacted=False)
def a_resent_batch_after_one_with_an_old_timestamp(history: History) -> None:
    """Clients choose timestamps. The broker drops the state of a producer if its last batch has an old one."""
    one, two = sent(0, at=RECENT), sent(1, at=OLD)
    history.write(4001, one, None)
    history.write(4001.1, two, None)
    history.read(4002, 0, (0, one), (1, two))
    history.write(4003, one, 2, who=LATE)
    history.write(4003.1, two, 3, who=LATE)
    history.read(4004, 0, (0, one), (1, two), (2, one), (3, two))


@unproved(assume_complete=True, compacted=False)
def a_fenced_producer_without_state_after_an_old_timestamp(history: History) -> None:
    history.init(4001, 7, 0)
    history.init(4002, 7, 1)
    history.write(4003, sent(0, epoch=1, at=OLD, transactional=True), 0)
    history.end(4004, 7, 1, commit=True)
    history.write(4005, sent(0, at=RECENT, transactional=True), 2, who=LATE)
