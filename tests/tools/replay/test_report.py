"""Reports."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.tools.replay.compare import IgnoredFields
from kproxy.tools.replay.recording import ReplayOutcome
from kproxy.tools.replay.report import READY, ReplayReport, percentiles


@pytest.fixture
def report() -> ReplayReport:
    return ReplayReport(IgnoredFields(), {}, {}.get)


def answered(
    tools: Any, key: int, version: int, then: dict[str, Any], now: dict[str, Any], **more: Any
) -> ReplayOutcome:
    """An exchange that was answered so in the recording, and now."""
    message = tools.answer(key, version, **now)
    one = tools.exchange(key, version, {}, then)
    return ReplayOutcome(one, "answered", b"\0\0\0\1", message, 0.004, **more)


def test_errors_stand_in_front(tools: Any, report: ReplayReport) -> None:
    """APIs with error differences, then others; so do the samples of an API."""
    report.add(answered(tools, 3, 9, {}, {}))
    report.add(answered(tools, 10, 2, {"node_id": 1}, {"node_id": 2}))
    report.add(answered(tools, 12, 3, {}, {"error_code": 27}))
    report.add(answered(tools, 14, 3, {"assignment": b"1"}, {"error_code": 27}))

    assert [row.api for row in report.sorted()] == ["Heartbeat", "SyncGroup", "FindCoordinator", "Metadata"]
    assert [one["path"] for one in report.as_json()["apis"][1]["samples"]] == ["error_code", "assignment"]
    assert report.differs


def test_nothing_differs_when_all_is_the_same(tools: Any, report: ReplayReport) -> None:
    """Requests that expect nothing, and those that could not be sent, are no differences."""
    report.add(answered(tools, 3, 9, {}, {}))
    report.add(ReplayOutcome(tools.exchange(0, 9, {"acks": 0, "topic_data": []}), "silent"))
    report.add(ReplayOutcome(tools.exchange(17, 1, {"mechanism": "PLAIN"}, {}), "not sent", reason="authentication"))
    row = report.rows["SaslHandshake"]

    assert not report.differs
    assert (report.rows["Produce"].silent, row.sent, row.not_sent) == (1, 0, 1)
    assert report.reasons == {"SaslHandshake 1: authentication": 1}


def test_an_answer_that_does_not_come_differs(tools: Any, report: ReplayReport) -> None:
    """Unless there was none in the recording either."""
    report.add(ReplayOutcome(tools.exchange(3, 9, {}, None), "unanswered", reason="no answer in 10 s"))
    before = report.differs
    report.add(ReplayOutcome(tools.exchange(3, 9, {}, {}), "unanswered", reason="no answer in 10 s"))

    assert (before, report.differs) == (False, True)
    assert report.as_json()["apis"][0]["samples"][0]["now"] == "no answer in 10 s"


def test_an_answer_without_one_to_compare_with_is_counted(tools: Any, report: ReplayReport) -> None:
    """The recording ends before it came."""
    one = ReplayOutcome(tools.exchange(3, 9, {}, None), "answered", b"\0\0\0\1", tools.answer(3, 9), 0.01)
    report.add(one)

    assert report.rows["Metadata"].uncompared == 1


def test_a_cluster_that_was_not_ready_is_not_compared_with_one_that_is(tools: Any, report: ReplayReport) -> None:
    """The recorded client had asked again."""
    report.add(answered(tools, 22, 4, {"error_code": 14}, {}))

    assert not report.differs
    assert report.notes == {READY: 1}


def test_answers_that_cannot_be_read_are_compared_as_bytes(tools: Any, report: ReplayReport) -> None:
    """Without their correlation ids."""
    one = tools.exchange(3, 9, {}, {})
    one.seen.response.data = b"\0\0\0\x07rest"
    report.add(ReplayOutcome(one, "answered", b"\0\0\0\x09rest", None, 0.01))
    report.add(ReplayOutcome(one, "answered", b"\0\0\0\x09other", None, 0.01))

    assert (report.rows["Metadata"].same, report.rows["Metadata"].different) == (1, 1)


def test_times_are_told_by_their_middle_and_their_end() -> None:
    """In milliseconds; nothing of nothing."""
    assert percentiles([0.001 * number for number in range(1, 101)]) == {"p50": 51.0, "p99": 100.0}
    assert percentiles([]) is None


def test_requests_that_were_sent_again_are_counted(tools: Any, report: ReplayReport) -> None:
    """And notes once for each request."""
    report.add(answered(tools, 3, 9, {}, {}, tries=3, notes=["odd", "odd"]))

    assert report.rows["Metadata"].tries == 2
    assert report.notes == {"odd": 1}
