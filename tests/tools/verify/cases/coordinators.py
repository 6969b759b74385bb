"""Histories of coordinators: offsets of transactions, producer ids and epochs, members of groups."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.support.exchange_factory import Somebody
from tests.tools.verify.cases.table import broken, lawful
from tests.tools.verify.history import COORDINATOR, PRODUCER, TOPIC, TOPIC_ID, History, assignment, batch, marker

DATA = batch(b"a", producer=(7, 0, 0), transactional=True)
MORE = batch(b"b", producer=(7, 0, 1), transactional=True)
COMMIT, ABORT = marker(7, 0, commit=True), marker(7, 0, commit=False)
OTHER = Somebody(8, client_port=50008, client_id="other", node=2)
ONE, TWO = Somebody(11, client_port=50011, client_id="m1"), Somebody(12, client_port=50012, client_id="m2")
COMPLETE = {"assume_complete": True}


def txn_commit(history: History, at: float, offset: int, epoch: int = 0, **more: Any) -> None:
    """Add a TxnOffsetCommit of producer 7 to the coordinator of group g."""
    history.txn_commit(at, offset, 7, epoch, who=COORDINATOR, **more)


def init(
    history: History, at: float, producer_id: int, epoch: int, name: str | None = "t", *,
    expected: tuple[int, int] = (-1, -1), who: Somebody = PRODUCER, **more: Any,
) -> None:  # fmt: skip
    """Add an InitProducerId. `expected`: producer id and epoch in the request."""
    request = {"transactional_id": name, "transaction_timeout_ms": 1000, "producer_id": expected[0],
               "producer_epoch": expected[1]}  # fmt: skip
    history.add(
        at, "InitProducerId", 4, request, {"producer_id": producer_id, "producer_epoch": epoch}, who=who, **more
    )


# ---- lost-commit: commits of transactions


@broken("lost-commit", level="suspect")
@broken("lost-commit", terms=COMPLETE)
def a_committed_transaction_whose_offset_is_not_reported(history: History) -> None:
    history.commit(1, 1)
    txn_commit(history, 2, 5)
    history.end(3, 7, 0, commit=True)
    history.told(4, 1, stable=True)


@broken("lost-commit", terms=COMPLETE)
def the_second_of_two_transactions_whose_offset_is_not_reported(history: History) -> None:
    for number in (0, 1):
        txn_commit(history, 1 + 3 * number, 5 + number, number)
        history.end(2 + 3 * number, 7, number, commit=True, version=5)
    history.told(7, 5, stable=True)


@lawful("lost-commit", "aborted-commit")
@lawful("lost-commit", "aborted-commit", terms=COMPLETE)
def a_marker_that_is_written_after_the_response(history: History) -> None:
    """EndTxn succeeds before the markers are written, and only `require_stable` waits for them."""
    history.commit(1, 1)
    txn_commit(history, 2, 5)
    history.end(3, 7, 0, commit=True)
    history.told(4, 1)
    history.told(5, 5, stable=True)


@lawful("lost-commit", "aborted-commit", terms=COMPLETE)
def an_aborted_transaction_before_the_last_commit(history: History) -> None:
    history.commit(1, 1)
    txn_commit(history, 2, 5)
    history.end(3, 7, 0, commit=False)
    history.told(4, 1, stable=True)


@lawful("lost-commit", "aborted-commit", terms=COMPLETE)
def a_commit_by_the_application_after_that_of_its_transaction(history: History) -> None:
    """The order of the commits counts, not that of the markers."""
    txn_commit(history, 1, 5)
    history.commit(2, 6)
    history.end(3, 7, 0, commit=True)
    history.told(4, 6, stable=True)


@lawful("lost-commit", "aborted-commit", terms=COMPLETE)
def an_end_without_a_response(history: History) -> None:
    """Nothing shows which of the two EndTxn ended the transaction."""
    history.commit(1, 1)
    txn_commit(history, 2, 5)
    history.end(3, 7, 0, commit=True, answered=False, who=OTHER)
    history.end(4, 7, 0, commit=False, error=48)
    init(history, 5, 7, 1)
    history.told(6, 5, stable=True)


@lawful("lost-commit", terms=COMPLETE)
def commits_that_overlap_the_response(history: History) -> None:
    """The first one may come after the third, and the second after the response."""
    history.commit(1, 1, took=1)
    history.commit(1.5, 3, took=2)
    history.commit(3, 2, took=1)
    history.told(3.6, 1, took=1.4)


@lawful("lost-commit", "aborted-commit", terms=COMPLETE)
def a_group_that_is_deleted_after_a_transaction(history: History) -> None:
    txn_commit(history, 1, 5)
    history.end(2, 7, 0, commit=True)
    history.add(3, "DeleteGroups", 2, {"groups_names": ["g"]}, {"results": [{"group_id": "g", "error_code": 0}]})
    history.told(4, -1, stable=True)


@lawful("lost-commit", terms=COMPLETE)
def a_commit_that_overlaps_the_deletion_of_its_group(history: History) -> None:
    """The coordinator takes the commit before it deletes the group, and responds to it later."""
    deleted = {"results": [{"group_id": "g", "error_code": 0}]}
    history.commit(1, 5, took=2)
    history.add(1.5, "DeleteGroups", 2, {"groups_names": ["g"]}, deleted, who=OTHER, took=0.5)
    history.told(4, -1)


@lawful("lost-commit", terms=COMPLETE)
def a_response_that_overlaps_the_deletion_of_the_group(history: History) -> None:
    deleted = {"results": [{"group_id": "g", "error_code": 0}]}
    history.commit(1, 5)
    history.add(2, "DeleteGroups", 2, {"groups_names": ["g"]}, deleted, who=OTHER, took=2)
    history.told(3, -1)


@lawful("lost-commit", terms=COMPLETE)
def a_group_whose_deletion_has_no_response(history: History) -> None:
    history.commit(1, 5)
    history.add(2, "DeleteGroups", 2, {"groups_names": ["g"]}, None, who=OTHER)
    history.told(3, -1)


# ---- aborted-commit


@broken("aborted-commit", level="suspect")
@broken("aborted-commit", terms=COMPLETE)
def an_offset_of_an_aborted_transaction(history: History) -> None:
    history.commit(1, 1)
    txn_commit(history, 2, 5)
    history.end(3, 7, 0, commit=False)
    history.told(4, 5, stable=True)


@broken("aborted-commit", terms=COMPLETE)
def an_offset_of_a_producer_that_was_fenced(history: History) -> None:
    """InitProducerId aborts the open transaction. Only an earlier OffsetFetch shows where the group was."""
    history.told(1, 1)
    txn_commit(history, 2, 5)
    init(history, 3, 7, 1)
    history.told(4, 5, stable=True)


@lawful("aborted-commit", "lost-commit", terms=COMPLETE)
def an_aborted_offset_that_the_next_transaction_commits(history: History) -> None:
    history.commit(1, 1)
    for number, commit in enumerate((False, True)):
        txn_commit(history, 2 + 3 * number, 5, number)
        history.end(3 + 3 * number, 7, number, commit=commit, version=5)
    history.told(8, 5, stable=True)


@lawful("aborted-commit", "lost-commit", terms=COMPLETE)
def an_aborted_offset_at_which_the_group_was_before(history: History) -> None:
    history.told(1, 5)
    txn_commit(history, 2, 5)
    history.end(3, 7, 0, commit=False)
    history.told(4, 5, stable=True)


@lawful("aborted-commit", "lost-commit", terms=COMPLETE)
def an_aborted_offset_that_a_late_commit_explains(history: History) -> None:
    history.commit(1, 1)
    txn_commit(history, 2, 5)
    history.end(3, 7, 0, commit=False)
    history.told(4, 5, stable=True)
    history.commit(3.5, 5, took=3, who=OTHER)


# ---- hidden-transaction


@broken("hidden-transaction")
def a_committed_transaction_that_one_response_lists_as_aborted(history: History) -> None:
    history.read(1, 0, (0, DATA), (1, COMMIT), committed=True, aborted=((7, 0),))


@broken("hidden-transaction")
def a_committed_transaction_whose_marker_another_response_has(history: History) -> None:
    history.read(1, 0, (0, DATA), committed=True, aborted=((7, 0),))
    history.read(2, 1, (1, COMMIT), (2, batch(b"x")), committed=True)


@broken("hidden-transaction", level="suspect")
@broken("hidden-transaction", terms=COMPLETE)
def a_transaction_that_end_txn_committed(history: History) -> None:
    history.write(1, DATA, 0)
    history.end(2, 7, 0, commit=True)
    history.read(3, 0, (0, DATA), committed=True, aborted=((7, 0),))


@broken("hidden-transaction", level="suspect")
@broken("hidden-transaction", terms=COMPLETE)
def a_transaction_of_its_own_epoch_that_end_txn_committed(history: History) -> None:
    """The end of the next transaction shows that the transaction version was not lowered."""
    history.write(1, DATA, 0)
    history.end(2, 7, 0, commit=True, version=5)
    history.end(3, 7, 1, commit=True, version=5)
    history.read(4, 0, (0, DATA), committed=True, aborted=((7, 0),))


@lawful("hidden-transaction", "aborted-read")
def an_aborted_transaction_before_a_committed_one(history: History) -> None:
    history.read(1, 0, (0, DATA), (1, ABORT), (2, MORE), (3, COMMIT), committed=True, aborted=((7, 0),))
    history.read(2, 2, (2, MORE), (3, COMMIT), committed=True)


@lawful("hidden-transaction", "aborted-read", terms=COMPLETE)
def two_producers_of_which_one_aborts(history: History) -> None:
    other = batch(b"o", producer=(8, 0, 0), transactional=True)
    history.write(1, DATA, 0)
    history.write(1.5, other, 1)
    history.end(2, 7, 0, commit=True)
    history.read(3, 0, (0, DATA), (1, other), (2, COMMIT), (3, marker(8, 0, commit=False)), committed=True,
                 aborted=((8, 1),))  # fmt: skip


@lawful("hidden-transaction", terms=COMPLETE)
def an_aborted_list_that_an_uncommitted_read_has(history: History) -> None:
    """Without read_committed, clients ignore the list."""
    history.read(1, 0, (0, DATA), (1, COMMIT), aborted=((7, 0),))


@lawful("hidden-transaction")
def a_transaction_in_a_topic_that_was_created_again(history: History) -> None:
    history.read(1, 0, (0, DATA), committed=True, aborted=((7, 0),))
    history.add(2, "DeleteTopics", 4, {"topic_names": [TOPIC]}, {"responses": [{"name": TOPIC, "error_code": 0}]})
    history.read(3, 0, (0, DATA), (1, COMMIT), committed=True)


@lawful("hidden-transaction")
def a_batch_of_the_epoch_before(history: History) -> None:
    """The end of epoch 0 is not in the record: it aborted the first batch."""
    history.write(1, DATA, 0)
    history.write(2, batch(b"b", producer=(7, 1, 0), transactional=True), 2)
    history.end(3, 7, 1, commit=True, version=5)
    history.end(4, 7, 2, commit=True, version=5)
    history.read(5, 0, (0, DATA), (1, marker(7, 1, commit=False)), committed=True, aborted=((7, 0),))


# ---- producer-id-reused


@broken("producer-id-reused")
def one_producer_id_for_two_transactional_ids(history: History) -> None:
    init(history, 1, 7, 0, "a")
    init(history, 2, 7, 1, "b")


@broken("producer-id-reused")
def one_producer_id_for_two_idempotent_producers(history: History) -> None:
    init(history, 1, 7, 0, None, who=ONE)
    init(history, 2, 7, 0, None, who=TWO)


@broken("producer-id-reused")
def a_transactional_producer_id_for_an_idempotent_producer(history: History) -> None:
    init(history, 1, 7, 0, "a", who=ONE)
    init(history, 2, 7, 0, None, who=TWO)


@lawful("producer-id-reused", "producer-epoch-goes-back")
def a_transactional_id_that_gets_the_next_epoch(history: History) -> None:
    for epoch in range(3):
        init(history, 1 + epoch, 7, epoch)
        history.end(1.5 + epoch, 7, epoch, commit=True)


@lawful("producer-id-reused", "producer-epoch-goes-back")
def a_transactional_id_that_gets_another_producer_id(history: History) -> None:
    """After the last epoch, or when the transactional id had expired."""
    init(history, 1, 7, 32766)
    init(history, 2, 9, 0)
    init(history, 3, 10, 0, None)
    init(history, 4, 11, 0, None)


@lawful("producer-id-reused")
def one_exchange_that_two_proxies_recorded(history: History) -> None:
    """Both proxies of a chain recorded the exchange, and one of them renames the transactional id."""
    init(history, 1, 7, 0, "tenant.t", took=1, who=ONE)
    init(history, 1.2, 7, 0, "t", took=0.5, who=TWO)


# ---- producer-epoch-goes-back


@broken("producer-epoch-goes-back")
def an_epoch_that_is_lower_than_before(history: History) -> None:
    init(history, 1, 7, 4)
    init(history, 2, 7, 3)


@broken("producer-epoch-goes-back")
def an_epoch_that_two_producers_get(history: History) -> None:
    """The second one does not fence the first one."""
    init(history, 1, 7, 4, who=ONE)
    init(history, 2, 7, 4, who=TWO)


@broken("producer-epoch-goes-back")
def an_epoch_below_that_of_the_last_end(history: History) -> None:
    init(history, 1, 7, 4)
    history.end(2, 7, 4, commit=True, version=5)
    history.end(3, 7, 5, commit=True, version=5)
    init(history, 4, 7, 5)


@lawful("producer-epoch-goes-back")
def a_request_for_the_next_epoch_that_is_repeated(history: History) -> None:
    """KIP-360: the response to the first one may be lost, so the second one gets the same epoch."""
    init(history, 1, 7, 4)
    init(history, 2, 7, 5, expected=(7, 4))
    init(history, 3, 7, 5, expected=(7, 4))


@lawful("producer-epoch-goes-back")
def two_requests_at_a_time(history: History) -> None:
    init(history, 1, 7, 5, took=1, who=ONE)
    init(history, 1.5, 7, 4, took=1, who=TWO)


@lawful("producer-epoch-goes-back")
def an_end_that_is_repeated(history: History) -> None:
    init(history, 1, 7, 0)
    history.end(2, 7, 0, commit=True, version=5)
    history.end(3, 7, 0, commit=True, version=5)
    init(history, 4, 7, 2)


# ---- two-owners: consumer groups (KIP-848)


def heartbeat(
    history: History, at: float, member: str, owned: list[int] | None, given: list[int] | None, *, epoch: int = 1,
    now: int | None = None, error: int = 0, topic_id: UUID = TOPIC_ID, answered: bool = True, **more: Any,
) -> None:  # fmt: skip
    """Add a ConsumerGroupHeartbeat. `owned` and `given`: partitions in the request and in the response; `epoch` and
    `now`: member epochs in the request and in the response."""

    def topics(numbers: list[int] | None) -> list[dict[str, Any]] | None:
        return None if numbers is None else [{"topic_id": topic_id, "partitions": numbers}]

    request = {"group_id": "g", "member_id": member, "member_epoch": epoch, "topic_partitions": topics(owned)}
    response = {
        "member_id": member, "member_epoch": (max(epoch, 1) if now is None else now), "heartbeat_interval_ms": 5000,
        "error_code": error, "assignment": None if given is None else {"topic_partitions": topics(given)},
    }  # fmt: skip
    sent = more.pop("who", ONE if member == "m1" else TWO)
    history.add(at, "ConsumerGroupHeartbeat", 0, request, response if answered else None, who=sent, **more)


@broken("two-owners", level="suspect")
@broken("two-owners", terms=COMPLETE)
def a_partition_of_a_member_that_goes_on(history: History) -> None:
    heartbeat(history, 1, "m1", [], [0, 1], epoch=0)
    heartbeat(history, 2, "m1", [0, 1], [0])
    heartbeat(history, 3, "m2", [], [1], epoch=0, now=2)
    heartbeat(history, 4, "m1", None, None)


@broken("two-owners", level="suspect")
@broken("two-owners", terms=COMPLETE)
def a_partition_that_its_owner_lists_again(history: History) -> None:
    heartbeat(history, 1, "m1", [0], None, epoch=3)
    heartbeat(history, 2, "m2", [], [0], epoch=0, now=4)
    heartbeat(history, 3, "m1", [0], None, epoch=3)


@lawful("two-owners", "generation-goes-back")
def a_partition_that_was_given_up(history: History) -> None:
    heartbeat(history, 1, "m1", [], [0, 1], epoch=0)
    heartbeat(history, 2, "m1", [0, 1], [0])
    heartbeat(history, 3, "m1", [0], None, now=2)
    heartbeat(history, 4, "m2", [], [1], epoch=0, now=2)
    heartbeat(history, 5, "m1", None, None, epoch=2)


@lawful("two-owners", "generation-goes-back")
def a_partition_of_a_member_that_was_fenced(history: History) -> None:
    """It did not give up the partition within its rebalance timeout. Its next heartbeat is refused."""
    heartbeat(history, 1, "m1", [], [0, 1], epoch=0)
    heartbeat(history, 2, "m1", [0, 1], [0])
    heartbeat(history, 3, "m2", [], [1], epoch=0, now=2)
    heartbeat(history, 4, "m1", None, None, now=0, error=110)
    heartbeat(history, 5, "m1", [], [0], epoch=0, now=3)


@lawful("two-owners")
def a_list_without_a_response_of_a_member_that_was_fenced(history: History) -> None:
    """The member does not know yet that its partition is another's, and lists it once more."""
    heartbeat(history, 1, "m1", [], [0], epoch=0)
    heartbeat(history, 60, "m2", [], [0], epoch=0, now=2)
    heartbeat(history, 61, "m1", [0], None, answered=False)
    heartbeat(history, 62, "m2", None, [0], epoch=2)


