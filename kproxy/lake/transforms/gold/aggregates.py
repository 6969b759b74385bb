"""Aggregates of silver that several gold tables share, and daily partials.

Each large silver table is aggregated once, or twice where that is cheaper. A silver row represents `count` requests, so
every sum is weighted by it. The aggregates have one row per day and combination of names. On the large tables all
aggregates have a fixed length, so that Spark uses its hash aggregate; strings, sketches and structs are aggregated
later.

A partial has dt, key columns and measures. Each measure names a merge function that is associative and commutative, so
days may arrive late or in any order. Means, percentiles and distinct counts cannot be merged and are not stored. They
are computed from sums, buckets and sketches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kproxy.lake.tables import COMMIT_APIS
from kproxy.lake.transforms.gold.log_facts import fold, log_answers, log_writes, read_batches
from kproxy.record.events.schema import LATENCY_BOUNDS_MS

BUCKETS = len(LATENCY_BOUNDS_MS) + 1
"""Buckets of a latency histogram; the last has no upper bound."""
SKETCH_SIZE = 12
"""log2 of a HyperLogLog sketch's slots: at most 4 KB, and a standard error of 1.6 %."""
MOST_NAMES = 10
"""Stored names, the first in alphabetical order: enough to find a contact."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge of a measure: its Spark type, and the aggregate that merges its values."""

    type: str
    merge: Callable[[str], Column]


def cast(name: str, kind: str, value: str | None = None) -> str:
    """Return SQL for a column of that name and type: the column itself, or `value`. For many columns, SQL text is ten
    times as fast as PySpark's expressions, which take several calls to Java each."""
    return f"cast({f'`{name}`' if value is None else value} as {kind}) as `{name}`"


def _buckets(name: str) -> Column:
    return F.expr(f"array({', '.join(f'sum(get(`{name}`, {number}))' for number in range(BUCKETS))})")


def first_names(names: Column) -> Column:
    """Return the first `MOST_NAMES` distinct names of an array; an empty array for an empty or null one."""
    return F.slice(F.array_sort(F.array_distinct(F.coalesce(names, F.array().cast("array<string>")))), 1, MOST_NAMES)


def names_of(column: str) -> Column:
    """Aggregate the names in a column, as stored by `NAMES`."""
    return first_names(F.collect_set(column))


def sketch_of(column: str | Column) -> Column:
    """Aggregate a sketch of the distinct values in a column, as stored by `SKETCH`."""
    return F.hll_sketch_agg(column, SKETCH_SIZE)


TOTAL = Merge("bigint", F.sum)
AMOUNT = Merge("double", F.sum)
FIRST = Merge("timestamp", F.min)
LAST = Merge("timestamp", F.max)
LARGEST = Merge("bigint", F.max)
LONGEST = Merge("double", F.max)
EVER = Merge("boolean", F.max)
HISTOGRAM = Merge("array<bigint>", _buckets)
SKETCH = Merge("binary", F.hll_union_agg)
NAMES = Merge("array<string>", lambda name: first_names(F.flatten(F.collect_set(name))))
NUMBERS = Merge("array<int>", lambda name: F.array_sort(F.array_distinct(F.flatten(F.collect_list(name)))))
LATEST = Merge("struct<time:timestamp,value:bigint>", F.max)
EARLIEST = Merge("struct<time:timestamp,value:bigint>", F.min)
LATEST_TEXT = Merge("struct<time:timestamp,value:string>", F.max)
PEAK = Merge("struct<value:bigint,time:timestamp>", F.max)

KEY_TYPES = {
    "node": "int",
    "version": "int",
    "acks": "int",
    "partition": "int",
    "minute": "timestamp",
    "day": "date",
}
"""Spark types of key columns; all others are strings."""


@dataclass(frozen=True, slots=True)
class Partial:
    """Columns of an answer's daily partial: `keys` identify rows, `measures` merge the other columns."""

    keys: tuple[str, ...]
    measures: Mapping[str, Merge]

    @property
    def types(self) -> dict[str, str]:
        """Return Spark types by column, in the order on disk, without dt, which is in the path."""
        keys = {key: KEY_TYPES.get(key, "string") for key in self.keys}
        return keys | {name: measure.type for name, measure in self.measures.items()}

    @property
    def ddl(self) -> str:
        """Return the schema of the daily table as Spark reads it, dt included."""
        return ", ".join(f"`{name}` {kind}" for name, kind in (self.types | {"dt": "date"}).items())

    def select(self, rows: DataFrame) -> DataFrame:
        """Select dt and the columns in their order and types: the last step of `daily`."""
        return rows.selectExpr("dt", *[cast(name, kind) for name, kind in self.types.items()])

    def gathered(self, *parts: DataFrame) -> DataFrame:
        """Merge DataFrames with dt and some of the columns each into one daily partial."""
        shaped = [self._with_all_columns(part) for part in parts]
        whole = reduce(DataFrame.unionByName, shaped)
        return self.select(whole.groupBy("dt", *self.keys).agg(*self._merging()))

    def merged(self, partials: DataFrame) -> DataFrame:
        """Merge days into one row per key, without dt."""
        return partials.groupBy(*self.keys).agg(*self._merging())

    def _merging(self) -> list[Column]:
        return [measure.merge(name).alias(name) for name, measure in self.measures.items()]

    def _with_all_columns(self, part: DataFrame) -> DataFrame:
        there = set(part.columns)
        columns = [cast(name, kind, None if name in there else "null") for name, kind in self.types.items()]
        return part.selectExpr("dt", *columns)


