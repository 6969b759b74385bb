"""Lines of a summary become events."""

from __future__ import annotations

from kproxy.record.audit.request_event import summary_event
from kproxy.record.events.schema import CONNECTION, SUMMARY_EVENT
from kproxy.record.observer.summary_rows import BOUNDS, SummaryRow
from tests.record.audit.exchanges import FakeWho, wall
from tests.support.event_validation import mistakes

MINUTE = wall(60.0)
OF_CONNECTION = {column.name for column in CONNECTION}


def said(line: SummaryRow, who: FakeWho) -> dict[str, object]:
    time, data = summary_event(line, who)
    assert time == MINUTE
    assert mistakes(SUMMARY_EVENT, data) == []
    assert data["principal"] == "User:alice"
    return {name: value for name, value in data.items() if name not in OF_CONNECTION}


def test_line_of_an_api() -> None:
    """Times are texts, durations milliseconds to the microsecond; the buckets are as many as their bounds and one."""
    buckets = [0] * (len(BOUNDS) + 1)
    line = SummaryRow(
        MINUTE, MINUTE + 1, MINUTE + 2.5, "Produce", 9, "till", error="NOT_CONTROLLER", acks=-1, count=3,
        request_bytes=300, response_bytes=120, latency_ms=3.00049, latency_max_ms=2.0, latency_buckets=buckets,
        rule_ms=0.0, wait_ms=0.0,
    )  # fmt: skip
    assert said(line, FakeWho()) == {
        "minute": "2026-11-21T10:01:00.000000Z", "first": "2026-11-21T10:01:01.000000Z",
        "last": "2026-11-21T10:01:02.500000Z", "client_id": "till", "api": "Produce", "version": 9,
        "error": "NOT_CONTROLLER", "acks": -1, "count": 3, "request_bytes": 300, "response_bytes": 120,
        "latency_ms": 3.0, "latency_max_ms": 2.0, "latency_buckets": buckets, "rule_ms": 0.0, "wait_ms": 0.0,
    }  # fmt: skip


def test_line_of_a_partition() -> None:
    """Zero is a value; the broker's name of the topic stands beside the client's."""
    line = SummaryRow(
        MINUTE, MINUTE, MINUTE, "Fetch", 12, topic="orders", partition=0, codec="none", count=2, records=0, bytes=0,
        batches=0, high_watermark=0, empty=2,
    )  # fmt: skip
    start = "2026-11-21T10:01:00.000000Z"
    assert said(line, FakeWho(renamed={"orders": "prod.orders"})) == {
        "minute": start, "first": start, "last": start, "api": "Fetch", "version": 12, "topic": "orders",
        "broker_topic": "prod.orders", "partition": 0, "codec": "none", "count": 2, "records": 0, "bytes": 0,
        "batches": 0, "high_watermark": 0, "empty": 2,
    }  # fmt: skip


def test_topics_by_id() -> None:
    """A name that was not known when the request passed is asked for again; if nobody knows it the id stands alone."""
    line = SummaryRow(MINUTE, MINUTE, MINUTE, "Fetch", 13, topic_id="0a", partition=1, count=1)
    assert "topic" not in said(line, FakeWho())
    known = said(line, FakeWho(topics={"0a": "orders"}, renamed={"orders": "prod.orders"}))
    assert (known["topic"], known["broker_topic"], known["topic_id"]) == ("orders", "prod.orders", "0a")
