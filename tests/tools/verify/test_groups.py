"""Checks of groups and commits: each with a history that breaks its guarantee, and a lawful one beside it."""

from __future__ import annotations

from typing import Any

from tests.tools.verify.history import COORDINATOR, History, assignment, batch

A, B = batch(b"a", b"aa"), batch(b"b", at=1)


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
    history.told(9, 4)
    assert history.findings()["lost-commit"] == "suspect"


def test_a_commit_that_is_over_later_than_it_is_told() -> None:
    history = History()
    history.commit(1, 5)
    history.told(3, 6)
    history.commit(2, 6, took=8)
    assert history.findings() == {}


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
