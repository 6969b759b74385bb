"""Checks of groups' offsets and of producers' epochs, by facts in the order of time.

A fact of a group: a `commit` that was accepted; a `doubt`, a commit of which nobody knows if it counts and when (no
answer, an error, part of a transaction); what OffsetFetch `told`, null: there was none. A fact of a producer id: an
epoch that was `granted`, one that was `used` in an accepted Produce. Before means over before the other began.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.log_checks import NOTE, PROVED, SUSPECT, finding
from kproxy.pipeline.transforms.gold.log_facts import instance_of, place_of, seen

TOLD, DOUBT, COMMIT = "told", "doubt", "commit"
GRANTED, USED = "granted", "used"
IN_FLIGHT = "interval 10 minutes"
"""A commit without an answer may count later than it was sent, but not by more."""
EXPIRES = "interval 1 day"
"""Offsets of a group without members expire, after days by default; nobody tells when."""


def group_place() -> Column:
    """Return the place of a group's offset of one partition, of columns `group` and `topic` as brokers have them."""
    return place_of("cluster", "group", "topic", "partition")


def named_offsets(rows: DataFrame) -> DataFrame:
    """Return commits, or what OffsetFetch told, with the broker's names and their place."""
    known = rows.where(F.col("partition").isNotNull() & F.col("group").isNotNull())
    named = known.withColumn("topic", F.coalesce("broker_topic", "topic", "topic_id"))
    return named.withColumn("group", F.coalesce("broker_group", "group")).withColumn("place", group_place())


def offset_facts(commits: DataFrame, offsets_told: DataFrame) -> DataFrame:
    """Return the facts of groups' offsets: day, place, what, value, epoch (the generation), seen."""
    certain = F.col("error").isNull() & F.col("response_out").isNotNull()
    accepted = certain & (F.col("api") == "OffsetCommit") & F.col("committed_offset").isNotNull()
    what = F.when(accepted, COMMIT).otherwise(DOUBT)
    sent, told = named_offsets(commits), named_offsets(offsets_told).where(certain)
    return _facts(sent, what).unionByName(_facts(told, F.lit(TOLD)))


def _facts(rows: DataFrame, what: Column) -> DataFrame:
    return rows.select(
        F.col("dt").alias("day"),
        "place",
        what.alias("what"),
        F.col("committed_offset").alias("value"),
        F.col("generation").cast("bigint").alias("epoch"),
        seen().alias("seen"),
    )


def offset_findings(facts: DataFrame, *by: str) -> Iterator[DataFrame]:
    """Yield what is found about commits: those that were lost, and those that go back."""
    keys = (*by, "place")
    at = F.when(F.col("what") == COMMIT, F.col("seen.ended")).otherwise(F.col("seen.began"))
    rank = F.when(F.col("what") == TOLD, 0).when(F.col("what") == DOUBT, 1).otherwise(2)
    commits = Window.partitionBy(*keys, "what").orderBy("seen.ended", "seen")
    earlier = F.lag(F.struct("value", "epoch", "seen")).over(commits)
    rows = facts.select("*", at.alias("at"), rank.alias("rank"), earlier.alias("earlier"))
    before = Window.partitionBy(*keys).orderBy("at", "rank")
    passed = before.rowsBetween(Window.unboundedPreceding, -1)
    backwards = Window.partitionBy(*keys).orderBy(F.col("at").desc(), F.col("rank").desc())
    to_come = backwards.rowsBetween(Window.unboundedPreceding, -1)  # in order, Spark goes over all of them for each row
    is_commit, is_told = F.col("what") == COMMIT, F.col("what") == TOLD
    overlapping = F.when(F.col("earlier.seen.ended") >= F.col("seen.began"), F.col("earlier.value"))
    last = F.when(is_commit, F.struct("value", overlapping.alias("other"), "seen"))
    known = rows.select(
        "*",
        F.last(last, ignorenulls=True).over(passed).alias("commit"),
        F.max(F.when(F.col("what") == DOUBT, F.col("at"))).over(passed).alias("doubted"),
        F.min(F.when(~is_told, F.col("seen.began"))).over(to_come).alias("next"),
        F.last(F.when(is_told, F.struct("value", "at")), ignorenulls=True).over(passed).alias("heard"),
    )
    yield lost_commits(known.where(is_told & F.col("commit").isNotNull()))
    yield commits_back(known.where(is_commit & (F.col("value") < F.col("earlier.value"))))


