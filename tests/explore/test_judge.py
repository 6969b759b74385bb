"""Outcomes and signatures of runs."""

from __future__ import annotations

import pytest

from kproxy.explore.judge import FINDINGS, judge, plain_message
from kproxy.explore.model import FaultPlan, ProvedViolation, RaisedError, StepCounters
from tests.explore.made_up import COPY, failed_run, made_run, plan, planned, stable

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


def test_failures_with_other_numbers_are_one_finding() -> None:
    """Numbers and ids in messages, and the fault, do not make another signature."""
    texts = (
        "lost 3 of 100: topic 0f8fad5b-d9cb-469f-a165-70867728950e at 0x7f3a, deadbeef01",
        "lost 17 of 90: topic 1f8fad5b-d9cb-469f-a165-70867728950e at 0x1, 0123abcdef",
    )
    first, second = (judge(failed_run(one, text)) for one, text in zip((TRANSIENT, FATAL), texts, strict=True))
    assert first.signature == second.signature
    assert first.signature.message == "lost N of N: topic ID at ID, ID"
    assert first.signature.short == second.signature.short


def test_failures_of_other_lines_types_and_checks_are_others() -> None:
    """The last line in the test's own code, the type of the exception and verify's checks tell findings apart."""
    signatures = {
        judge(one).signature
        for one in (
            failed_run(TRANSIENT),
            failed_run(TRANSIENT, where="test_copy.py:8"),
            failed_run(TRANSIENT, "doubled 1"),
            failed_run(TRANSIENT, violations=(ProvedViolation("duplicate", "orders[0]"),)),
            made_run(TRANSIENT, "raised", raised=RaisedError("AssertionError", "lost 1", "test_copy.py:7")),
            made_run(TRANSIENT, "hang"),
        )
    }
    assert len(signatures) == 6
    assert len({one.short for one in signatures}) == 6


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
