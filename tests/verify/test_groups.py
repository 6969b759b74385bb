"""Checks of groups and commits: each with a history that breaks its guarantee, and a lawful one beside it."""

from __future__ import annotations

from typing import Any

from tests.support.exchange_factory import Somebody
from tests.verify.history import CONSUMER, COORDINATOR, TOPIC_ID, History, assignment, batch

A, B = batch(b"a", b"aa"), batch(b"b", at=1)


def test_a_commit_that_is_lost() -> None:
    history = History()
    history.commit(1, 1)
    history.commit(2, 2)
    history.told(3, 2)
    assert history.findings() == {}
    history.told(4, 1)
    assert history.findings() == {"lost-commit": "suspect"}
    assert history.findings(complete=True) == {"lost-commit": "proved"}


def test_commits_that_may_be_the_last() -> None:
    """What overlaps another commit, or may come at any time, may be what a group is told."""
    history = History()
    history.commit(1, 5, answered=False)
    history.commit(2, 6, took=2)
    history.commit(2.5, 7, took=1)
    history.commit(2.6, 8, error=7)
    for at, offset in ((5, 5), (6, 6), (7, 7), (8, 8)):
        history.told(at, offset)
    assert "lost-commit" not in history.findings()
    history.told(9, 9)
    assert history.findings()["lost-commit"] == "suspect"


def test_a_commit_that_is_over_later_than_it_is_told() -> None:
    history = History()
    history.commit(1, 5)
    history.told(3, 6)
    history.commit(2, 6, took=8)
    assert history.findings() == {}


def test_a_commit_that_is_refused_counts_for_nothing() -> None:
    history = History()
    history.commit(1, 5)
    history.commit(2, 6, error=22)
    history.told(3, 5)
    assert history.findings() == {}
    history.told(4, 6)
    assert history.findings() == {"lost-commit": "suspect"}


def test_commits_that_may_have_expired_or_were_deleted() -> None:
    history = History()
    history.commit(1, 5)
    history.told(100, -1)
    assert history.findings() == {}
    history.told(101, 4)
    assert history.findings() == {"lost-commit": "suspect"}
    history = History()
    history.commit(1, 5)
    history.add(2, "DeleteGroups", 2, {"groups_names": ["g"]}, {"results": [{"group_id": "g", "error_code": 0}]})
    history.told(3, -1)
    assert history.findings() == {}


def test_a_commit_that_a_rule_dropped() -> None:
    """A rule that answers in the broker's place shows in the clients' view, and not in the brokers'."""
    history = History()
    history.commit(1, 5)
    history.commit(2, 6, by_rule=True, rules=("forgetful",))
    history.told(3, 5)
    (finding,) = history.verdict().findings
    assert (finding.check, finding.view, finding.rules) == ("lost-commit", "clients", ("forgetful",))
    assert history.findings(view="brokers") == {}


def test_commits_that_go_back() -> None:
    history = History()
    history.commit(1, 5)
    history.commit(2, 4)
    assert history.findings() == {"commit-goes-back": "note"}
    assert history.findings(level="suspect") == {}
    history = History()
    history.commit(1, 5)
    history.told(2, 5)
    history.commit(3, 4, generation=2)
    assert history.findings() == {"commit-goes-back": "suspect"}
    history = History()
    history.commit(1, 5)
    history.commit(1.5, 4, took=1)
    history.commit(1.6, 6)
    assert history.findings() == {}
    history = History()
    history.commit(1, 5, took=2)
    history.commit(1.5, 4, took=2)
    assert history.findings() == {}


def test_a_commit_beyond_what_anybody_read() -> None:
    history = History()
    history.read(1, 0, (0, A))
    history.commit(2, 2)
    assert history.findings() == {}
    history.commit(3, 4)
    assert history.findings() == {"commit-beyond": "suspect"}
    assert history.findings(complete=True)["commit-beyond"] == "proved"


def test_a_consumer_that_passes_over_input() -> None:
    history = History()
    history.read(1, 0, (0, A))
    history.read(2, 2, (2, B))
    history.read(3, 1, (0, A))
    assert history.findings() == {}
    history.read(4, 7, (7, A))
    assert history.findings() == {"skipped-input": "suspect"}