@lawful("two-owners")
def a_partition_of_a_topic_that_was_created_again(history: History) -> None:
    heartbeat(history, 1, "m1", [], [0], epoch=0)
    history.metadata(1.5, UUID(int=5))
    heartbeat(history, 2, "m2", [], [0], epoch=0, now=2, topic_id=UUID(int=5))
    heartbeat(history, 3, "m1", None, [])


@lawful("two-owners", terms=COMPLETE)
def a_list_without_a_response_that_gives_up_a_partition(history: History) -> None:
    """The member sends it again. The record may have the first one later than the second."""
    heartbeat(history, 1, "m1", [], [0, 1], epoch=0)
    heartbeat(history, 2, "m1", [0, 1], [0])
    heartbeat(history, 3, "m1", [0], None, answered=False, who=OTHER)
    heartbeat(history, 4, "m2", [], [1], epoch=0, now=2)
    heartbeat(history, 5, "m1", [0], None, now=2)


@lawful("two-owners")
def a_static_member_that_another_one_replaces(history: History) -> None:
    heartbeat(history, 1, "m1", [], [0], epoch=0)
    heartbeat(history, 2, "m1", None, None, epoch=-2, now=-2)
    heartbeat(history, 3, "m2", [], [0], epoch=0)
    heartbeat(history, 4, "m2", [0], None)


