"""Histories of groups: commits, positions, owners of partitions, and rebalances."""

from __future__ import annotations

from typing import Any

from tests.support.exchange_factory import Somebody
from tests.tools.verify.cases.table import broken, lawful
from tests.tools.verify.history import CONSUMER, COORDINATOR, TOPIC_ID, History, assignment, batch

A, B = batch(b"a", b"aa"), batch(b"b", at=1)
OTHER = Somebody(8, client_port=50008, client_id="reader", node=2)
"""Another connection to the coordinator."""


# ---- commit-beyond


@broken("commit-beyond", level="suspect")
def a_commit_beyond_all_reads(history: History) -> None:
    history.read(1, 0, (0, A))
    history.commit(3, 4)


@broken("commit-beyond", terms={"assume_complete": True})
def a_commit_beyond_the_log_end_of_a_complete_record(history: History) -> None:
    history.create(0.5)
    history.write(0.8, A, 0)
    history.read(1, 0, (0, A), high=2)
    history.commit(2, 2)
    history.commit(3, 9)


@lawful("commit-beyond", "lost-commit", "commit-goes-back")
def commits_of_reads(history: History) -> None:
    history.read(1, 0, (0, A))
    history.commit(2, 2)
    history.told(3, 2)


@lawful("commit-beyond")
def a_commit_of_a_share_group_read(history: History) -> None:
    history.read(1, 0, (0, A))
    history.share(2, (0, A), (2, B), acquired=((0, 2),))
    history.commit(3, 3)


# ---- lost-commit


@broken("lost-commit", level="suspect")
def an_older_offset_than_was_committed(history: History) -> None:
    history.commit(1, 1)
    history.commit(2, 2)
    history.told(4, 1)


@broken("lost-commit", terms={"assume_complete": True})
def an_older_offset_than_was_committed_in_a_complete_record(history: History) -> None:
    history.commit(1, 1)
    history.commit(2, 2)
    history.told(4, 1)


@broken("lost-commit", level="suspect")
def a_commit_that_was_refused_and_is_returned(history: History) -> None:
    history.commit(1, 5)
    history.commit(2, 6, error=22)
    history.told(4, 6)


@lawful("lost-commit")
def commits_that_overlap(history: History) -> None:
    history.commit(2, 6, took=2)
    history.commit(2.5, 7, took=1, who=OTHER)
    history.told(6, 6)


@lawful("lost-commit")
def a_commit_that_was_refused(history: History) -> None:
    history.commit(1, 5)
    history.commit(2, 6, error=22)
    history.told(3, 5)


@lawful("lost-commit")
def a_commit_that_may_have_expired(history: History) -> None:
    history.commit(1, 5)
    history.told(100, -1)


@lawful("lost-commit")
def a_group_that_was_deleted(history: History) -> None:
    history.commit(1, 5)
    history.add(2, "DeleteGroups", 2, {"groups_names": ["g"]}, {"results": [{"group_id": "g", "error_code": 0}]})
    history.told(3, -1)


# ---- commit-goes-back


@broken("commit-goes-back", level="note")
def a_commit_that_goes_back_in_a_generation(history: History) -> None:
    history.commit(1, 5)
    history.commit(2, 4)


@broken("commit-goes-back", level="suspect")
def a_commit_that_goes_back_in_the_next_generation(history: History) -> None:
    history.commit(1, 5)
    history.told(2, 5)
    history.commit(3, 4, generation=2)


@lawful("commit-goes-back", "lost-commit")
def a_commit_that_goes_on_in_the_next_generation(history: History) -> None:
    history.commit(1, 5)
    history.told(2, 5)
    history.commit(3, 6, generation=2)


@lawful("commit-goes-back")
def commits_that_overlap_in_one_generation(history: History) -> None:
    history.commit(1, 5, took=2)
    history.commit(1.5, 4, took=2)


@lawful("commit-goes-back")
def a_commit_after_overlapping_ones(history: History) -> None:
    history.commit(1, 5)
    history.commit(1.5, 4, took=1, who=OTHER)
    history.commit(1.6, 6)


# ---- skipped-input


@broken("skipped-input", level="suspect")
def a_consumer_that_skips_offsets(history: History) -> None:
    history.read(1, 0, (0, A))
    history.read(4, 7, (7, A))


@broken("skipped-input", level="suspect")
def a_transaction_that_skips_the_input_of_an_aborted_one(history: History) -> None:
    history.read(1, 0, (0, batch(b"x", b"y")))
    history.txn_commit(2, 2)
    history.end(3, 7, 0, commit=False)
    history.txn_commit(5, 3)
    history.end(6, 7, 0, commit=True)


@lawful("skipped-input")
def a_transaction_that_reads_the_input_of_an_aborted_one_again(history: History) -> None:
    history.read(1, 0, (0, batch(b"x", b"y")))
    history.txn_commit(2, 2)
    history.end(3, 7, 0, commit=False)
    history.read(4, 0, (0, batch(b"x", b"y")), (2, batch(b"z", at=1)))
    history.txn_commit(5, 3)
    history.end(6, 7, 0, commit=True)


@lawful("skipped-input")
def a_consumer_that_reads_on_and_back(history: History) -> None:
    history.read(1, 0, (0, A))
    history.read(2, 2, (2, B))
    history.read(3, 1, (0, A))


