"""Groups, topics that a broker has not confirmed, tenants' names, and how names stand in what Prometheus reads."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kproxy.base import cooperative
from kproxy.protocol.records import Record, encode_batch
from kproxy.record.metrics.totals import LabelTotals, MetricsConfig
from kproxy.record.metrics.traffic import MOST_AT_ONCE, exposition, registry_of
from kproxy.record.metrics.worker_totals import LabelCollector
from kproxy.record.observer.summary import MOST_APIS, MOST_CELLS, MOST_FOLDED, Summary
from kproxy.record.observer.summary_rows import Ending
from kproxy.tools.rehearse.dialogue import request, response
from tests.record.metrics.test_counts_agree import EVERYTHING, Labelled, Numbers
from tests.record.observer.watching import BROKER, CLIENT
from tests.support.hooks import hooked
from tests.support.line_count import LineCount

pytestmark = pytest.mark.process
PRODUCE, FETCH, OFFSET_COMMIT, JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT = 0, 1, 8, 11, 68
HOSTILE = ('a"b\\c\n# HELP d 1\n', "\x1b[2J\x00\x7f", "ü" * 300, "{}=,", "\udcff", "", "other", "+Inf", "a" * 249)
LINES_AT_ONCE = 40_000
"""Python lines between two yields: 128 cells of some 200 lines each."""
LINES_OF_DRAIN = 250_000
"""Python lines that make one object of each of 3,000 cells: 7 ms."""
PROMTOOL = shutil.which("promtool")


def talk(labelled: Labelled, key: int, version: int, asked: dict[str, Any], answered: dict[str, Any], client: str = "c",
         cid: int = 1) -> None:  # fmt: skip
    """One exchange passes."""
    labelled.hear(CLIENT, request(key, version, cid, client, **asked))
    labelled.hear(BROKER, response(key, version, cid, **answered))


def write(labelled: Labelled, topic: str, error: int = 0, acks: int = -1, client: str = "c") -> None:
    """A record is written, or refused."""
    batch = encode_batch([Record(0, 0, b"k", b"v")])
    asked = {"acks": acks, "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]}
    part = {"index": 0, "error_code": error, "base_offset": -1 if error else 41}
    if acks:
        answered = {"responses": [{"name": topic, "partition_responses": [part]}]}
        talk(labelled, PRODUCE, 9, asked, answered, client)
    else:
        labelled.hear(CLIENT, request(PRODUCE, 9, 1, client, **asked))
        labelled.observer.report_silent()


def commit(labelled: Labelled, group: str, offset: int, error: int = 0) -> None:
    asked = {"group_id": group, "member_id": "m", "topics": [
        {"name": "topic-1", "partitions": [{"partition_index": 0, "committed_offset": offset}]}
    ]}  # fmt: skip
    answered = {"topics": [{"name": "topic-1", "partitions": [{"partition_index": 0, "error_code": error}]}]}
    talk(labelled, OFFSET_COMMIT, 8, asked, answered)


def named(numbers: Numbers, metric: str) -> dict[tuple[str, ...], float]:
    return {key[1:]: number for key, number in numbers.items() if key[0] == metric}


def test_refused_and_unconfirmed_names_never_become_series() -> None:
    """UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, and acks=0, of which no broker says anything."""
    labelled = Labelled("none")
    labelled.totals.tables["topic"].series.clear()
    for number, error in enumerate((3, 29, 17)):
        write(labelled, f"secret-{number}", error)
    write(labelled, "made-up", acks=0)
    write(labelled, "topic-0", acks=0)  # its cluster has told of it
    commit(labelled, "denied", 5, error=30)

    numbers = labelled.end()
    assert set(labelled.totals.tables["topic"].series) == {"topic-0"}
    assert labelled.totals.tables["group"].series == {}
    assert labelled.totals.tables["topic"].overflow == 0
    assert named(numbers, "kproxy_topic_records_total") == {("produce", "topic-0"): 1, ("produce", "other"): 1}
    assert named(numbers, "kproxy_topic_errors_total") == {
        ("UNKNOWN_TOPIC_OR_PARTITION", "other"): 1,
        ("TOPIC_AUTHORIZATION_FAILED", "other"): 1,
        ("INVALID_TOPIC_EXCEPTION", "other"): 1,
    }


def test_a_tenants_topics_and_groups_have_the_brokers_names() -> None:
    labelled = Labelled("none")
    write(labelled, "topic-1")
    commit(labelled, "group", 5)
    labelled.gather()

    assert labelled.totals.lags is not None
    assert labelled.totals.lags.lags() == {("tenant.group", "its other name"): 37}
    assert named(labelled.end(), "kproxy_topic_records_total") == {("produce", "its other name"): 1}


def test_commits_and_joins_count_when_brokers_confirm_them() -> None:
    """A heartbeat of the new protocol joins with epoch 0 only; an error is neither."""
    labelled = Labelled("none")
    commit(labelled, "g", 5)
    commit(labelled, "g", 6, error=22)
    for epoch in (0, 1, 2):
        asked = {"group_id": "g", "member_id": "m", "member_epoch": epoch}
        talk(labelled, CONSUMER_GROUP_HEARTBEAT, 0, asked, {"member_epoch": 3, "heartbeat_interval_ms": 1})
    for error in (79, 0):
        asked = {"group_id": "old", "protocol_type": "consumer", "protocols": []}
        talk(labelled, JOIN_GROUP, 5, asked, {"error_code": error, "members": []})

    numbers = labelled.end()
    assert named(numbers, "kproxy_group_commits_total") == {("", "g"): 1}
    assert named(numbers, "kproxy_group_joins_total") == {("", "g"): 1, ("", "old"): 1}
    assert named(numbers, "kproxy_client_requests_total") == {("group", "c"): 7}


def test_lag_follows_what_is_written_and_what_is_read() -> None:
    """The end is the offset behind the last record written, or the high watermark that a Fetch brings."""
    labelled = Labelled("none")
    commit(labelled, "g", 40)
    write(labelled, "topic-1")
    lags = labelled.totals.lags
    assert lags is not None
    labelled.gather()
    assert lags.lags() == {("g", "its other name"): 2}

    labelled.now += 1
    part = {"partition_index": 0, "high_watermark": 100, "records": None}
    talk(labelled, FETCH, 11, {"topics": []}, {"responses": [{"topic": "topic-1", "partitions": [part]}]})
    labelled.gather()
    assert lags.lags() == {("g", "its other name"): 60}
    labelled.end()


def test_what_is_not_wanted_is_not_read() -> None:
    """With clients alone no rows of partitions are asked for, and nothing is told of topics."""
    labelled = Labelled("none", MetricsConfig(by=["client_id"]))
    write(labelled, "topic-1")
    assert labelled.sink.depth(PRODUCE, 9) == labelled.sink.depth(OFFSET_COMMIT, 8) == 0
    assert {key[0] for key in labelled.end()} == {
        f"kproxy_client_{what}" for what in ("requests_total", "bytes_total", "upstream_request_duration_seconds_count")
    }  # no time has passed


def test_hostile_names_stand_in_what_prometheus_reads() -> None:
    """Its own parser takes each line, and finds as many names as there were; `promtool` agrees, where it is."""
    labelled = Labelled("none")
    labelled.totals.tables["topic"].series.clear()
    for name in HOSTILE:
        labelled.totals.add("client_id", name, [(("kproxy_client_requests_total", "other"), 1)], 0.0)
        write(labelled, name)
    labelled.gather()
    text = b"".join(exposition(registry_of(LabelCollector(labelled.totals))))

    samples = [
        one for family in text_string_to_metric_families(text.decode()) for one in family.samples
        if one.name == "kproxy_topic_records_total"
    ]  # fmt: skip
    assert len({one.labels["topic"] for one in samples}) == len(HOSTILE)
    assert all(len(one.labels["topic"]) <= 100 and one.labels["topic"].isprintable() for one in samples)
    assert sum(one.value for one in samples) == len(HOSTILE)
    if PROMTOOL is not None:
        checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, check=False)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_a_thousand_topics_and_clients_are_bounded_and_written_in_pieces() -> None:
    """As many series as the config says, sums that hold, and no piece of text that takes long to make."""
    totals = LabelTotals(EVERYTHING)
    for number in range(1000):
        for api in ("produce", "fetch", "group", "other"):
            lines = [((f"kproxy_client_{what}_total", api), 3.0) for what in ("requests", "bytes")]
            totals.add("client_id", f"client-{number}", lines, 0.0)

    pieces = list(exposition(registry_of(LabelCollector(totals))))
    assert max(piece.count(b"\n") for piece in pieces) <= MOST_AT_ONCE + 2
    families = {one.name: one for one in text_string_to_metric_families(b"".join(pieces).decode())}
    requests = families["kproxy_client_requests"].samples
    assert len({one.labels["client_id"] for one in requests}) == 201
    assert sum(one.value for one in requests) == 12_000
    assert [one.value for one in families["kproxy_label_overflow"].samples if one.labels["label"] == "client_id"] == [
        9600
    ]


def full_summary(labelled: Labelled) -> Summary:
    """Return a summary that is full. Each cell has another name, and each character of it is escaped."""
    write(labelled, "first")
    labelled.gather()
    (summary,) = labelled.sink.summaries.values()
    for number in range(MOST_APIS + MOST_CELLS + MOST_FOLDED):
        rows = [(f"{number}" + "\x01" * 240, number, 0, 10, 1, 1, "", False, 10, None)]
        client = f"{number % MOST_APIS}" + "\x01" * 480
        summary.count((PRODUCE, 9, client, Ending("answered", "broker"), -1), 1.0, 2.0, 1, 1, 0.1, rows)
    assert len(summary.parts) == MOST_CELLS + MOST_FOLDED
    return summary


def test_gather_hostile_names_yields_every_few_cells() -> None:
    labelled = Labelled("none")
    full_summary(labelled)
    with LineCount() as count:
        for _ in labelled.sink.gather():
            count.look()

    assert count.longest <= LINES_AT_ONCE < count.total / 5


@pytest.mark.parametrize("end", ["roll", "closed"])
def test_summary_end_with_hostile_names_yields(end: str) -> None:
    labelled = Labelled("none")
    summary = full_summary(labelled)
    with LineCount() as count:
        if end == "roll":
            summary.roll(61.0)
        else:
            labelled.sink.closed(labelled.who, 61.0)

    assert count.longest <= LINES_AT_ONCE < count.total / 5


def test_audit_tick_with_hostile_names_yields() -> None:
    """The tick yields by itself: yield points of connections have no effect in it."""
    labelled = Labelled("summary")
    assert labelled.audit is not None
    labelled.who.outcome = None
    full_summary(labelled)
    with LineCount() as count:
        cooperative.install_hooks(None)
        for _ in labelled.audit.tick(1000.0):
            count.look()

    assert len(labelled.events.summaries) > MOST_CELLS
    assert count.longest <= LINES_OF_DRAIN < count.total / 4


def test_roll_while_the_reader_yields_keeps_the_later_minute() -> None:
    """Each exchange is counted once, whatever another caller does at a yield point."""
    labelled = Labelled("none")
    summary = full_summary(labelled)
    later: list[float] = [200.0]

    def yielded() -> None:
        if later:
            summary.roll(later.pop())

    with hooked(yielded):
        summary.roll(100.0)

    assert (summary.minute, summary.until, summary.parts) == (180.0, 240.0, {})
    labelled.gather()
    total = sum(
        series.values.get(("kproxy_topic_records_total", "produce"), 0)
        for series in labelled.totals.tables["topic"].everything()
    )
    assert total == 1 + MOST_APIS + MOST_CELLS + MOST_FOLDED


def test_an_exchange_that_is_like_those_before_is_not_looked_at() -> None:
    """Nothing is called here for it: the summary's templates count it, and it is gathered with all others."""
    labelled = Labelled("none")
    calls: list[str] = []
    labelled.sink.take = lambda seen: calls.append("take")
    for _ in range(200):
        write(labelled, "topic-1")

    assert calls == []
    assert labelled.observer.responses == 200
