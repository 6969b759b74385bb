"""Answers on groups: membership changes, commit rates, and lag.

`group_health`: a partial stores the actions of each client in each group, so a group's answer can name the client with
the most joins. Generations are stored as numbers: a rebalance with several members, or across midnight, is counted
once. A group with one rebalance per second has 86,400 of them a day, 350 KB.

`group_lag`: per day, the first and the last commit of each partition, the number of commits, and the number below the
commit before. Days are separate by dt, so a commit below the last one of the day before is found when days are
combined. Rows without a group contain the end of each partition's log: the high watermark in responses, or the end of
the writes. Lag is the difference, as recent as the last observation of both.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kproxy.lake.tables import COMMIT_APIS
from kproxy.lake.transforms.gold.log_facts import place_of

from .aggregates import (
    EARLIEST,
    FIRST,
    LARGEST,
    LAST,
    LATEST,
    LATEST_TEXT,
    NUMBERS,
    SKETCH,
    TOTAL,
    AnswerTransforms,
    Bases,
    Partial,
    latest,
    sketch_of,
)

GROUP = ("cluster", "group", "broker_group")
GROUP_HEALTH_PARTIAL = Partial(
    keys=(*GROUP, "client_id", "client_address"),
    measures={
        "first_seen": FIRST,
        "last_seen": LAST,
        "joins": TOTAL,
        "failed_joins": TOTAL,
        "leaves": TOTAL,
        "heartbeats": TOTAL,
        "zombie_heartbeats": TOTAL,
        "members": LARGEST,
        "member_ids": SKETCH,
        "generations": NUMBERS,
        "epochs": NUMBERS,
        "latest_protocol": LATEST_TEXT,
        "commits": TOTAL,
    },
)

HEARTBEATS = ("Heartbeat", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat")
ZOMBIE = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID", "FENCED_MEMBER_EPOCH", "STALE_MEMBER_EPOCH")
"""Errors for a member that is no longer in the group."""
FIRST_STEP = "MEMBER_ID_REQUIRED"
"""The normal response to a member's first JoinGroup, which the member repeats with its new id (KIP-394)."""

OFTEN_REBALANCED = 6.0
"""Rebalances an hour that are called often: deployments cause fewer."""
OFTEN_COMMITTED = 60.0
"""Commits a minute and member that are called often: the clients' default interval of 5 s makes 12."""
FLAPPING = 3
"""Member ids, divided by the group's maximum number of members, that are called flapping."""


def group_health_daily(bases: Bases) -> DataFrame:
    """Sum the actions of each client in each group on a day."""
    return GROUP_HEALTH_PARTIAL.gathered(membership(bases.memberships), commit_requests(bases.requests))


def membership(totals: DataFrame) -> DataFrame:
    """Sum the requests of the group protocols by client and group.

    Generations are those of successful joins. Member epochs are those of the heartbeats of the newer protocols
    (KIP-848), which join and leave by heartbeat.
    """
    well = F.col("error").isNull()
    join, classic, beat = F.col("api") == "JoinGroup", F.col("api") == "Heartbeat", F.col("api").isin(*HEARTBEATS)
    leave = (F.col("api") == "LeaveGroup") | (beat & ~classic & (F.col("generation") < 0))
    return totals.groupBy("dt", *GROUP_HEALTH_PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        _count_of(join & well).alias("joins"),
        _count_of(join & ~well & (F.col("error") != FIRST_STEP)).alias("failed_joins"),
        _count_of(leave).alias("leaves"),
        _count_of(beat).alias("heartbeats"),
        _count_of(beat & F.col("error").isin(*ZOMBIE)).alias("zombie_heartbeats"),
        F.max("members").alias("members"),
        sketch_of(F.when(F.col("member") != "", F.col("member"))).alias("member_ids"),
        _generations(join & well).alias("generations"),
        _generations(beat & ~classic & well & (F.col("generation") > 0)).alias("epochs"),
        latest("last_seen", "protocol").alias("latest_protocol"),
    )


