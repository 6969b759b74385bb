"""Silver's tables: rows of literal lines, table by table."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from kproxy.lake.columnar.columns import RECIPES, arrow_schema, buckets
from kproxy.lake.columnar.task import giving
from kproxy.lake.lake import spark_type
from kproxy.lake.tables import TABLES
from kproxy.lake.transforms.bronze import KINDS, OTHER
from kproxy.record.audit.state_events import telemetry_event
from kproxy.record.events.column import partitions
from kproxy.record.events.schema import LATENCY_BOUNDS_MS, TELEMETRY_EVENT
from kproxy.record.metrics.client_telemetry import KAFKA, PushReader, TelemetryConfig
from kproxy.session.telemetry import TelemetryPush
from tests.support.otlp_metrics import counted, gauge, metrics_data, point

AT = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def one_in(position: int) -> list[int]:
    return [int(place == position) for place in range(len(LATENCY_BOUNDS_MS) + 1)]


def picked(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_every_table_has_a_recipe_and_every_kind_a_table() -> None:
    """But for lines of types that nobody knows."""
    assert [recipe.table for recipe in RECIPES] == list(TABLES)
    assert {kind for recipe in RECIPES for kind in recipe.make} == set(KINDS) - {OTHER}


def test_arrow_and_spark_agree_about_columns(audit: Any, batch: Any) -> None:
    """Every recipe gives its table's columns in the declared order and types, and Spark's types are the same."""
    lines = [audit.event(1), audit.event(2, "summary", api="Fetch", topic="a"), audit.event(3, "connection")]
    lines += [audit.event(4, api="OffsetCommit"), audit.event(5, "rule"), audit.event(6, "topology", nodes=[])]
    lines += [audit.event(7, "telemetry", metrics=1)]
    for table in TABLES:
        schema = arrow_schema(table)
        for part in giving(table.name)([batch(*lines)]):
            assert part.schema.equals(schema.append(pa.field("dt", pa.date32()))), table.name
        for column in table.columns:
            ours, spark = schema.field(column.name).type, to_arrow_type(spark_type(column))
            assert str(ours).replace("item:", "element:") == str(spark), column.name


def test_a_request_is_a_row_that_counts_one(rows: Any, audit: Any) -> None:
    """Its latency is in one bucket; the topics are told by name; columns nobody knows are passed over."""
    line = audit.event(
        5, api="Fetch", version=17, connection=3, latency_ms=5.5, total_bytes=0, total_records=0, future=[1],
        topics=[{"topic": "a", "partitions": [{"partition": 0}]}, {"topic_id": "x"}], outcome="answered",
    )  # fmt: skip
    found = picked(
        rows("requests", line),
        "source", "event_id", "time", "detail", "last", "connection", "api", "version", "count", "outcome",
        "latency_ms", "latency_max_ms", "latency_buckets", "topics_named", "empty", "dt",
    )  # fmt: skip

    assert found == [
        ("kp/boot/0", 5, AT, "request", AT, 3, "Fetch", 17, 1, "answered", 5.5, 5.5, one_in(3), ["a", None], 1,
         date(2026, 11, 21))
    ]  # fmt: skip


def test_only_reads_can_be_empty(rows: Any, audit: Any) -> None:
    """And only those whose bytes are known."""
    lines = [
        audit.event(1, api="Fetch", total_bytes=3),
        audit.event(2, api="ShareFetch"),
        audit.event(3, total_bytes=0),
    ]
    found = picked(rows("requests", *lines), "event_id", "empty", "topics_named", "latency_buckets")

    assert sorted(found) == [(1, 0, None, None), (2, None, None, None), (3, None, None, None)]


def test_a_summary_about_an_api_is_a_row_that_counts_many(rows: Any, audit: Any) -> None:
    """It begins with the first request of the minute and ends with the last; lines about topics are not among them."""
    common = {"api": "Produce", "version": 9, "first": "2026-11-21T10:00:01Z", "last": "2026-11-21T10:00:58Z"}
    api = audit.event(1, "summary", **common, count=10, latency_ms=30.0, latency_max_ms=9.0, latency_buckets=one_in(1),
                      records=7, bytes=70)  # fmt: skip
    bare = audit.event(3, "summary", api="Produce", latency_ms=2.0)
    topic = audit.event(2, "summary", **common, count=9, topic="t", partition=0)
    found = picked(
        rows("requests", api, topic, bare),
        "event_id", "detail", "time", "last", "count", "latency_ms", "latency_max_ms", "latency_buckets", "empty",
        "total_records", "total_bytes",
    )  # fmt: skip

    assert found == [
        (1, "summary", AT.replace(second=1), AT.replace(second=58), 10, 30.0, 9.0, one_in(1), None, 7, 70),
        (3, "summary", AT, AT, 1, 2.0, 2.0, one_in(1), None, None, None),
    ]


def test_summary_row_has_the_brokers_part(rows: Any, audit: Any) -> None:
    """It is the latency without the other parts, of requests that the broker answered."""
    parts = {"api": "Fetch", "count": 2, "latency_ms": 30.0, "rule_ms": 4.0, "wait_ms": 1.0}
    lines = [
        audit.event(number, "summary", **parts, **more)
        for number, more in enumerate([{"responder": "broker"}, {"responder": "kproxy"}, {}], 1)
    ]
    found = rows("requests", *lines)

    assert [row["broker_ms"] for row in sorted(found, key=lambda row: row["event_id"])] == [25.0, None, None]


def test_written_partitions_come_one_a_row(rows: Any, audit: Any) -> None:
    """Of requests and of summaries alike; `row` tells those of one event apart; an error of the topic is theirs."""
    single = audit.event(
        1, api="Produce", version=12, acks=-1, error="TOP", producer_id=9,
        topics=[
            {"topic": "a", "partitions": [{"partition": 0, "records": 2, "bytes": 9, "producer_id": 5},
                                          {"partition": 1, "records": 3, "bytes": 8}]},
            {"topic": "b", "error": "E", "partitions": [{"partition": 0}]},
            {"topic": "c"},
        ],
    )  # fmt: skip
    summed = audit.event(2, "summary", api="Produce", acks=1, topic="a", partition=4, count=7, records=70, batches=7)
    other = audit.event(3, api="Fetch", topics=[{"topic": "a", "partitions": [{"partition": 0}]}])
    without = audit.event(4, api="Produce")
    found = picked(
        rows("produce_partitions", single, summed, other, without),
        "event_id", "row", "detail", "acks", "count", "topic", "partition", "error", "records", "idempotent",
        "producer_id",
    )  # fmt: skip

    assert sorted(found) == [
        (1, 0, "request", -1, 1, "a", 0, None, 2, True, 5),
        (1, 1, "request", -1, 1, "a", 1, None, 3, False, None),
        (1, 100_000, "request", -1, 1, "b", 0, "E", None, False, None),
        (2, 0, "summary", 1, 7, "a", 4, None, 70, None, None),
    ]


def test_partitions_of_several_requests_keep_to_their_request(rows: Any, audit: Any) -> None:
    """One after the other, those without topics or partitions between them."""
    lines = [
        audit.event(number, api="Produce", client_id=f"c{number}",
                    topics=[{"topic": f"t{number}", "partitions": [{"partition": part} for part in range(number % 3)]}])
        for number in range(1, 6)
    ]  # fmt: skip
    found = picked(rows("produce_partitions", *lines), "event_id", "client_id", "topic", "partition", "row")

    assert found == [
        (number, f"c{number}", f"t{number}", part, part) for number in range(1, 6) for part in range(number % 3)
    ]


def test_partitions_that_brought_nothing_are_empty(rows: Any, audit: Any) -> None:
    """Of Fetch and ShareFetch; one that the answer says nothing of was not read at all."""
    parts = [{"partition": 0, "bytes": 5, "fetch_offset": 7}, {"partition": 1, "bytes": 0, "high_watermark": 4},
             {"partition": 2, "error": "E"}, {"partition": 3, "fetch_offset": 9}]  # fmt: skip
    line = audit.event(1, api="ShareFetch", topics=[{"topic": "a", "partitions": parts}])
    found = picked(rows("fetch_partitions", line), "api", "partition", "fetch_offset", "empty")

    assert found == [("ShareFetch", 0, 7, 0), ("ShareFetch", 1, None, 1), ("ShareFetch", 2, None, 1)]


def test_commits_come_one_a_partition(rows: Any, audit: Any) -> None:
    """OffsetCommit and TxnOffsetCommit; other requests about the same group are not commits."""
    topics = [{"topic": "a", "partitions": [{"partition": 3, "committed_offset": 40, "error": "E"}]}]
    lines = [
        audit.event(1, api="OffsetCommit", group="g", generation=2, topics=topics),
        audit.event(2, api="TxnOffsetCommit", group="g", transactional_id="tx", topics=topics),
        audit.event(3, api="OffsetFetch", group="g", topics=topics),
    ]
    found = picked(
        rows("commits", *lines),
        "event_id", "api", "group", "generation", "transactional_id", "topic", "partition", "committed_offset", "error",
    )  # fmt: skip

    assert sorted(found) == [
        (1, "OffsetCommit", "g", 2, None, "a", 3, 40, "E"),
        (2, "TxnOffsetCommit", "g", None, "tx", "a", 3, 40, "E"),
    ]


def test_what_members_of_groups_do_is_in_groups(rows: Any, audit: Any) -> None:
    """Of the classic and of the newer protocols."""
    lines = [
        audit.event(1, api="JoinGroup", group="g", members=3, protocol="range", rules=["slow"]),
        audit.event(2, api="ShareGroupHeartbeat", group="s", generation=4),
        audit.event(3, api="OffsetCommit", group="g"),
    ]
    found = picked(rows("groups", *lines), "event_id", "group", "generation", "members", "protocol", "rules")

    assert sorted(found, key=lambda row: row[0]) == [
        (1, "g", None, 3, "range", ["slow"]),
        (2, "s", 4, None, None, None),
    ]


def test_other_events_are_rows_as_they_are(rows: Any, audit: Any) -> None:
    """A rule event has a version of another type than requests have, and its own `rules`."""
    line = audit.event(1, "rule", action="loaded", version="abc", rules=4)
    found = picked(rows("rules", line, audit.event(2)), "event_id", "action", "version", "rules", "dt")

    assert found == [(1, "loaded", "abc", 4, date(2026, 11, 21))]


def test_a_topology_keeps_what_is_within_it(rows: Any, audit: Any) -> None:
    """Structs in lists, and lists in those."""
    topics = [{"topic": "a", "partitions": 2, "leaders": [1, -1]}]
    [row] = rows("topology", audit.event(1, "topology", cluster="main", topics=topics))

    assert (row["cluster"], row["nodes"]) == ("main", None)
    assert row["topics"] == [{"topic": "a", "topic_id": None, "internal": None, "partitions": 2, "leaders": [1, -1]}]


def test_what_a_client_pushed_is_a_row(rows: Any, audit: Any) -> None:
    """From a payload as clients make it to the event, and from that to the row: nothing is lost on the way, and what
    the client did not tell is absent."""
    payload = metrics_data(
        counted(f"{KAFKA}producer.connection.creation.total", point(2), point(1)),
        gauge(f"{KAFKA}producer.node.request.latency.avg", point(4.5, {"node.id": "1"}), point(1.5, {"node.id": "2"})),
        gauge(f"{KAFKA}producer.node.request.latency.max", point(9.0)),
    )
    push = TelemetryPush(
        payload, 0, UUID(int=9), True, "shop", "User:shop", "lib/1", "main", "10.0.0.1", None, object()
    )
    read = PushReader(TelemetryConfig(labels=["client_id"])).read(push)
    assert read is not None
    event = telemetry_event(push, read, {"connection": 3, "cluster": "main", "software_name": "lib"})
    found = rows("telemetry", audit.event(1, "telemetry", **event), audit.event(2))

    names = {column.name for column in TELEMETRY_EVENT.columns}
    assert [{name: value for name, value in row.items() if value is not None and name in names} for row in found] == [
        event
    ]
    assert (found[0]["time"], found[0]["event_id"], event["producer_node_request_latency_avg"]) == (AT, 1, 3.0)


def test_a_push_that_claims_odd_things_is_a_row_too(rows: Any, audit: Any) -> None:
    """A value of another type is absent, or its text where text is expected; the others stand."""
    odd = audit.event(
        1, "telemetry", client_id={"a": 1}, metrics=1 << 40, producer_record_queue_time_avg="9", terminating="yes",
        producer_record_queue_time_max=1e300, consumer_poll_idle_ratio_avg=1,
    )  # fmt: skip
    names = ("client_id", "metrics", "producer_record_queue_time_avg", "producer_record_queue_time_max", "terminating",
             "consumer_poll_idle_ratio_avg")  # fmt: skip

    assert picked(rows("telemetry", odd), *names) == [('{"a":1}', None, None, 1e300, None, 1.0)]


def test_partitions_count_as_for_single_events(rows: Any, audit: Any) -> None:
    """For every outcome, level of errors and partition: those that `counting.partitions` names, and no others."""
    parts = [{"partition": 0, "bytes": 5}, {"partition": 1, "high_watermark": 4}, {"partition": 2, "error": "E"},
             {"partition": 3, "fetch_offset": 9}]  # fmt: skip
    outcomes = ("answered", "no_answer_due", "unanswered", "closed")
    events = [
        {"api": api, "outcome": outcome, "topics": [{"topic": "a", "partitions": parts}], **level}
        for api in ("Produce", "Fetch", "ShareFetch")
        for outcome in outcomes
        for level in ({}, {"error_level": "request"}, {"error_level": "part"})
    ]
    lines = [audit.event(number, **event) for number, event in enumerate(events)]
    tables = [rows(name, *lines) for name in ("produce_partitions", "fetch_partitions")]

    found = [picked(table, "event_id", "partition") for table in tables]
    expected = [(number, part["partition"]) for number, event in enumerate(events) for _, part in partitions(event)]
    assert sorted(found[0] + found[1]) == expected
    assert len(expected) == 2 * 2 * (4 + 3 + 3)


def test_a_latency_is_in_the_bucket_whose_bound_it_does_not_exceed() -> None:
    """Bounds belong to their bucket; the last takes what is slower; none without a latency."""
    found = buckets(pa.array([0.2, 1.0, 1.01, 30000.0, 30001.0, None])).to_pylist()

    assert [None if row is None else row.index(1) for row in found] == [0, 0, 1, 13, 14, None]
    assert all(row is None or (sum(row), len(row)) == (1, 15) for row in found)


def test_what_checks_of_histories_need_comes_along(rows: Any, audit: Any) -> None:
    """Of a read partition: when it was answered, its batches, and what the broker said of transactions."""
    batch = {"base_offset": 3, "last_delta": 1, "count": 2, "attributes": 16, "crc": 4294967295, "producer_id": 7,
             "producer_epoch": 1, "sequence": 40, "marker": "commit"}  # fmt: skip
    part = {"partition": 0, "high_watermark": 9, "last_stable_offset": 8, "crc": 5, "base_sequence": 4,
            "batches_detail": [batch, {"base_offset": 5}],
            "aborted": [{"producer_id": 7, "first_offset": 1}]}  # fmt: skip
    line = audit.event(
        1, api="Fetch", isolation=1, response_out="2026-11-21T10:00:01Z", topics=[{"topic": "a", "partitions": [part]}]
    )
    (row,) = rows("fetch_partitions", line)

    assert (AT.replace(second=1), 1, 8, 5, 4) == (
        row["response_out"], row["isolation"], row["last_stable_offset"], row["crc"], row["base_sequence"],
    )  # fmt: skip
    assert [{name: value for name, value in one.items() if value is not None} for one in row["batches_detail"]] == [
        batch, {"base_offset": 5},
    ]  # fmt: skip
    assert row["aborted"] == [{"producer_id": 7, "first_offset": 1}]


def test_offsets_that_groups_were_told(rows: Any, audit: Any) -> None:
    """One row a partition; a request about several groups says whose they are; commits are not among them."""
    topics = [{"topic": "a", "partitions": [{"partition": 0, "committed_offset": 5}, {"partition": 1}]}]
    one = audit.event(1, api="OffsetFetch", group="g", broker_group="eu.g", topics=topics)
    several = audit.event(
        2, api="OffsetFetch", group="g", broker_group="eu.g",
        topics=[{"topic": "a", "group": group, "partitions": [{"partition": 0, "error": "E"}]} for group in "gh"],
    )  # fmt: skip
    commit = audit.event(3, api="OffsetCommit", group="g", topics=topics)
    found = picked(
        rows("offsets_told", one, several, commit),
        "event_id", "row", "group", "broker_group", "topic", "partition", "committed_offset", "error",
    )  # fmt: skip

    assert sorted(found) == [
        (1, 0, "g", "eu.g", "a", 0, 5, None),
        (1, 1, "g", "eu.g", "a", 1, None, None),
        (2, 0, "g", None, "a", 0, None, "E"),
        (2, 100_000, "h", None, "a", 0, None, "E"),
    ]
