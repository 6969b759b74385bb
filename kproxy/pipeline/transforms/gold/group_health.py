"""Answer: how groups are: rebalances, members that come and go, zombies, how often they commit.

Strategy: a partial keeps what each client did in each group, so that a group's answer can say who joined most. Of
generations it keeps the numbers themselves: a rebalance that several members took part in, or that lies on both sides
of midnight, is counted once. A group that rebalances once a second all day long has 86,400 of them, 350 KB.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import COMMIT_APIS, Bases
from kproxy.pipeline.transforms.gold.partial import (
    FIRST,
    LARGEST,
    LAST,
    LATEST_TEXT,
    NUMBERS,
    SKETCH,
    TOTAL,
    Partial,
    latest,
    sketch_of,
)

GROUP = ("cluster", "group", "broker_group")
PARTIAL = Partial(
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
"""Errors that tell a member that the group has gone on without it."""
FIRST_STEP = "MEMBER_ID_REQUIRED"
"""The ordinary answer to a member's first JoinGroup, which sends it again with the id that it got (KIP-394)."""

OFTEN_REBALANCED = 6.0
"""Rebalances an hour that are called often: deployments make fewer."""
OFTEN_COMMITTED = 60.0
"""Commits a minute and member that are called often: the default interval of clients is 5 s, which makes 12."""
FLAPPING = 3
"""Member ids for each member of the group at its largest that are called flapping."""


def daily(bases: Bases) -> DataFrame:
    """Sum what each client did in each group on a day."""
    return PARTIAL.gathered(membership(bases.memberships), commit_requests(bases.requests))


def membership(totals: DataFrame) -> DataFrame:
    """Sum the requests of the group protocols by client and group.

    Generations are those of joins that went well; member epochs those of the heartbeats of the newer protocols
    (KIP-848), which join and leave by heartbeat.
    """
    well = F.col("error").isNull()
    join, classic, beat = F.col("api") == "JoinGroup", F.col("api") == "Heartbeat", F.col("api").isin(*HEARTBEATS)
    leave = (F.col("api") == "LeaveGroup") | (beat & ~classic & (F.col("generation") < 0))
    return totals.groupBy("dt", *PARTIAL.keys).agg(
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
    return commits.groupBy("dt", *PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("commits"),
    )


def combine(partials: DataFrame) -> DataFrame:
    """Merge the days and clients, one row per group."""
    by_client = PARTIAL.merged(partials)
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
    """Add rates and findings. A newer group's first epoch says that it is there, not that it has rebalanced."""
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
        findings().alias("findings"),
    )


def findings() -> Column:
    """Return the findings about a group as an array of words."""
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
