"""Answer: how far groups are behind, and commits that went back.

Strategy: per day the first and the last commit of each partition, how many there were and how many of them were below
the one before. Days are told apart by dt, so a commit below the last one of the day before is found when they are
combined. Beside them, in rows without a group, stands how far each partition's log reached: the high watermark that
readers were told, or the end of what was written. Lag is the difference, as good as the last look at both.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import Bases
from kproxy.pipeline.transforms.gold.partial import EARLIEST, LATEST, TOTAL, Partial

PARTITION = ("cluster", "broker_topic", "partition")
PARTIAL = Partial(
    keys=("cluster", "group", "broker_group", "topic", "broker_topic", "partition"),
    measures={
        "commits": TOTAL,
        "commits_back": TOTAL,
        "first_commit": EARLIEST,
        "last_commit": LATEST,
        "log_end": LATEST,
    },
)


def daily(bases: Bases) -> DataFrame:
    """Sum the commits of a day, and find the ends of logs."""
    ends = log_ends(bases.writes).unionByName(log_ends(bases.reads))
    return PARTIAL.gathered(commits(bases.commits), ends)


def commits(rows: DataFrame) -> DataFrame:
    """Sum commits by group and partition.

    Commits must be sorted by time for this, and they are many: what is sorted is narrow, a hash of the names and
    numbers; the names of each hash are few, and joined to the sums.
    """
    taken = rows.where(F.col("error").isNull() & F.col("committed_offset").isNotNull())
    named = taken.select(
        *("dt", "time", "source", "event_id", "row", "cluster", "group", "topic", "partition", "committed_offset"),
        F.coalesce("broker_group", "group").alias("broker_group"),
        F.coalesce("broker_topic", "topic").alias("broker_topic"),
    )
    hashed = named.select("*", _hash("dt", *PARTIAL.keys).alias("hash"))
    names = hashed.select("hash", "dt", *PARTIAL.keys).distinct()
    summed = _steps(
        hashed.select("hash", "time", _hash("source").alias("origin"), "event_id", "row", "committed_offset")
    )
    return names.join(summed, on="hash", how="inner").select("dt", *PARTIAL.keys, *summed.drop("hash").columns)


def _steps(hashed: DataFrame) -> DataFrame:
    """Count the commits, and those below the one before; find the first and the last."""
    in_order = Window.partitionBy("hash").orderBy("time", "origin", "event_id", "row")
    stepped = hashed.select(
        *("hash", "time", "committed_offset"),
        F.lag("committed_offset").over(in_order).alias("before"),
        F.lead("committed_offset").over(in_order).alias("after"),
    )
    summed = stepped.groupBy("hash").agg(
        F.count(F.lit(1)).alias("commits"),
        F.count_if(F.col("committed_offset") < F.col("before")).alias("commits_back"),
        F.min("time").alias("first_time"),
        F.max(F.when(F.col("before").isNull(), F.col("committed_offset"))).alias("first_value"),
        F.max("time").alias("last_time"),
        F.max(F.when(F.col("after").isNull(), F.col("committed_offset"))).alias("last_value"),
    )
    return summed.select(
        *("hash", "commits", "commits_back"),
        F.struct(F.col("first_time").alias("time"), F.col("first_value").alias("value")).alias("first_commit"),
        F.struct(F.col("last_time").alias("time"), F.col("last_value").alias("value")).alias("last_commit"),
    )


def _hash(*names: str) -> Column:
    """Return 64 bits of these columns; null is not passed over, as Spark's hash alone would do."""
    return F.xxhash64(*[F.coalesce(F.col(name).cast("string"), F.lit("\0")) for name in names])


def log_ends(totals: DataFrame) -> DataFrame:
    """Return the largest end of the day, which only grows, under the time of the day's last look."""
    known = totals.where(F.col("log_end").isNotNull() & F.col("partition").isNotNull())
    ends = known.groupBy("dt", *PARTITION).agg(F.max("last_seen").alias("time"), F.max("log_end").alias("value"))
    return ends.select("dt", *PARTITION, F.struct("time", "value").alias("log_end"))


def combine(partials: DataFrame) -> DataFrame:
    """Merge the days, one row per group and partition, with the lag."""
    by_day = Window.partitionBy(*PARTIAL.keys).orderBy("dt")
    overnight = F.lag("last_commit.value").over(by_day) > F.col("first_commit.value")
    back = F.col("commits_back") + F.coalesce(overnight, F.lit(False)).cast("int")
    merged = PARTIAL.merged(
        partials.select("*", back.alias("all_back")).drop("commits_back").withColumnRenamed("all_back", "commits_back")
    )
    groups = merged.where(F.col("commits").isNotNull())
    ends = merged.where(F.col("commits").isNull()).select(
        *[F.col(name).alias(f"end_{name}") for name in (*PARTITION, "log_end")]
    )
    met = groups.drop("log_end").join(ends, on=_same_partition(), how="left")
    behind = F.col("end_log_end.value") - F.col("last_commit.value")
    return met.select(
        *PARTIAL.keys,
        F.col("last_commit.value").alias("committed_offset"),
        F.col("last_commit.time").alias("committed_at"),
        F.col("end_log_end.value").alias("log_end"),
        F.col("end_log_end.time").alias("log_end_at"),
        F.when(behind > 0, behind).when(behind <= 0, F.lit(0)).alias("lag"),
        "commits",
        "commits_back",
    )


def _same_partition() -> Column:
    """Return the join condition of commits and ends, null-safe in the cluster, which captures do not know.

    Spark sorts and merges both sides, or broadcasts one if it is small: how many partitions there are is not for this
    code to guess.
    """
    return (
        F.col("cluster").eqNullSafe(F.col("end_cluster"))
        & (F.col("broker_topic") == F.col("end_broker_topic"))
        & (F.col("partition") == F.col("end_partition"))
    )
