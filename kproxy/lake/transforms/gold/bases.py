"""Bases of the answers: each large silver table is summed once, or twice where that costs less.

Strategy: rows of silver stand for `count` requests, so everything is weighed by it. The sums have one row per day and
distinct combination of names, which is far less than there are requests, and whole answers are made of these sums. All
aggregates on the large tables are of fixed length (numbers, times), so that Spark's hash aggregate takes them; strings,
sketches and structs are aggregated on the sums only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kproxy.lake.tables import COMMIT_APIS

from .log_facts import fold, log_answers, log_writes, read_batches
from .partial import BUCKETS, Partial

WHO = ("cluster", "client_id", "principal", "client_address", "software_name", "software_version")
"""Columns that tell a client from others, as far as possible."""
STORM_APIS = ("ApiVersions", "FindCoordinator", "Metadata")
"""APIs of clients that start or lose their way; many of these requests in a minute are a storm."""


@dataclass(frozen=True, slots=True)
class Bases:
    """Bases of one run: sums of large silver tables, and small ones as they are."""

    requests: DataFrame
    """`request_totals`"""
    minutes: DataFrame
    """`request_minutes`"""
    ruled: DataFrame
    """`ruled_requests`"""
    writes: DataFrame
    """`write_totals`"""
    reads: DataFrame
    """`read_totals`"""
    memberships: DataFrame
    """`membership_totals`"""
    connections: DataFrame
    commits: DataFrame
    commit_names: DataFrame
    """`offset_names` of commits"""
    rules: DataFrame
    topology: DataFrame
    telemetry: DataFrame
    log_writes: DataFrame
    """`log_facts.log_writes`"""
    log_answers: DataFrame
    """`log_facts.log_answers`"""
    log_reads: DataFrame
    """`log_facts.read_batches` of the answers"""
    log_batches: DataFrame
    """`log_facts.fold` of writes and reads"""
    silver: Mapping[str, DataFrame]
    """The silver tables themselves, by name."""


@dataclass(frozen=True, slots=True)
class AnswerTransforms:
    """Transforms of one answer: `daily` gives rows of `partial`, `combine` makes the answer of any days' rows."""

    partial: Partial
    daily: Callable[[Bases], DataFrame]
    combine: Callable[[DataFrame], DataFrame]


def bases(silver: Mapping[str, DataFrame]) -> Bases:
    """Return all bases, made from silver tables by name."""
    writes, answers = log_writes(silver["produce_partitions"]), log_answers(silver["fetch_partitions"])
    reads = read_batches(answers)
    return Bases(
        requests=request_totals(silver["requests"]),
        minutes=request_minutes(silver["requests"]),
        ruled=ruled_requests(silver["requests"]),
        writes=write_totals(silver["produce_partitions"]),
        reads=read_totals(silver["fetch_partitions"]),
        memberships=membership_totals(silver["groups"]),
        commit_names=offset_names(silver["commits"]),
        **{name: silver[name] for name in ("connections", "commits", "rules", "topology", "telemetry")},
        log_writes=writes,
        log_answers=answers,
        log_reads=reads,
        log_batches=fold(writes, reads),
        silver=silver,
    )


def request_totals(requests: DataFrame) -> DataFrame:
    """Return sums of requests by day, client, node, API, version, acks, error and its maker, outcome, throttling rule,
    and group of commits.

    Columns: count, first_seen, last_seen, bytes, latency in sum, maximum and buckets b0 to b14, parts of it, records,
    empty, throttled, throttle_ms, mute_ms.
    """
    keys = ["dt", *WHO, "node", "api", "version", "acks", "error", "outcome", "throttle_rule"]
    commits = F.col("api").isin(*COMMIT_APIS)
    group = F.when(commits, F.col("group")).alias("group")
    broker_group = F.when(commits, F.coalesce("broker_group", "group")).alias("broker_group")
    broker_count = F.when(F.col("broker_ms").isNotNull(), F.col("count"))
    throttled = F.coalesce("throttled", F.when(F.col("throttle_ms") > 0, F.col("count")))
    times = ("latency_ms", "broker_ms", "rule_ms", "wait_ms", "throttle_ms", "mute_ms")
    sums = ("count", "request_bytes", "response_bytes", *times)
    return requests.groupBy(*keys, error_by().alias("error_by"), group, broker_group).agg(
        *_seen(),
        *[F.sum(name).alias(name) for name in (*sums, "total_records", "total_bytes", "empty")],
        F.sum(broker_count).alias("broker_count"),
        F.sum(throttled).alias("throttled"),
        F.max("latency_max_ms").alias("latency_max_ms"),
        *[F.expr(f"sum(get(latency_buckets, {number})) as b{number}") for number in range(BUCKETS)],
    )


