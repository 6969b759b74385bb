"""Silver tables: what happened, typed, one table per kind of thing (design §8).

Strategy: one row is one event, or one partition of it. What comes from a single request has `detail` request and
`count` 1; what comes from a minute of summary has `detail` summary and sums, with `count` requests in it. So answers
add up both alike, and a proxy may be set to either detail, per API, at any time.
"""

from __future__ import annotations

from kproxy.events.column import Column
from kproxy.events.schema import (
    CONNECTION,
    CONNECTION_EVENT,
    PARTITION,
    RECOVERED_EVENT,
    REQUEST_EVENT,
    RULE_EVENT,
    SUMMARY_EVENT,
    TOPOLOGY_EVENT,
)
from kproxy.pipeline.errors import UnknownTable
from kproxy.pipeline.lake_table import EVENT_ID, ROW, SOURCE, TIME, LakeTable, find, of_event

EVENT = (SOURCE, EVENT_ID, TIME)

DETAIL = (
    Column("detail", "string", "request: the row is about one request; summary: about `count` of them in a minute"),
    Column("last", "timestamp", "when the last of them came; of one request, `time`"),
)
COUNT = Column("count", "long", "how many requests the row stands for", "requests")

CONNECTIONS = LakeTable(
    "connections", "a client connection was opened, authenticated or closed", (*EVENT, *CONNECTION_EVENT.columns)
)

REQUESTS = LakeTable(
    "requests",
    "one exchange; or what one connection did with one version of an API in a minute",
    (
        *EVENT,
        *DETAIL,
        *CONNECTION,
        *of_event(REQUEST_EVENT, "client_id", "correlation_id", "api", "version", "acks"),
        COUNT,
        *of_event(REQUEST_EVENT, "depth", "outcome", "answered_by", "error", "errors", "kproxy_errors"),
        *of_event(REQUEST_EVENT, "error_level", "error_message", "rules"),
        Column("request_bytes", "long", "size of the request frames, their length fields included", "bytes"),
        Column("response_bytes", "long", "size of the response frames, their length fields included", "bytes"),
        *of_event(SUMMARY_EVENT, "latency_ms", "latency_max_ms", "latency_buckets"),
        Column("broker_ms", "double", "sum of the times from request out to response in; of single requests", "ms"),
        *of_event(SUMMARY_EVENT, "rule_ms", "wait_ms"),
        Column("throttle_ms", "long", "throttle_time_ms of the response; of single requests", "ms"),
        *of_event(REQUEST_EVENT, "group", "broker_group", "member", "instance", "generation", "members", "protocol"),
        *of_event(REQUEST_EVENT, "transactional_id", "producer_id", "producer_epoch", "resources"),
        Column("topics_named", "string", "topics of the request as the client says them", array=True),
        *of_event(REQUEST_EVENT, "omitted_topics", "omitted_partitions", "omitted_resources"),
        *of_event(REQUEST_EVENT, "total_records", "total_bytes"),
        Column("empty", "long", "Fetch and ShareFetch: requests that brought no bytes", "requests"),
        *of_event(REQUEST_EVENT, "unread"),
    ),
)

_PARTITION_ROW = (
    *EVENT,
    ROW,
    *DETAIL,
    *CONNECTION,
    *of_event(REQUEST_EVENT, "client_id", "api", "version", "group", "transactional_id", "acks"),
    COUNT,
    *of_event(SUMMARY_EVENT, "topic", "broker_topic", "topic_id", "partition", "error", "records", "bytes", "batches"),
    *of_event(SUMMARY_EVENT, "error_by", "codec", "idempotent"),
    *(find(PARTITION, name, "a partition") for name in ("producer_id", "producer_epoch")),
    *(find(PARTITION, name, "a partition") for name in ("base_offset", "last_offset", "fetch_offset")),
    *(find(PARTITION, name, "a partition") for name in ("high_watermark", "log_start_offset")),
    Column("empty", "long", "Fetch and ShareFetch: requests that brought no bytes for this partition", "requests"),
)

PRODUCE_PARTITIONS = LakeTable(
    "produce_partitions",
    "records written to one partition by one request, or by one connection in a minute",
    _PARTITION_ROW,
    key=("source", "event_id", "row"),
)

FETCH_PARTITIONS = LakeTable(
    "fetch_partitions",
    "records read from one partition by one Fetch or ShareFetch, or by one connection in a minute",
    _PARTITION_ROW,
    key=("source", "event_id", "row"),
)

COMMITS = LakeTable(
    "commits",
    "an offset committed for one partition, by OffsetCommit or TxnOffsetCommit",
    (
        *EVENT,
        ROW,
        *CONNECTION,
        *of_event(REQUEST_EVENT, "client_id", "api", "version", "group", "broker_group", "member", "instance"),
        *of_event(REQUEST_EVENT, "generation", "transactional_id"),
        *of_event(SUMMARY_EVENT, "topic", "broker_topic", "topic_id"),
        *(find(PARTITION, name, "a partition") for name in ("partition", "committed_offset", "error", "error_by")),
    ),
    key=("source", "event_id", "row"),
)

GROUPS = LakeTable(
    "groups",
    "a member joined, synchronised, beat or left: one row per request of the group protocols",
    (
        *EVENT,
        *CONNECTION,
        *of_event(REQUEST_EVENT, "client_id", "api", "version", "group", "broker_group", "member", "instance"),
        *of_event(REQUEST_EVENT, "generation", "members", "protocol", "error", "latency_ms", "rules"),
    ),
)

RULES = LakeTable("rules", "what became of a rule or a rule set", (*EVENT, *RULE_EVENT.columns))

TOPOLOGY = LakeTable("topology", "what a cluster looks like, or a part of it", (*EVENT, *TOPOLOGY_EVENT.columns))

RECOVERED = LakeTable("recovered", "events were lost, or could have been", (*EVENT, *RECOVERED_EVENT.columns))

TABLES = (
    CONNECTIONS,
    REQUESTS,
    PRODUCE_PARTITIONS,
    FETCH_PARTITIONS,
    COMMITS,
    GROUPS,
    RULES,
    TOPOLOGY,
    RECOVERED,
)
"""Silver tables, in the order in which pages list them."""

_BY_NAME = {table.name: table for table in TABLES}


def table_named(name: str) -> LakeTable:
    """Return the silver table of this name; UnknownTable says which there are."""
    if name not in _BY_NAME:
        raise UnknownTable(f"there is no silver table {name!r}, there are {', '.join(_BY_NAME)}")
    return _BY_NAME[name]