def commit_requests(totals: DataFrame) -> DataFrame:
    """Count the requests that committed offsets, from the summed requests."""
    commits = totals.where(F.col("api").isin(*COMMIT_APIS) & F.col("group").isNotNull())
    return commits.groupBy("dt", *GROUP_HEALTH_PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("commits"),
    )


def group_health_combine(partials: DataFrame) -> DataFrame:
    """Merge the days and clients, one row per group."""
    by_client = GROUP_HEALTH_PARTIAL.merged(partials)
    joined = F.struct(F.coalesce("joins", F.lit(0)).alias("joins"), "client_id", "client_address")
    groups = by_client.groupBy(*GROUP).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        *[_total(name) for name in ("joins", "failed_joins", "leaves", "heartbeats", "zombie_heartbeats", "commits")],
        F.coalesce(F.max("members"), F.lit(0)).alias("members"),
        F.hll_sketch_estimate(F.hll_union_agg("member_ids")).alias("member_ids"),
        F.size(F.array_distinct(F.flatten(F.collect_list("generations")))).alias("generations"),
        F.size(F.array_distinct(F.flatten(F.collect_list("epochs")))).alias("epochs"),
        F.max("latest_protocol").alias("latest_protocol"),
        F.max(joined).alias("most"),
    )
    return rated_groups(groups)


def rated_groups(groups: DataFrame) -> DataFrame:
    """Add rates and findings. The first epoch of a group in the newer protocol is its creation, not a rebalance."""
    rebalances = F.col("generations") + F.greatest(F.col("epochs") - 1, F.lit(0))
    seconds = F.unix_timestamp("last_seen") - F.unix_timestamp("first_seen")
    rated = groups.select(
        "*",
        rebalances.alias("rebalances"),
        (rebalances / F.greatest(seconds / 3600, F.lit(1.0))).alias("rebalances_per_hour"),
        (F.col("commits") / F.greatest(seconds / 60, F.lit(1.0))).alias("commits_per_minute"),
    )
    return rated.select(
        *GROUP,
        F.col("latest_protocol.value").alias("protocol"),
        "first_seen",
        "last_seen",
        *("members", "member_ids", "joins", "failed_joins", "leaves", "rebalances", "rebalances_per_hour"),
        *("heartbeats", "zombie_heartbeats", "commits", "commits_per_minute"),
        F.when(F.col("most.joins") > 0, F.col("most.client_id")).alias("most_joins_client"),
        F.when(F.col("most.joins") > 0, F.col("most.client_address")).alias("most_joins_address"),
        F.col("most.joins").alias("most_joins"),
        group_findings().alias("findings"),
    )


def group_findings() -> Column:
    members = F.greatest("members", F.lit(1))
    words = {
        "rebalances often": F.col("rebalances_per_hour") > OFTEN_REBALANCED,
        "flapping members": (F.col("members") > 0) & (F.col("member_ids") >= FLAPPING * members),
        "zombies": F.col("zombie_heartbeats") > 0,
        "commits often": F.col("commits_per_minute") > OFTEN_COMMITTED * members,
    }
    return F.array_compact(F.array(*[F.when(found, F.lit(word)) for word, found in words.items()]))


def _count_of(condition: Column) -> Column:
    return F.sum(F.when(condition, F.col("count")))


def _generations(condition: Column) -> Column:
    return F.array_sort(F.collect_set(F.when(condition, F.col("generation"))))


def _total(name: str) -> Column:
    return F.coalesce(F.sum(name), F.lit(0)).alias(name)


GROUP_HEALTH = AnswerTransforms(GROUP_HEALTH_PARTIAL, group_health_daily, group_health_combine)


PARTITION = ("cluster", "broker_topic", "partition")
GROUP_LAG_PARTIAL = Partial(
    keys=("cluster", "group", "broker_group", "topic", "broker_topic", "partition"),
    measures={
        "commits": TOTAL,
        "commits_back": TOTAL,
        "first_commit": EARLIEST,
        "last_commit": LATEST,
        "log_end": LATEST,
    },
)


