"""Transform of lines to bronze: checks that a line is an event, and reads its source, type and time. The line is kept
unchanged.

The line is parsed as a JSON array between brackets, because a JSON reader stops at the end of the first value. Without
brackets, two events on one line, or an event followed by a torn one, would pass as one event. Only the fields that
select the kind are parsed. A JSON reader skips other fields quickly, while typed columns of all data cost more to write
and read than the line. Before a filter on the result of `with_envelope`, callers insert `observe` or `persist`.
Otherwise Spark pushes each condition down and parses the JSON again for it.

Each combination of silver tables has its kind of lines. Bronze stores each kind in its own folder, so a silver table
reads only its own lines.
"""

from __future__ import annotations

from hashlib import blake2s

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType, TimestampType

from kproxy.lake.tables import BRONZE, BRONZE_CORRUPT, COMMIT_APIS, GROUP_APIS, KIND, OFFSET_APIS, READ_APIS, WRITE_APIS
from kproxy.record.events.schema import (
    AUDIT_GAP_EVENT,
    CONNECTION_EVENT,
    REQUEST_EVENT,
    RULE_EVENT,
    SUMMARY_EVENT,
    TELEMETRY_EVENT,
    TOPOLOGY_EVENT,
)

REQUEST = "request"
SUMMARY = "summary"
OTHER = "other"
WRITE, READ, COMMIT, GROUP = "request_write", "request_read", "request_commit", "request_group"
OFFSET = "request_offset"
SUMMARY_WRITE, SUMMARY_READ = "summary_write", "summary_read"
CONNECTION, RULE, TOPOLOGY, AUDIT_GAP = "connection", "rule", "topology", "audit_gap"
TELEMETRY = "telemetry"

_OF_REQUESTS = {WRITE: WRITE_APIS, READ: READ_APIS, COMMIT: COMMIT_APIS, OFFSET: OFFSET_APIS, GROUP: GROUP_APIS}
_OF_SUMMARIES = {SUMMARY_WRITE: WRITE_APIS, SUMMARY_READ: READ_APIS}
_OF_TYPES = {
    CONNECTION: CONNECTION_EVENT,
    RULE: RULE_EVENT,
    TOPOLOGY: TOPOLOGY_EVENT,
    AUDIT_GAP: AUDIT_GAP_EVENT,
    TELEMETRY: TELEMETRY_EVENT,
}

REQUESTS = (REQUEST, *_OF_REQUESTS)
"""Kinds of request events: one for each family of APIs in `_OF_REQUESTS`, and one for the others."""

KINDS = (*REQUESTS, SUMMARY, *_OF_SUMMARIES, *_OF_TYPES, OTHER)
"""Kinds of lines. `summary` is for an API without topic, `summary_write` and `summary_read` are for topics. `other`
contains unknown types and events without a table."""


def kind_of(type_name: Column, api: Column, by_topic: Column) -> Column:
    """Return the kind of an event by type and API; `by_topic`: the event is for one topic or partition."""
    request, summary = type_name == F.lit(REQUEST_EVENT.name), type_name == F.lit(SUMMARY_EVENT.name)
    kind = F.when(request, _by_api(api, _OF_REQUESTS, REQUEST))
    kind = kind.when(summary & by_topic, _by_api(api, _OF_SUMMARIES, OTHER)).when(summary, SUMMARY)
    for name, event in _OF_TYPES.items():
        kind = kind.when(type_name == F.lit(event.name), name)
    return kind.otherwise(OTHER)


def kinds_known() -> str:
    """Return a digest of the kinds. Lines stored by another kproxy with a different digest are sorted again."""
    types = [event.name for event in (REQUEST_EVENT, SUMMARY_EVENT, *_OF_TYPES.values())]
    described = repr((types, list(KINDS), _OF_REQUESTS, _OF_SUMMARIES))
    return blake2s(described.encode(), digest_size=8).hexdigest()


def _by_api(api: Column, kinds: dict[str, tuple[str, ...]], otherwise: str) -> Column:
    kind = F.lit(otherwise)
    for name, apis in kinds.items():
        kind = F.when(api.isin(*apis), name).otherwise(kind)
    return kind


_TEXT = StringType()
ENVELOPE = StructType(
    [
        StructField("id", _TEXT),
        StructField("source", _TEXT),
        StructField("type", _TEXT),
        StructField("time", TimestampType()),
        StructField("data", StructType([StructField(name, _TEXT) for name in ("api", "topic", "topic_id")])),
    ]
)


def with_envelope(lines: DataFrame) -> DataFrame:
    """Return the lines (line, file, offset, ingested) with the fields of their envelope, and `reason` for lines that
    are not events."""
    bracketed = F.concat(F.lit("["), "line", F.lit("]"))
    read = lines.withColumn("events", F.from_json(bracketed, ArrayType(ENVELOPE)))
    parsed = read.withColumn("event", F.get("events", 0))
    return parsed.select(
        "line",
        "file",
        "offset",
        "ingested",
        _reason().alias("reason"),
        F.col("event.source").alias("source"),
        _number(F.col("event.id")).alias("event_id"),
        F.col("event.type").alias("type"),
        F.col("event.time").alias("time"),
        _kind(F.col("event.type"), F.col("event.data")).alias(KIND.name),
    )


def events(with_envelope: DataFrame) -> DataFrame:
    """Return the events in bronze's columns, with dt and kind."""
    return (
        with_envelope.where(F.col("reason").isNull())
        .withColumn("corrupt", F.lit(False))
        .select(*BRONZE.names, F.to_date("time").alias("dt"), KIND.name)
    )


def corrupt(with_envelope: DataFrame) -> DataFrame:
    """Return the lines that are not events, with the reason, and dt: the day on which they were read."""
    return (
        with_envelope.where(F.col("reason").isNotNull())
        .withColumn("corrupt", F.lit(True))
        .select(*BRONZE_CORRUPT.names, F.to_date("ingested").alias("dt"))
    )


def reread(bronze: DataFrame) -> DataFrame:
    """Return bronze rows of another kproxy version with the current kinds."""
    read = bronze.withColumn("event", F.from_json("line", ENVELOPE))
    return read.withColumn(KIND.name, _kind(F.col("type"), F.col("event.data"))).drop("event")


def _kind(type_name: Column, data: Column) -> Column:
    by_topic = F.coalesce(data["topic"], data["topic_id"]).isNotNull()
    return kind_of(type_name, data["api"], by_topic)


def _reason() -> Column:
    event = F.col("event")
    is_one_object = (F.size("events") == 1) & event.isNotNull() & F.rtrim("line").endswith("}")
    return (
        F.when(~F.coalesce(is_one_object, F.lit(False)), "not_json")
        .when(_number(event["id"]).isNull(), "no_id")
        .when(event["source"].isNull(), "no_source")
        .when(event["type"].isNull(), "no_type")
        .when(event["time"].isNull(), "no_time")
    )


def _number(text: Column) -> Column:
    return text.try_cast("long")