def test_a_consumer_that_was_told_where_to_go_on() -> None:
    history = History()
    history.read(1, 0, (0, A))
    history.told(2, 7, who=CONSUMER)
    history.read(3, 7, (7, A))
    assert history.findings() == {}


def sync(history: History, at: float, members: dict[str, bytes], *, protocol: str = "range", error: int = 0) -> None:
    """Add the SyncGroup of a leader."""
    given = [{"member_id": member, "assignment": data} for member, data in members.items()]
    request = {"group_id": "g", "generation_id": 3, "member_id": "m1", "protocol_type": "consumer",
               "protocol_name": protocol, "assignments": given}  # fmt: skip
    history.add(at, "SyncGroup", 5, request, {"assignment": b"", "error_code": error}, who=COORDINATOR)


def test_two_owners_in_a_generation() -> None:
    for second, protocol, error, found in (
        (assignment(1), "range", 0, {}),
        (assignment(1, 0), "range", 0, {"two-owners": "proved"}),
        (assignment(0), "everywhere", 0, {"two-owners": "suspect"}),
        (assignment(0), "range", 22, {}),
        (b"no assignment", "range", 0, {}),
    ):
        history = History()
        sync(history, 1, {"m1": assignment(0), "m2": second}, protocol=protocol, error=error)
        assert history.findings() == found


def test_an_assignment_of_null() -> None:
    """No broker takes it, but it can be written: it says nothing, and the others are read."""
    history = History()
    members: Any = {"m1": assignment(0), "m2": None, "m3": assignment(0)}
    sync(history, 1, members)
    assert history.findings() == {"two-owners": "proved"}


def heartbeat(
    history: History, at: float, member: str, owned: list[int] | None, given: list[int] | None, **more: Any
) -> None:
    """Add a ConsumerGroupHeartbeat."""

    def topics(numbers: list[int] | None) -> list[dict[str, Any]] | None:
        return None if numbers is None else [{"topic_id": TOPIC_ID, "partitions": numbers}]

    request = {
        "group_id": "g",
        "member_id": member,
        "member_epoch": more.pop("epoch", 1),
        "topic_partitions": topics(owned),
    }
    assigned = None if given is None else {"topic_partitions": topics(given)}
    response = {"member_id": member, "member_epoch": 1, "heartbeat_interval_ms": 5000, "assignment": assigned}
    history.add(at, "ConsumerGroupHeartbeat", 0, request, response, who=Somebody(5, client_port=50005), **more)


def test_a_partition_that_is_given_before_it_is_given_up() -> None:
    for acknowledged in (False, True):
        history = History()
        heartbeat(history, 1, "m1", [], [0, 1])
        heartbeat(history, 2, "m1", [0, 1], [0])
        if acknowledged:
            heartbeat(history, 3, "m1", [0], None)
        heartbeat(history, 4, "m2", [], [1])
        assert history.findings() == ({} if acknowledged else {"two-owners": "suspect"})


def test_a_member_that_gives_up_while_another_is_given() -> None:
    history = History()
    heartbeat(history, 1, "m1", [], [0, 1])
    heartbeat(history, 2, "m1", [0, 1], [0])
    heartbeat(history, 3, "m1", [0], None, took=2)
    heartbeat(history, 3.1, "m2", [], [1])
    assert history.findings() == {}


def test_a_member_that_has_left_or_is_silent() -> None:
    history = History()
    heartbeat(history, 1, "m1", [], [0])
    heartbeat(history, 2, "m1", None, None, epoch=-1)
    heartbeat(history, 3, "m2", [], [0])
    heartbeat(history, 60, "m3", [], [0])
    assert history.findings() == {}


def test_a_rebalance_that_takes_too_long() -> None:
    join = {
        "group_id": "g",
        "session_timeout_ms": 1000,
        "rebalance_timeout_ms": 2000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [],
    }
    for at, found in ((2.5, {}), (4, {"rebalance-gap": "note"})):
        history = History()
        history.add(1, "JoinGroup", 4, join, {"error_code": 79, "protocol_name": ""}, who=COORDINATOR)
        sync(history, at, {"m1": assignment(0)})
        assert history.findings() == found