# ---- generation-goes-back


def join(history: History, at: float, generation: int, *, member: str = "m1", who: Somebody = ONE) -> None:
    """Add a JoinGroup of the classic protocol."""
    request = {"group_id": "g", "session_timeout_ms": 1000, "rebalance_timeout_ms": 2000, "member_id": member,
               "protocol_type": "consumer", "protocols": []}  # fmt: skip
    response = {"generation_id": generation, "protocol_name": "range", "member_id": member}
    history.add(at, "JoinGroup", 4, request, response, who=who)


def sync(history: History, at: float, generation: int, *, member: str = "m1", who: Somebody = ONE) -> None:
    """Add the SyncGroup of a leader that keeps partition 0."""
    given = [{"member_id": member, "assignment": assignment(0)}]
    request = {"group_id": "g", "generation_id": generation, "member_id": member, "assignments": given}
    history.add(at, "SyncGroup", 4, request, {"assignment": assignment(0)}, who=who)


def beat(
    history: History, at: float, generation: int, *, member: str = "m1", error: int = 0, who: Somebody = ONE
) -> None:
    """Add a Heartbeat of the classic protocol."""
    request = {"group_id": "g", "generation_id": generation, "member_id": member}
    history.add(at, "Heartbeat", 3, request, {"error_code": error}, who=who)


