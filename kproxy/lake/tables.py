"""Declarations of the lake's tables: bronze has lines as written, silver has typed rows.

The columns are `record.events.column.Column`, so a table has the names, types, units and meanings of its events.
Spark's schema (`lake.py`) and the reference page are generated from these declarations; no schema is inferred.

Silver has one table per kind of event. One row is one event, or one partition of it. A row of a single request has
`detail` request and `count` 1. A row of a minute's summary has `detail` summary, sums, and the number of requests in
`count`. So answers add up both in the same way, and the detail of a proxy may change per API at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kproxy.base.errors import UnknownTable
from kproxy.record.events.column import Column, EventType
from kproxy.record.events.schema import (
    AUDIT_GAP_EVENT,
    CONNECTION,
    CONNECTION_EVENT,
    PARTITION,
    REQUEST_EVENT,
    RULE_EVENT,
    SUMMARY_EVENT,
    TELEMETRY_EVENT,
    TOPOLOGY_EVENT,
)

SOURCE = Column("source", "string", "who recorded the event: instance/boot/worker")
EVENT_ID = Column("event_id", "long", "number of the event in its source, from 1 on; absent: it is not a number")
ROW = Column("row", "int", "position of the row among those made of one event, from 0 on")
TIME = Column("time", "timestamp", "when it happened; of a request, when it came; of several, when the first came")


@dataclass(frozen=True, slots=True)
class LakeTable:
    """Table on disk. It also has the columns `dt` (UTC date of `time`) and `batch` (run that wrote the row).

    `key` identifies rows: two rows with the same key are the same event, recorded or read twice. `split` is another
    partition column: rows with different values are in different folders below those of dt and batch.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ("source", "event_id")
    split: Column | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the columns' names in their order, without dt, batch and `split`."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """Return the column of that name; UnknownTable lists the valid names."""
        return find(self.columns, name, f"table {self.name}")


def find(columns: Iterable[Column], name: str, where: str) -> Column:
    """Return the column `name` among `columns` of `where`."""
    columns = tuple(columns)
    for column in columns:
        if column.name == name:
            return column
    there = ", ".join(column.name for column in columns)
    raise UnknownTable(f"{where} has no column {name!r}, it has {there}")


def of_event(event: EventType, *names: str) -> tuple[Column, ...]:
    """Return columns of an event type in the order of `names`; without names, all of them."""
    if not names:
        return event.columns
    return tuple(find(event.columns, name, event.name) for name in names)


KIND = Column("kind", "string", "which silver tables it is for: see `transforms/bronze.py`")

_LINE = (
    Column("line", "string", "the event as written, with all columns, known or not"),
    Column("file", "string", "the file that it came from, or kafka:topic/partition"),
    Column("offset", "long", "its offset in the partition; absent: it came from a file"),
    Column("ingested", "timestamp", "when its batch was read"),
    Column("corrupt", "boolean", "it is no event: it is in bronze_corrupt only"),
)

BRONZE = LakeTable(
    "bronze",
    "one event as it was written",
    (
        *_LINE,
        SOURCE,
        EVENT_ID,
        Column("type", "string", "type of the event with its version, known to this kproxy or not"),
        TIME,
    ),
    split=KIND,
)

BRONZE_CORRUPT = LakeTable(
    "bronze_corrupt",
    "a line that is no event",
    (
        *_LINE,
        Column("reason", "string", "not_json, no_id, no_source, no_type, no_time: what is missing or is no such thing; "
               "unreadable_file: the rest of the file cannot be read, `line` is absent"),
    ),
    key=("file", "offset", "line"),
)  # fmt: skip

IDS = LakeTable(
    "ids",
    "which of 64 neighbouring ids of one source have come, in one batch on one day",
    (
        SOURCE,
        Column("block", "long", "the ids are block × 64 to block × 64 + 63"),
        Column("mask", "long", "bit n is set: block × 64 + n has come"),
        Column("lines", "long", "how many lines have come; more than set bits: some came twice", "events"),
        Column("first", "timestamp", "time of the earliest of them"),
        Column("last", "timestamp", "time of the latest"),
    ),
    key=("source", "block"),
)

RAW_TABLES = (BRONZE, BRONZE_CORRUPT, IDS)
"""All tables before silver."""

WRITE_APIS = ("Produce",)
READ_APIS = ("Fetch", "ShareFetch")
COMMIT_APIS = ("OffsetCommit", "TxnOffsetCommit")
OFFSET_APIS = ("OffsetFetch",)
GROUP_APIS = (
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "ConsumerGroupHeartbeat",
    "ShareGroupHeartbeat",
    "StreamsGroupHeartbeat",
)
"""APIs of group members, in the classic protocol and those of KIP-848, KIP-932 and KIP-1071."""

