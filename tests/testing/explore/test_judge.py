"""Outcomes and signatures of runs."""

from __future__ import annotations

import pytest

from kproxy.testing.explore.model import FaultPlan, ProvedViolation, RaisedError, StepCounters
from kproxy.testing.explore.result import FINDINGS, KnownFailures, judge, plain_message
from tests.testing.explore.made_up import COPY, failed_run, made_run, plan, planned, stable

WRITE = stable(COPY)[1]
TRANSIENT = plan(planned("Produce", "answer lost", WRITE))
FATAL = plan(planned("Produce", "TOPIC_AUTHORIZATION_FAILED, before the work", WRITE))
ERROR = RaisedError("KafkaException", "it is over", "test_copy.py:3")
NOT_APPLIED = (StepCounters(3, 1, 0),)


@pytest.mark.parametrize(
    ("run", "outcome"),
    [
        (made_run(TRANSIENT), "passed"),
        (made_run(FaultPlan()), "passed"),
        (made_run(TRANSIENT, seconds=11.0), "slow"),
        (made_run(TRANSIENT, counters=NOT_APPLIED), "not exercised"),
        (made_run(TRANSIENT, counters=()), "not exercised"),
        (made_run(TRANSIENT, counters=NOT_APPLIED, seconds=11.0), "not exercised"),
        (failed_run(TRANSIENT), "failed"),
        (failed_run(TRANSIENT, counters=NOT_APPLIED), "failed"),
        (failed_run(FATAL), "failed"),
        (made_run(TRANSIENT, violations=(ProvedViolation("lost-write"),)), "failed"),
        (made_run(FATAL, "raised", raised=ERROR, violations=(ProvedViolation("lost-write"),)), "failed"),
        (made_run(TRANSIENT, "raised", raised=ERROR), "raised"),
        (made_run(FATAL, "raised", raised=ERROR), "loud"),
        (made_run(plan(*TRANSIENT.steps, *FATAL.steps), "raised", raised=ERROR), "loud"),
        (made_run(FaultPlan(), "raised", raised=ERROR), "raised"),
        (made_run(TRANSIENT, "hang"), "hang"),
        (made_run(FATAL, "hang"), "hang"),
        (made_run(TRANSIENT, "died"), "died"),
        (made_run(TRANSIENT, "skipped"), "not exercised"),
        (made_run(TRANSIENT, "broken"), "broken"),
        (failed_run(TRANSIENT, counters=(StepCounters(1, 1, 1, ("raised ValueError",)),)), "broken"),
    ],
)
def test_outcomes(run, outcome: str) -> None:
    """Each end of a run is what the design says, and findings have signatures."""
    judged = judge(run, slow_after=10.0)
    assert judged.outcome == outcome
    assert (judged.signature is not None) == (outcome in FINDINGS)


def test_a_line_that_has_moved_is_the_same() -> None:
    """Lines that are put in above it make no news of what a baseline knows; another line of the file does."""
    lines = [("t.py:3", "assert not lost"), ("t.py:30", "assert not lost"), ("t.py:3", "assert not doubled")]
    raised = [RaisedError("AssertionError", "no", where, line) for where, line in lines]
    first, moved, other = (judge(made_run(TRANSIENT, "failed", raised=one)).signature for one in raised)
    assert first == moved != other and first.where == "t.py: assert not lost"


@pytest.mark.parametrize(
    ("run", "what"),
    [
        (made_run(TRANSIENT, "hang", problem="at test_copy.py:3"), "hang: at test_copy.py:3"),
        (made_run(TRANSIENT, "died", raised=RaisedError("killed by SIGSEGV"), problem="gone"), "killed by SIGSEGV"),
        (made_run(TRANSIENT, "skipped", problem="not here"), "skipped: not here"),
        (made_run(TRANSIENT), "passed"),
    ],
)
def test_what_is_said_of_a_run(run, what: str) -> None:
    """Where it hung, by which signal it died, and why it was skipped."""
    assert judge(run).what == what


@pytest.mark.parametrize(
    ("first", "second", "plain"),
    [
        (
            "lost 3 of 100: topic 0f8fad5b-d9cb-469f-a165-70867728950e at 0x7f3a, deadbeef01",
            "lost 17 of 90: topic 1f8fad5b-d9cb-469f-a165-70867728950e at 0x1, 0123abcdef",
            "lost N of N: topic ID at ID, ID",
        ),
        ("lost {b'two', b'one'}", "lost {b'one', b'two', b'six'}", "lost {…}"),
        ("[['a', 'b'], {'c': 1}] != []", "[{'c': 2}, ['b']] != []", "[…] != []"),
        ("lost [one, two", "lost [two", "lost […"),
        ("b'two' is lost", 'b"it\'s" is lost', "b'…' is lost"),
        ("at 127.0.0.1:40123, 2026-11-27T20:38:01.5Z", "at 127.0.0.1:9, 2027-01-02T00:00:00.25Z", "at N, N-N-NTNZ"),
        ("topic xKq3LmNoRk2aB1c-_D3EfG", "topic Zz3LmNoRk2aB1c-_D3EfGh", "topic ID"),
        ("orders[0] of KafkaError{code=X,val=7}", "orders[1] of KafkaError{code=X,val=8}",
         "orders[N] of KafkaError{code=X,val=N}"),
    ],
)  # fmt: skip
def test_signature_varying_message_is_the_same_failure(first: str, second: str, plain: str) -> None:
    """Numbers, ids, addresses, bytes, and elements of collections do not make another failure."""
    one, other = (judge(failed_run(TRANSIENT, text)).signature for text in (first, second))
    assert one == other and one.message == plain and one.short == other.short


def test_signature_other_causes_are_other_findings() -> None:
    """Hangs after faults of other APIs and classes have other signatures; further faults are covered."""
    commit = planned("OffsetCommit", "answer lost", stable(COPY)[2])
    plans = (TRANSIENT, FATAL, plan(commit), plan(*TRANSIENT.steps, commit))
    write, fatal, committed, both = (judge(made_run(one, "hang")).signature for one in plans)
    assert len({write, fatal, committed, both}) == 4 and len({one.short for one in (write, fatal, committed)}) == 3
    assert both.cause == ("OffsetCommit transient", "Produce transient")
    assert write.covers(both) and committed.covers(both) and not fatal.covers(both) and not both.covers(write)
    assert {one.failure for one in (write, fatal, committed, both)} == {judge(made_run(FaultPlan(), "hang")).signature}
    assert both in KnownFailures(frozenset({write})) and committed not in KnownFailures(frozenset({write}))


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("", ""),
        ("\n\n  a 1\nb", "a N"),
        ("12:30:05.123 ago", "N ago"),
        ("café deed", "café deed"),
        ("x" * 9999, "x" * 300),
    ],
)
def test_messages_are_made_alike(text: str, plain: str) -> None:
    """Of a message the first line counts, with N for numbers; words that are hexadecimal by chance stay."""
    assert plain_message(text) == plain