@broken("generation-goes-back")
def a_member_that_joins_an_older_generation(history: History) -> None:
    join(history, 1, 5)
    sync(history, 2, 5)
    join(history, 3, 4)


@broken("generation-goes-back")
def a_heartbeat_of_an_older_generation_that_is_accepted(history: History) -> None:
    join(history, 1, 5)
    sync(history, 2, 5)
    beat(history, 3, 4)


@broken("generation-goes-back", level="suspect")
def a_commit_of_an_older_generation_that_is_accepted(history: History) -> None:
    sync(history, 2, 5)
    history.commit(3, 4, generation=4, member="m1", who=ONE)


@broken("generation-goes-back")
def a_member_epoch_below_that_of_the_request(history: History) -> None:
    heartbeat(history, 1, "m1", None, None, epoch=5, now=4)


@broken("generation-goes-back", level="suspect")
def a_member_epoch_below_that_of_an_earlier_response(history: History) -> None:
    heartbeat(history, 1, "m1", None, None, epoch=4, now=6)
    heartbeat(history, 2, "m1", None, None, epoch=4, now=5)


@lawful("generation-goes-back")
def a_generation_that_no_coordinator_stored(history: History) -> None:
    """No SyncGroup follows, and another coordinator goes on with the generation before."""
    for at, generation in ((2, 5), (2.2, 6), (2.4, 7)):
        join(history, at, generation)
    join(history, 2.7, 5)
    sync(history, 3, 5)