EVENT = (SOURCE, EVENT_ID, TIME)
ANSWERED = find(REQUEST_EVENT.columns, "response_out", REQUEST_EVENT.name)
"""Time at which the response of a single request was sent; null in rows of summaries."""

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
        *of_event(REQUEST_EVENT, "depth", "outcome", "responder", "error", "errors", "kproxy_errors"),
        *of_event(REQUEST_EVENT, "error_level", "error_message", "rules"),
        Column("request_bytes", "long", "size of the request frames, their length fields included", "bytes"),
        Column("response_bytes", "long", "size of the response frames, their length fields included", "bytes"),
        ANSWERED,
        *of_event(SUMMARY_EVENT, "latency_ms", "latency_max_ms", "latency_buckets"),
        Column(
            "broker_ms", "double", "sum of the broker's parts of latency_ms; of requests that the broker answered", "ms"
        ),
        *of_event(SUMMARY_EVENT, "rule_ms", "wait_ms"),
        Column("throttle_ms", "long", "sum of throttle_time_ms of the responses", "ms"),
        *of_event(SUMMARY_EVENT, "throttled", "throttle_rule", "mute_ms"),
        *of_event(REQUEST_EVENT, "group", "broker_group", "member", "instance", "generation", "members", "protocol"),
        *of_event(REQUEST_EVENT, "transactional_id", "producer_id", "producer_epoch", "resources"),
        Column("topics_named", "string", "topics of the request as the client says them", array=True),
        *of_event(REQUEST_EVENT, "omitted_topics", "omitted_partitions", "omitted_resources"),
        *of_event(REQUEST_EVENT, "total_records", "total_bytes"),
        Column("empty", "long", "Fetch and ShareFetch: requests that brought no bytes", "requests"),
        *of_event(REQUEST_EVENT, "decode_error"),
    ),
)

_PARTITION_ROW = (
    *EVENT,
    ROW,
    *DETAIL,
    *CONNECTION,
    ANSWERED,
    *of_event(REQUEST_EVENT, "client_id", "api", "version", "group", "transactional_id", "acks", "isolation"),
    COUNT,
    *of_event(SUMMARY_EVENT, "topic", "broker_topic", "topic_id", "partition", "error", "records", "bytes", "batches"),
    *of_event(SUMMARY_EVENT, "error_by", "codec", "idempotent"),
    *(find(PARTITION, name, "a partition") for name in ("producer_id", "producer_epoch", "base_sequence")),
    *(find(PARTITION, name, "a partition") for name in ("attributes", "crc", "batches_detail", "aborted")),
    *(find(PARTITION, name, "a partition") for name in ("base_offset", "last_offset", "fetch_offset")),
    *(find(PARTITION, name, "a partition") for name in ("high_watermark", "last_stable_offset", "log_start_offset")),
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

_OFFSET_ROW = (
    *EVENT,
    ROW,
    ANSWERED,
    *CONNECTION,
    *of_event(REQUEST_EVENT, "client_id", "api", "version", "group", "broker_group", "member", "instance"),
    *of_event(REQUEST_EVENT, "generation", "transactional_id"),
    *of_event(SUMMARY_EVENT, "topic", "broker_topic", "topic_id"),
    *(find(PARTITION, name, "a partition") for name in ("partition", "committed_offset", "error", "error_by")),
)

COMMITS = LakeTable(
    "commits",
    "an offset committed for one partition, by OffsetCommit or TxnOffsetCommit",
    _OFFSET_ROW,
    key=("source", "event_id", "row"),
)

OFFSETS_TOLD = LakeTable(
    "offsets_told",
    "the committed offset of one partition as OffsetFetch told it; without one and without an error, there was none",
    _OFFSET_ROW,
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

TELEMETRY = LakeTable("telemetry", "what a client told of itself in one push", (*EVENT, *TELEMETRY_EVENT.columns))

AUDIT_GAP = LakeTable("audit_gaps", "events were lost, or could have been", (*EVENT, *AUDIT_GAP_EVENT.columns))

TABLES = (
    CONNECTIONS,
    REQUESTS,
    PRODUCE_PARTITIONS,
    FETCH_PARTITIONS,
    COMMITS,
    OFFSETS_TOLD,
    GROUPS,
    RULES,
    TOPOLOGY,
    AUDIT_GAP,
    TELEMETRY,
)
"""Silver tables in the order of the reference pages."""

_BY_NAME = {table.name: table for table in TABLES}


def table_named(name: str) -> LakeTable:
    """Return the silver table of this name; UnknownTable lists the valid names."""
    if name not in _BY_NAME:
        raise UnknownTable(f"expected a silver table, got {name!r}; tables: {', '.join(_BY_NAME)}")
    return _BY_NAME[name]
