"""Clean checks: a check is clean only if the record has a comparison that could have proved a violation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kproxy.tools.verify.finding import Verdict, checks, unknown_text
from kproxy.tools.verify.options import outside
from tests.tools.verify.cases.connections import leave
from tests.tools.verify.cases.groups import join, sync
from tests.tools.verify.cases.table import Case, cases
from tests.tools.verify.history import CONSUMER, PRODUCER, History, assignment, batch, marker

A, B = batch(b"a"), batch(b"b", at=1)
DATA, NEXT = (batch(value, producer=(7, 0, at), transactional=True) for at, value in enumerate((b"a", b"b")))
LAWFUL = [case for case in cases() if case.level is None and case.checks]
TOPIC_DOUBTS = {"compaction", "anew"}
"""Doubts that the metadata and the configs of a topic clear."""


def test_each_check_is_clean_in_a_lawful_history() -> None:
    decided = {check for case in LAWFUL for check in case.checks if check in case.history().verdict(**case.terms).clean}
    assert set(checks()) - decided == set()


def unknown_topic(case: Case) -> Verdict:
    """Return the verdict of a history without the topic's id and configs."""
    options: dict[str, Any] = {**case.options, "known": False, "compacted": None}
    return replace(case, options=options).history().verdict()


SOMETIMES = {
    "torn-transaction", "zombie-write", "commit-beyond", "lost-commit", "aborted-commit", "hidden-transaction",
    "phantom-record", "refused-but-stored",
}  # fmt: skip
"""Checks of which only some findings have such a doubt, or that need a complete record."""
PROVED = [
    name
    for name, one in checks().items()
    if one.level == "proved" and TOPIC_DOUBTS & set(one.doubts) and name not in SOMETIMES
]


@pytest.mark.parametrize("name", PROVED)
def test_check_of_unknown_topic_is_not_clean(name: str) -> None:
    """Each finding would have a doubt that nothing in the record clears. The reason names it, and how to clear it."""
    doubts = TOPIC_DOUBTS & set(checks()[name].doubts)
    reasons = {unknown_text(doubt) for doubt in doubts}
    told = []
    for case in LAWFUL:
        by_id = any(pair.front and pair.front.api == "ShareFetch" for pair in case.history().pairs)
        if name in case.checks and not by_id:
            verdict = unknown_topic(case)
            assert name not in verdict.clean, case.name
            told.append(verdict.not_checked.get(name))
    assert reasons & set(told)


@pytest.mark.parametrize("name", ["lost-write", "thinned-batch"])
def test_check_of_compacted_topic_is_not_clean(name: str) -> None:
    history = History(compacted=True)
    history.write(1, A, 0)
    history.read(2, 0, (0, A))
    assert history.verdict().not_checked[name] == "the topics are compacted"


def test_skipped_input_read_again_elsewhere_is_clean() -> None:
    """The input of an aborted transaction is read again on another connection, of which the record has no position."""
    history = History()
    history.txn_commit(1, 2)
    history.end(2, 7, 0, commit=False)
    assert "skipped-input" in history.verdict().not_checked
    history = History()
    history.txn_commit(1, 2)
    history.end(2, 7, 0, commit=False)
    history.read(3, 0, (0, A), (1, B))
    assert "skipped-input" in history.verdict().clean


def test_phantom_record_of_incomplete_record_is_not_clean() -> None:
    """A part before the record leaves no check open, but phantom-record needs all writes."""
    history = History()
    history.write(1, A, 0)
    history.read(2, 0, (0, A))
    assert "phantom-record" in history.verdict(assume_complete=True).clean
    verdict = history.verdict(assume_complete=True, incomplete=[outside("the record began later")])
    assert verdict.not_checked["phantom-record"] == unknown_text("unseen")


def test_check_of_several_topics_is_clean_if_one_is_known() -> None:
    """The other topic has no id and no policy in the record."""
    history = History()
    history.write(1, A, 0)
    history.read(2, 0, (0, A))
    other = History(known=False, compacted=None)
    other.write(3, B, 0)
    other.read(4, 0, (0, B))
    for pair in other.pairs:
        assert pair.front is not None and pair.front.request is not None and pair.front.response is not None
        for frame in (pair.front.request, pair.front.response):
            frame.data = frame.data.replace(b"orders", b"quotes")
    history.pairs += other.pairs
    assert {"lost-write", "inconsistent-offset"} <= set(history.verdict().clean)