def group_lag_daily(bases: Bases) -> DataFrame:
    """Sum the commits of a day, and find the log ends."""
    ends = log_ends(bases.writes).unionByName(log_ends(bases.reads))
    return GROUP_LAG_PARTIAL.gathered(commit_steps(bases.commits, bases.commit_names), ends)


def commit_steps(rows: DataFrame, names: DataFrame) -> DataFrame:
    """Sum commits by group and partition.

    Commits are many and must be sorted by time. To keep the sorted rows narrow, they have a hash of the names and
    numbers. The names of each hash are few, and joined to the sums.
    """
    taken = rows.where(F.col("error").isNull() & F.col("committed_offset").isNotNull())
    summed = _steps(
        _hashed(taken).select(
            *("hash", "time", place_of("source").alias("origin"), "event_id", "row", "committed_offset")
        )
    )
    of_hashes = _hashed(names).select("hash", "dt", *GROUP_LAG_PARTIAL.keys).distinct()
    return of_hashes.join(summed, on="hash", how="inner").select(
        "dt", *GROUP_LAG_PARTIAL.keys, *summed.drop("hash").columns
    )


def _hashed(rows: DataFrame) -> DataFrame:
    known = {"broker_group": F.coalesce("broker_group", "group"), "broker_topic": F.coalesce("broker_topic", "topic")}
    return rows.withColumns(known).withColumn("hash", place_of("dt", *GROUP_LAG_PARTIAL.keys))


def _steps(hashed: DataFrame) -> DataFrame:
    """Count the commits, and those below the commit before; find the first and the last."""
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


def log_ends(totals: DataFrame) -> DataFrame:
    """Return the largest log end of the day, with the time of the day's last observation. Log ends only grow."""
    known = totals.where(F.col("log_end").isNotNull() & F.col("partition").isNotNull())
    ends = known.groupBy("dt", *PARTITION).agg(F.max("last_seen").alias("time"), F.max("log_end").alias("value"))
    return ends.select("dt", *PARTITION, F.struct("time", "value").alias("log_end"))


def group_lag_combine(partials: DataFrame) -> DataFrame:
    """Merge the days, one row per group and partition, with the lag."""
    by_day = Window.partitionBy(*GROUP_LAG_PARTIAL.keys).orderBy("dt")
    overnight = F.lag("last_commit.value").over(by_day) > F.col("first_commit.value")
    back = F.col("commits_back") + F.coalesce(overnight, F.lit(False)).cast("int")
    merged = GROUP_LAG_PARTIAL.merged(
        partials.select("*", back.alias("all_back")).drop("commits_back").withColumnRenamed("all_back", "commits_back")
    )
    groups = merged.where(F.col("commits").isNotNull())
    ends = merged.where(F.col("commits").isNull()).select(
        *[F.col(name).alias(f"end_{name}") for name in (*PARTITION, "log_end")]
    )
    met = groups.drop("log_end").join(ends, on=_same_partition(), how="left")
    behind = F.col("end_log_end.value") - F.col("last_commit.value")
    return met.select(
        *GROUP_LAG_PARTIAL.keys,
        F.col("last_commit.value").alias("committed_offset"),
        F.col("last_commit.time").alias("committed_at"),
        F.col("end_log_end.value").alias("log_end"),
        F.col("end_log_end.time").alias("log_end_at"),
        F.when(behind > 0, behind).when(behind <= 0, F.lit(0)).alias("lag"),
        "commits",
        "commits_back",
    )


def _same_partition() -> Column:
    """Return the join condition of commits and ends, null-safe for the cluster, which captures do not have.

    Spark chooses a sort-merge or broadcast join by size: the number of partitions is unknown here.
    """
    return (
        F.col("cluster").eqNullSafe(F.col("end_cluster"))
        & (F.col("broker_topic") == F.col("end_broker_topic"))
        & (F.col("partition") == F.col("end_partition"))
    )


GROUP_LAG = AnswerTransforms(GROUP_LAG_PARTIAL, group_lag_daily, group_lag_combine)
