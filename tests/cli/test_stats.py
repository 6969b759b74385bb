"""`kproxy stats`: captures, request events and summaries, counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kproxy.cli import main, stats
from kproxy.cli.stats import OTHERS, ExchangeTally
from kproxy.record.audit.lines import EventEncoder
from kproxy.record.events.schema import REQUEST_EVENT, SUMMARY_EVENT
from kproxy.record.observer.summary_rows import Latencies
from tests.support.exchange_factory import NOON, conversation, event_lines, write_capture


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["stats", *map(str, words)])


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """The conversation of six exchanges."""
    return write_capture(tmp_path / "traffic.pcapng", conversation())


def counted(*words: object) -> Any:
    ran = run(*words, "-o", "json")
    assert ran.exit_code == 0
    return json.loads(ran.stdout)


def test_a_capture_counted(capture: Path) -> None:
    """By API, topic, client and error."""
    found = counted(capture)

    assert (found["first"], found["connections"]) == ("2026-11-21T12:00:01.000000Z", 2)
    assert {name: found["total"][name] for name in ("requests", "errors", "unanswered", "max_ms")} == {
        "requests": 6, "errors": 1, "unanswered": 1, "max_ms": 250.0,
    }  # fmt: skip
    assert [(one["api"], one["requests"]) for one in found["apis"]] == [
        ("Produce", 3), ("Metadata", 1), ("Fetch", 1), ("Heartbeat", 1),
    ]  # fmt: skip
    assert [(one["client_id"], one["requests"]) for one in found["clients"]] == [("etl", 4), ("report", 2)]
    (of_request, of_partition) = found["errors"]
    assert of_request == {
        "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "level": "request", "by": "broker", "count": 1,
    }  # fmt: skip
    assert of_partition == {**of_request, "level": "partition"}
    (orders,) = found["topics"]
    assert {name: value for name, value in orders.items() if not name.endswith("bytes")} == {
        "topic": "orders", "partitions": 2, "requests": 5, "written_records": 8, "unconfirmed_records": 1,
        "read_records": 2, "errors": 1,
    }  # fmt: skip


def test_events_count_the_same(capture: Path, tmp_path: Path) -> None:
    """Except that events of one source are one file."""
    path = tmp_path / "events.ndjson"
    path.write_bytes(event_lines(conversation()))

    assert counted(path) == counted(capture)


def test_a_filter_counts_what_fits(capture: Path) -> None:
    """And nothing else."""
    found = counted(capture, "~k produce ~e")

    assert (found["total"]["requests"], found["apis"][0]["p50_ms"]) == (1, 250.0)


def test_tables(capture: Path) -> None:
    """In a pipe cells are apart by tabs, below a head; long tables are cut."""
    lines = run(capture, "--top", 1).stdout.splitlines()

    assert lines[0] == ("6 exchanges on 2 connections, 2026-11-21T12:00:01.000000Z to 2026-11-21T12:00:06.000000Z")
    assert lines[2] == "by API (the first 1 of 4)"
    assert lines[3].split("\t")[:3] == ["api", "requests", "errors"]
    assert lines[4].split("\t")[:3] == ["Produce", "3", "1"]
    assert len([line for line in lines if line.startswith("by ")]) == 3


def summary(**columns: Any) -> bytes:
    data = {"connection": 1, "client_id": "c", "api": "Produce", "first": "2026-11-21T12:00:00.000000Z",
            "last": "2026-11-21T12:00:59.000000Z", **columns}  # fmt: skip
    return EventEncoder("host/1/0").line(SUMMARY_EVENT.name, NOON, data)


def test_summaries_count_as_what_they_stand_for(tmp_path: Path) -> None:
    """Lines without a topic are requests, those with one are about it; of latencies the bounds are known."""
    path = tmp_path / "events.ndjson"
    buckets = [0, 8, 0, 0, 0, 1]
    path.write_bytes(
        summary(count=9, request_bytes=900, latency_buckets=buckets, latency_max_ms=40.0)
        + summary(count=1, error="CLUSTER_AUTHORIZATION_FAILED")
        + summary(count=10, topic="orders", partition=2, records=500, bytes=4000)
        + summary(count=1, topic="orders", partition=3, error="NOT_LEADER_OR_FOLLOWER")
    )
    found = counted(path)

    total = found["total"]
    assert (total["requests"], total["errors"], total["request_bytes"], total["max_ms"]) == (10, 1, 900, 40.0)
    assert (total["p50_ms"], total["p99_ms"]) == (pytest.approx(2, rel=0.05), 40.0)
    (orders,) = found["topics"]
    assert (orders["written_records"], orders["requests"], orders["partitions"], orders["errors"]) == (500, 11, 2, 1)
    assert {one["error"]: one["count"] for one in found["errors"]} == {
        "CLUSTER_AUTHORIZATION_FAILED": 1, "NOT_LEADER_OR_FOLLOWER": 1,
    }  # fmt: skip


def test_a_filter_cannot_judge_summaries(tmp_path: Path) -> None:
    """They are left out, and that is said."""
    path = tmp_path / "events.ndjson"
    path.write_bytes(summary(count=9))
    ran = run(path, "~k produce")

    assert ran.stdout.startswith("0 exchanges on 0 connections, - to -")
    assert "skipped events: 1 kproxy.summary.v1" in ran.stderr


def test_percentiles_are_right_within_a_twentieth() -> None:
    """Of any number of times."""
    latencies = Latencies()
    for number in range(1, 10_001):
        latencies.add(number / 10)

    for share in (0.5, 0.9, 0.99):
        assert latencies.percentile(share) == pytest.approx(1000 * share, rel=0.05)
    assert (latencies.percentile(1.0), Latencies().percentile(0.5)) == (1000.0, None)


def test_names_beyond_the_limit_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that memory does not grow with the file."""
    monkeypatch.setattr(stats, "MOST_NAMES", 3)
    made = ExchangeTally()
    for number in range(9):
        topic = {"topic": f"t{number}", "partitions": [{"partition": 0}]}
        made.add({"api": "Produce", "client_id": f"c{number}", "topics": [topic], "error": f"E{number}"}, "s")
    found = made.shown()

    assert {one["client_id"]: one["requests"] for one in found["clients"]} == {"c0": 1, "c1": 1, "c2": 1, OTHERS: 6}
    assert {one["topic"]: one["requests"] for one in found["topics"]} == {"t0": 1, "t1": 1, "t2": 1, OTHERS: 6}
    assert sum(one["count"] for one in found["errors"]) == 9
    assert len(found["errors"]) == 4


def test_partitions_that_events_do_not_tell_are_said_to_be_missing(tmp_path: Path) -> None:
    """By topic; requests and errors have them."""
    path = tmp_path / "events.ndjson"
    parts = [{"partition": 0, "records": 5}]
    data = {"api": "Produce", "outcome": "answered", "acks": -1, "topics": [{"topic": "t", "partitions": parts}],
            "omitted_partitions": 7}  # fmt: skip
    path.write_bytes(EventEncoder("s").line(REQUEST_EVENT.name, NOON, data))
    ran = run(path)

    assert (ran.exit_code, "7 partitions are missing by topic" in ran.stderr) == (0, True)


def test_without_a_file() -> None:
    """A usage error."""
    ran = run("~k produce")

    assert (ran.exit_code, "file not found" in ran.stderr) == (2, True)