@lawful("generation-goes-back")
def a_group_that_was_emptied(history: History) -> None:
    """Its offsets had expired, so nothing was left of it, and a new member begins with generation 1."""
    join(history, 1, 5)
    sync(history, 2, 5)
    join(history, 3, 1, member="m2", who=TWO)
    sync(history, 4, 1, member="m2", who=TWO)


@lawful("generation-goes-back")
def a_heartbeat_of_an_older_generation_that_is_refused(history: History) -> None:
    join(history, 1, 5)
    sync(history, 2, 5)
    beat(history, 3, 4, error=22)
    join(history, 4, 6)


@lawful("generation-goes-back")
def a_consumer_that_joins_a_new_group_of_the_same_name(history: History) -> None:
    """The group was empty and without offsets. The member joins with epoch 0, as before."""
    heartbeat(history, 1, "m1", None, None, epoch=5)
    heartbeat(history, 2, "m1", None, None, epoch=5, now=0, error=69)
    heartbeat(history, 3, "m1", [], [0], epoch=0, now=1)
    heartbeat(history, 4, "m1", [0], None)


@lawful("generation-goes-back")
def a_commit_with_the_epoch_of_an_assignment(history: History) -> None:
    """KIP-1251: a member of a consumer group may commit with the epoch of its assignment."""
    heartbeat(history, 1, "m1", None, None, epoch=5, now=6)
    history.commit(2, 4, generation=5, member="m1", who=ONE)