def an_empty_response(history: History) -> None:
    history.write(1, A, 0)
    history.read(2, 0)


def a_response_below_the_write(history: History) -> None:
    history.write(1, A, 9)
    history.read(2, 0, (0, B))


def a_response_before_the_acknowledgement(history: History) -> None:
    history.read(1, 0, (0, B), high=1)
    history.write(2, A, 1)


def one_write(history: History) -> None:
    history.write(1, A, 0)


def two_writes_at_other_offsets(history: History) -> None:
    history.write(1, A, 0)
    history.write(2, B, 1)


def one_write_of_a_sequence(history: History) -> None:
    history.write(1, batch(b"a", producer=(7, 0, 0)), 0)


def one_batch(history: History) -> None:
    history.read(1, 0, (0, A))


def an_empty_committed_response(history: History) -> None:
    history.read(1, 0, committed=True)


def a_marker_that_is_read_twice(history: History) -> None:
    history.end(1, 7, 4, commit=True, version=5)
    for at in (2, 3):
        history.read(at, 0, (0, marker(7, 6, commit=True)))


def a_fence_after_a_write(history: History) -> None:
    history.write(1, DATA, 0)
    history.init(2, 7, 1)


def an_offset_before_a_commit(history: History) -> None:
    history.commit(1, 5, took=3)
    history.told(2, 5, who=CONSUMER)


def an_expired_commit(history: History) -> None:
    history.commit(1, 5)
    history.told(100, -1)


def commits_of_one_generation(history: History) -> None:
    history.commit(1, 5)
    history.commit(2, 6)


def a_first_request_for_an_offset(history: History) -> None:
    history.read(1, 0, (0, A))
    history.read(2, 5, who=replace(CONSUMER, number=22, client_port=50022))


def a_committed_transaction_with_offsets(history: History) -> None:
    history.txn_commit(1, 2)
    history.end(2, 7, 0, commit=True)


def an_assignment_of_one_member(history: History) -> None:
    sync(history, 1, {"m1": assignment(0), "m2": assignment()})


def an_assignment_without_a_join(history: History) -> None:
    sync(history, 1, {"m1": assignment(0), "m2": assignment(1)})


def a_join_without_an_assignment(history: History) -> None:
    join(history, 1)


def a_heartbeat_of_a_member_that_stays(history: History) -> None:
    leave(history, heartbeat_at=1)
    history.pairs.pop()


def one_epoch(history: History) -> None:
    history.pairs.clear()
    history.metadata(1, epoch=5)
    history.over = True


def requests_without_an_offer(history: History) -> None:
    history.write(1, A, 0, who=PRODUCER)


@pytest.mark.parametrize(
    ("lived", "names"),
    [
        (an_empty_response, {"lost-write"}),
        (a_response_below_the_write, {"lost-write"}),
        (a_response_before_the_acknowledgement, {"lost-write", "watermark-behind"}),
        (one_write, {"offset-given-twice", "order", "duplicate", "inconsistent-offset"}),
        (two_writes_at_other_offsets, {"inconsistent-offset", "duplicate"}),
        (one_write_of_a_sequence, {"duplicate-sequence", "order"}),
        (one_batch, {"read-disorder", "skipped-input"}),
        (an_empty_committed_response, {"read-beyond-stable"}),
        (a_marker_that_is_read_twice, {"torn-transaction"}),
        (a_fence_after_a_write, {"zombie-write"}),
        (an_offset_before_a_commit, {"lost-commit"}),
        (an_expired_commit, {"lost-commit"}),
        (commits_of_one_generation, {"commit-goes-back", "commit-beyond"}),
        (a_first_request_for_an_offset, {"skipped-input"}),
        (a_committed_transaction_with_offsets, {"skipped-input"}),
        (an_assignment_of_one_member, {"two-owners"}),
        (an_assignment_without_a_join, {"rebalance-gap"}),
        (a_join_without_an_assignment, {"rebalance-gap", "two-owners"}),
        (a_heartbeat_of_a_member_that_stays, {"conformance"}),
        (one_epoch, {"epoch-goes-back"}),
        (requests_without_an_offer, {"unsupported-version"}),
    ],
)
def test_check_without_a_comparison_is_not_clean(lived: Callable[[History], None], names: set[str]) -> None:
    history = History()
    lived(history)
    verdict = history.verdict(assume_complete=True)
    assert verdict.findings == []
    assert names & set(verdict.clean) == set()
    assert {verdict.not_checked[name] for name in names} == {"there is nothing of it in the record"}