def lost_commits(told: DataFrame) -> DataFrame:
    """Return what OffsetFetch told if it is not the last commit, nor one that may have been later.

    A suspicion only: somebody may commit past kproxy, or have deleted the group.
    """
    ended = F.col("commit.seen.ended")
    value = F.coalesce("value", F.lit(-1))
    other = (value != F.col("commit.value")) & ~value.eqNullSafe(F.col("commit.other"))
    doubtful = F.col("doubted").isNotNull() & (F.col("doubted") >= ended - F.expr(IN_FLIGHT))
    under_way = F.col("next").isNotNull() & (F.col("next") <= F.col("seen.ended"))
    expired = F.col("value").isNull() & (F.col("seen.ended") >= ended + F.expr(EXPIRES))
    return finding(
        told.where(other & ~doubtful & ~under_way & ~expired),
        "lost-commit",
        SUSPECT,
        F.format_string("offset %d was committed, and %d is told (-1: none)", "commit.value", value),
        "commit.seen",
        "seen",
    )


def commits_back(commits: DataFrame) -> DataFrame:
    """Return commits of less than the one before. In a later generation that was told more, that is a suspicion."""
    after = F.col("earlier.seen.ended") < F.col("seen.began")
    told_more = (F.col("heard.value") > F.col("value")) & (F.col("heard.at") > F.col("earlier.seen.ended"))
    later = (F.col("epoch") > F.col("earlier.epoch")) & told_more
    return finding(
        commits.where(after),
        "commit-goes-back",
        F.when(later, SUSPECT).otherwise(NOTE),
        F.format_string("offset %d was committed after %d", "value", "earlier.value"),
        "earlier.seen",
        "seen",
    )


def producer_facts(requests: DataFrame, writes: DataFrame) -> DataFrame:
    """Return the facts of producer ids: day, place, what, epoch, producer_id, seen. Of an epoch, its last use."""
    given = (F.col("api") == "InitProducerId") & (F.col("detail") == "request") & F.col("error").isNull()
    known = F.col("producer_id").isNotNull() & F.col("producer_epoch").isNotNull()
    granted = requests.where(given & known & F.col("response_out").isNotNull()).select(
        F.col("dt").alias("day"), place_of("cluster", "producer_id").alias("place"), F.lit(GRANTED).alias("what"),
        F.col("producer_epoch").cast("bigint").alias("epoch"), "producer_id", seen().alias("seen"),
    )  # fmt: skip
    used = writes.where(F.col("producer_id").isNotNull())
    by_epoch = used.groupBy("day", F.col("owner").alias("place"), "producer_id", "epoch").agg(
        F.max(F.struct(F.col("seen.began").alias("began"), F.col("seen").alias("seen"))).alias("last")
    )
    return granted.unionByName(
        by_epoch.select(
            "day", "place", F.lit(USED).alias("what"), "epoch", "producer_id", F.col("last.seen").alias("seen")
        )
    )


def zombie_writes(facts: DataFrame, *by: str) -> DataFrame:
    """Return writes in an epoch older than one that the producer id had been given before.

    Clocks of two machines are not one clock: across instances of kproxy it is a suspicion.
    """
    at = F.when(F.col("what") == GRANTED, F.col("seen.ended")).otherwise(F.col("seen.began"))
    rank = F.when(F.col("what") == USED, 0).otherwise(1)
    before = Window.partitionBy(*by, "place").orderBy("at", "rank").rowsBetween(
        Window.unboundedPreceding, Window.currentRow
    )  # fmt: skip
    grant = F.max(F.when(F.col("what") == GRANTED, F.struct("epoch", "seen"))).over(before)
    rows = facts.select("*", at.alias("at"), rank.alias("rank")).withColumn("grant", grant)
    instances = [instance_of(source) for source in ("grant.seen.source", "seen.source")]
    return finding(
        rows.where((F.col("what") == USED) & (F.col("epoch") < F.col("grant.epoch"))),
        "zombie-write",
        F.when(instances[0] == instances[1], PROVED).otherwise(SUSPECT),
        F.format_string(
            "producer %d wrote in epoch %d after epoch %d had been given", "producer_id", "epoch", "grant.epoch"
        ),
        "grant.seen",
        "seen",
        by_time=True,
    )