def request_minutes(requests: DataFrame) -> DataFrame:
    """Return count, errors and bytes by minute and API, and for `STORM_APIS` by client address.

    Read by itself, since minutes in the totals would make them many times longer.
    """
    address = F.when(F.col("api").isin(*STORM_APIS), F.col("client_address")).alias("client_address")
    return requests.groupBy("dt", "cluster", minute().alias("minute"), "api", address).agg(
        F.sum("count").alias("count"),
        F.sum(failed("count")).alias("errors"),
        F.sum("request_bytes").alias("request_bytes"),
        F.sum("response_bytes").alias("response_bytes"),
    )


def ruled_requests(requests: DataFrame) -> DataFrame:
    """Return requests for which rules fired, one row per rule: client, topics, count. Few, so taken as they are."""
    ruled = requests.where(F.size("rules") > 0)
    return ruled.select(
        "dt", "time", F.explode("rules").alias("rule"), "cluster", "client_id", "topics_named", "count", "answered_by"
    )


def write_totals(produce_partitions: DataFrame) -> DataFrame:
    """Return sums of what was written by day, client, API, topic, partition, acks, codec, idempotence and error.

    Columns: count, records, bytes, batches, times, and the end of the log as far as it was written.
    """
    return _partition_totals(produce_partitions, "acks", "codec", "idempotent")


def read_totals(fetch_partitions: DataFrame) -> DataFrame:
    """Return the same sums of what was read, by day, client, API, topic, partition and error."""
    return _partition_totals(fetch_partitions)


def _partition_totals(rows: DataFrame, *more: str) -> DataFrame:
    """Return sums of partitions' rows by `more` columns beside those that all have.

    `broker_topic` is filled where it is the same as `topic`. `log_end` is the largest offset of the day behind which
    there was nothing yet: the high watermark, or one more than the last offset written or read.
    """
    broker_topic = F.coalesce("broker_topic", "topic").alias("broker_topic")
    end = F.greatest(F.col("high_watermark"), F.col("last_offset") + 1)
    by = F.when(F.col("error").isNotNull(), F.coalesce("error_by", F.lit("broker"))).alias("error_by")
    return rows.groupBy("dt", *WHO, "api", "topic", broker_topic, "partition", "error", by, *more).agg(
        *_seen(),
        *[F.sum(name).alias(name) for name in ("count", "records", "bytes", "batches", "empty")],
        F.max(end).alias("log_end"),
    )


def membership_totals(groups: DataFrame) -> DataFrame:
    """Return count, times and the most members by day, group, client, member, generation, API and error."""
    broker_group = F.coalesce("broker_group", "group").alias("broker_group")
    who = ("client_id", "client_address", "member", "generation", "protocol")
    return groups.groupBy("dt", "cluster", "group", broker_group, *who, "api", "error").agg(
        F.min("time").alias("first_seen"),
        F.max("time").alias("last_seen"),
        F.count(F.lit(1)).alias("count"),
        F.max("members").alias("members"),
    )


def offset_names(commits: DataFrame) -> DataFrame:
    """Return by day the names of groups and partitions, as clients and brokers have them. They are few, and joined to
    what is found by their hash, so that what is sorted needs no names."""
    names = ("cluster", "group", "broker_group", "topic", "broker_topic", "topic_id", "partition")
    return commits.select("dt", *names).distinct()


def failed(amount: str) -> Column:
    """Return an amount where there was an error, else null."""
    return F.when(F.col("error").isNotNull(), F.col(amount))


def went_well(amount: str) -> Column:
    """Return an amount where there was no error, else null."""
    return F.when(F.col("error").isNull(), F.col(amount))


def stored(amount: str) -> Column:
    """Return an amount of what was written and a broker says is stored, else null; see
    `record.events.counting.is_stored`."""
    return F.when(F.col("error").isNull() & ~F.col("acks").eqNullSafe(0), F.col(amount))


def unconfirmed(amount: str) -> Column:
    """Return an amount of what was sent with acks=0, else null; see `record.events.counting.is_unconfirmed`."""
    return F.when(F.col("error").isNull() & F.col("acks").eqNullSafe(0), F.col(amount))


def error_by() -> Column:
    """Return who made `error` of a request: kproxy or broker; null: there is none."""
    own = (F.col("answered_by") == "kproxy") | F.array_contains("kproxy_errors", F.col("error"))
    maker = F.when(F.coalesce(own, F.lit(False)), "kproxy").otherwise("broker")
    return F.when(F.col("error").isNotNull(), maker)


def minute() -> Column:
    """Return the minute in which `time` lies."""
    return F.date_trunc("minute", "time")


def _seen() -> tuple[Column, Column]:
    return F.min("time").alias("first_seen"), F.max(F.coalesce("last", "time")).alias("last_seen")
