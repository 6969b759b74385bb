"""Silver's partitions: records written and read, one row per partition of a request event, or per line of a summary.

`row` tells partitions of one event apart: the position of the topic, times ROWS_A_TOPIC, plus the partition's.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.events.schema import PARTITION, REQUEST_EVENT, SUMMARY_EVENT
from kproxy.pipeline.table import Table, of_event
from kproxy.pipeline.tables import FETCH_PARTITIONS, PRODUCE_PARTITIONS
from kproxy.pipeline.transforms.kinds import READ, SUMMARY_READ, SUMMARY_WRITE, WRITE
from kproxy.pipeline.transforms.reading import of_kind, read, shaped

ROWS_A_TOPIC = 100_000
"""More partitions of one topic than an event ever tells one by one (`audit.partitions`), and than a topic can have."""

_TOPIC = ("topic", "broker_topic", "topic_id", "error")


def produce_partitions(lines: DataFrame) -> DataFrame:
    """Bronze rows of Produce to rows of PRODUCE_PARTITIONS."""
    has_producer = F.col("records").isNotNull() & F.col("producer_id").isNotNull()
    single = _single(of_kind(lines, WRITE), PRODUCE_PARTITIONS).withColumn("idempotent", has_producer)
    summed = _summed(of_kind(lines, SUMMARY_WRITE), PRODUCE_PARTITIONS)
    return shaped(single, PRODUCE_PARTITIONS).unionByName(summed)


def fetch_partitions(lines: DataFrame) -> DataFrame:
    """Bronze rows of Fetch and ShareFetch to rows of FETCH_PARTITIONS."""
    brought_nothing = F.coalesce(F.col("bytes"), F.lit(0)) == F.lit(0)
    single = _single(of_kind(lines, READ), FETCH_PARTITIONS).withColumn("empty", brought_nothing.cast("long"))
    summed = _summed(of_kind(lines, SUMMARY_READ), FETCH_PARTITIONS)
    return shaped(single, FETCH_PARTITIONS).unionByName(summed)


def partitions_of(lines: DataFrame, table: Table) -> DataFrame:
    """One row per partition of request events, with `row` and what the table has of topic, partition and request."""
    names = set(table.names)
    inner = [column for column in PARTITION if column.name in names]
    outer = [column for column in REQUEST_EVENT.columns if column.name in names - {column.name for column in inner}]
    events = read(lines, [*outer, *of_event(REQUEST_EVENT, "topics")])
    by_topic = events.select("*", F.posexplode("topics").alias("topic_at", "named")).drop("topics")
    by_partition = by_topic.select("*", F.posexplode("named.partitions").alias("partition_at", "part"))
    return by_partition.select(
        "source",
        "event_id",
        "time",
        (F.col("topic_at") * F.lit(ROWS_A_TOPIC) + F.col("partition_at")).alias("row"),
        *(column.name for column in outer),
        *(f"named.{name}" for name in _TOPIC if name != "error"),
        F.coalesce("part.error", "named.error").alias("error"),
        *(f"part.{column.name}" for column in inner if column.name != "error"),
    )


def _single(lines: DataFrame, table: Table) -> DataFrame:
    rows = partitions_of(lines, table)
    return rows.withColumns({"detail": F.lit("request"), "last": F.col("time"), "count": F.lit(1)})


def _summed(lines: DataFrame, table: Table) -> DataFrame:
    columns = [column for column in SUMMARY_EVENT.columns if column.name in (*table.names, "first")]
    rows = read(lines, columns)
    return shaped(
        rows.withColumns({"detail": F.lit("summary"), "row": F.lit(0), "time": F.coalesce("first", "time")}), table
    )