@lawful("skipped-input")
def a_consumer_that_goes_on_at_the_offset_of_its_group(history: History) -> None:
    history.read(1, 0, (0, A))
    history.told(2, 7, who=CONSUMER)
    history.read(3, 7, (7, A))


# ---- two-owners


def sync(history: History, at: float, members: dict[str, bytes], *, protocol: str = "range", error: int = 0) -> None:
    """Add the SyncGroup of a leader."""
    given = [{"member_id": member, "assignment": data} for member, data in members.items()]
    request = {"group_id": "g", "generation_id": 3, "member_id": "m1", "protocol_type": "consumer",
               "protocol_name": protocol, "assignments": given}  # fmt: skip
    history.add(at, "SyncGroup", 5, request, {"assignment": b"", "error_code": error}, who=COORDINATOR)


def heartbeat(
    history: History, at: float, member: str, owned: list[int] | None, given: list[int] | None, **more: Any
) -> None:
    """Add a ConsumerGroupHeartbeat."""

    def topics(numbers: list[int] | None) -> list[dict[str, Any]] | None:
        return None if numbers is None else [{"topic_id": TOPIC_ID, "partitions": numbers}]

    request = {
        "group_id": "g", "member_id": member, "member_epoch": more.pop("epoch", 1), "topic_partitions": topics(owned),
    }  # fmt: skip
    assigned = None if given is None else {"topic_partitions": topics(given)}
    response = {"member_id": member, "member_epoch": 1, "heartbeat_interval_ms": 5000, "assignment": assigned}
    who = Somebody(5, client_port=50005)
    history.add(at, "ConsumerGroupHeartbeat", 0, request, response, **({"who": who} | more))


@broken("two-owners")
def a_partition_of_two_members(history: History) -> None:
    sync(history, 1, {"m1": assignment(0), "m2": assignment(1, 0)})


@broken("two-owners", level="suspect")
def a_partition_of_two_members_by_an_own_assignor(history: History) -> None:
    sync(history, 1, {"m1": assignment(0), "m2": assignment(0)}, protocol="everywhere")


@broken("two-owners", level="suspect")
def a_partition_that_is_given_before_it_is_revoked(history: History) -> None:
    heartbeat(history, 1, "m1", [], [0, 1])
    heartbeat(history, 2, "m1", [0, 1], [0])
    heartbeat(history, 4, "m2", [], [1])


@lawful("two-owners")
def a_partition_of_one_member(history: History) -> None:
    sync(history, 1, {"m1": assignment(0), "m2": assignment(1)})


@lawful("two-owners")
def a_refused_assignment(history: History) -> None:
    sync(history, 1, {"m1": assignment(0), "m2": assignment(0)}, error=22)


@lawful("two-owners")
def a_partition_that_is_given_after_it_is_revoked(history: History) -> None:
    heartbeat(history, 1, "m1", [], [0, 1])
    heartbeat(history, 2, "m1", [0, 1], [0])
    heartbeat(history, 3, "m1", [0], None)
    heartbeat(history, 4, "m2", [], [1])


@lawful("two-owners")
def a_partition_that_is_given_while_it_is_revoked(history: History) -> None:
    heartbeat(history, 1, "m1", [], [0, 1])
    heartbeat(history, 2, "m1", [0, 1], [0])
    heartbeat(history, 3, "m1", [0], None, took=2)
    heartbeat(history, 3.1, "m2", [], [1], who=Somebody(6, client_port=50006))


@lawful("two-owners")
def a_member_that_has_left_and_one_that_is_silent(history: History) -> None:
    heartbeat(history, 1, "m1", [], [0])
    heartbeat(history, 2, "m1", None, None, epoch=-1)
    heartbeat(history, 3, "m2", [], [0])
    heartbeat(history, 60, "m3", [], [0])


# ---- rebalance-gap


def join(history: History, at: float) -> None:
    """Add a JoinGroup of a member that allows two seconds for a rebalance, without an assignment."""
    request = {"group_id": "g", "session_timeout_ms": 1000, "rebalance_timeout_ms": 2000, "member_id": "",
               "protocol_type": "consumer", "protocols": []}  # fmt: skip
    history.add(at, "JoinGroup", 4, request, {"error_code": 79, "protocol_name": ""}, who=COORDINATOR)


@broken("rebalance-gap", level="note")
def a_rebalance_of_three_seconds(history: History) -> None:
    join(history, 1)
    sync(history, 4, {"m1": assignment(0)})


@broken("rebalance-gap", level="note")
def a_rebalance_of_a_minute_after_several_joins(history: History) -> None:
    join(history, 1)
    join(history, 2)
    sync(history, 61, {"m1": assignment(0), "m2": assignment(1)})


@lawful("rebalance-gap")
def a_rebalance_of_a_second(history: History) -> None:
    join(history, 1)
    sync(history, 2.5, {"m1": assignment(0)})


@lawful("rebalance-gap")
def a_minute_between_two_rebalances(history: History) -> None:
    join(history, 1)
    sync(history, 2, {"m1": assignment(0)})
    join(history, 61)
    sync(history, 62, {"m1": assignment(0)})