def latest(time: str, value: str) -> Column:
    """Aggregate the last value that is not null, as stored by LATEST."""
    return F.max(F.when(F.col(value).isNotNull(), F.struct(F.col(time).alias("time"), F.col(value).alias("value"))))


def ratio(part: str, whole: str) -> Column:
    """Return part / whole as a column; null if the whole is 0 or null."""
    return F.try_divide(F.col(part), F.col(whole)).cast("double")


WHO = ("cluster", "client_id", "principal", "client_address", "software_name", "software_version")
"""Columns that identify a client, as far as possible."""
STORM_APIS = ("ApiVersions", "FindCoordinator", "Metadata")
"""APIs of clients that start or reconnect; many of these requests in a minute are a storm."""


@dataclass(frozen=True, slots=True)
class Bases:
    """Bases of one run: aggregates of large silver tables, and small tables unchanged."""

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
    """The silver tables by name."""


@dataclass(frozen=True, slots=True)
class AnswerTransforms:
    """Transforms of one answer: `daily` makes rows of `partial`, `combine` makes the answer from partials of any
    days."""

    partial: Partial
    daily: Callable[[Bases], DataFrame]
    combine: Callable[[DataFrame], DataFrame]


def bases(silver: Mapping[str, DataFrame]) -> Bases:
    """Return all bases, made from the silver tables by name."""
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
    """Return sums of requests by day, client, node, API, version, acks, error and its source, outcome, throttling rule,
    and group of commits.

    Columns: count, first_seen, last_seen, bytes, latency (sum, maximum and buckets b0 to b14), parts of latency,
    records, empty, throttled, throttle_ms, mute_ms.
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

    A separate aggregate, because minutes would multiply the rows of the totals.
    """
    address = F.when(F.col("api").isin(*STORM_APIS), F.col("client_address")).alias("client_address")
    return requests.groupBy("dt", "cluster", minute().alias("minute"), "api", address).agg(
        F.sum("count").alias("count"),
        F.sum(failed("count")).alias("errors"),
        F.sum("request_bytes").alias("request_bytes"),
        F.sum("response_bytes").alias("response_bytes"),
    )


def ruled_requests(requests: DataFrame) -> DataFrame:
    """Return requests for which rules fired, one row per rule: client, topics, count. They are few, so not
    aggregated."""
    ruled = requests.where(F.size("rules") > 0)
    return ruled.select(
        "dt", "time", F.explode("rules").alias("rule"), "cluster", "client_id", "topics_named", "count", "responder"
    )


def write_totals(produce_partitions: DataFrame) -> DataFrame:
    """Return sums of writes by day, client, API, topic, partition, acks, codec, idempotence and error.

    Columns: count, records, bytes, batches, times, and the end of the log as far as written.
    """
    return _partition_totals(produce_partitions, "acks", "codec", "idempotent")


def read_totals(fetch_partitions: DataFrame) -> DataFrame:
    """Return the same sums of reads, by day, client, API, topic, partition and error."""
    return _partition_totals(fetch_partitions)


def _partition_totals(rows: DataFrame, *more: str) -> DataFrame:
    """Return sums of partition rows by the common columns and `more`.

    `broker_topic` is set even if it equals `topic`. `log_end` is the largest known log end offset of the day: the high
    watermark, or one more than the last offset written or read.
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
    """Return count, times and the maximum number of members by day, group, client, member, generation, API and
    error."""
    broker_group = F.coalesce("broker_group", "group").alias("broker_group")
    who = ("client_id", "client_address", "member", "generation", "protocol")
    return groups.groupBy("dt", "cluster", "group", broker_group, *who, "api", "error").agg(
        F.min("time").alias("first_seen"),
        F.max("time").alias("last_seen"),
        F.count(F.lit(1)).alias("count"),
        F.max("members").alias("members"),
    )


def offset_names(commits: DataFrame) -> DataFrame:
    """Return by day the names of groups and partitions, as clients and brokers use them. They are few, and joined to
    results by their hash, so names are not sorted."""
    names = ("cluster", "group", "broker_group", "topic", "broker_topic", "topic_id", "partition")
    return commits.select("dt", *names).distinct()


def failed(amount: str) -> Column:
    """Return an amount for requests with an error, null otherwise."""
    return F.when(F.col("error").isNotNull(), F.col(amount))


def went_well(amount: str) -> Column:
    """Return an amount for requests without an error, null otherwise."""
    return F.when(F.col("error").isNull(), F.col(amount))


def stored(amount: str) -> Column:
    """Return an amount for writes that a broker acknowledged as stored, null otherwise; see
    `record.events.column.is_stored`."""
    return F.when(F.col("error").isNull() & ~F.col("acks").eqNullSafe(0), F.col(amount))


def unconfirmed(amount: str) -> Column:
    """Return an amount for writes with acks=0, null otherwise; see `record.events.column.is_unconfirmed`."""
    return F.when(F.col("error").isNull() & F.col("acks").eqNullSafe(0), F.col(amount))


def error_by() -> Column:
    """Return the source of a request's `error`: kproxy or broker; null without an error."""
    own = (F.col("responder") == "kproxy") | F.array_contains("kproxy_errors", F.col("error"))
    maker = F.when(F.coalesce(own, F.lit(False)), "kproxy").otherwise("broker")
    return F.when(F.col("error").isNotNull(), maker)


def minute() -> Column:
    """Return the minute that contains `time`."""
    return F.date_trunc("minute", "time")


def _seen() -> tuple[Column, Column]:
    return F.min("time").alias("first_seen"), F.max(F.coalesce("last", "time")).alias("last_seen")
