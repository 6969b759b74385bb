"""Checks of groups' offsets and of producers' epochs, by facts in the order of time.

A fact of a group: a `commit` that was accepted; a `doubt`, a commit of which nobody knows if it counts and when (no
answer, an error, part of a transaction); what OffsetFetch `told`, null: there was none. A fact of a producer id: an
epoch that was `granted`, one that was `used` in an accepted Produce. Before means over before the other began.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .log_checks import NOTE, SUSPECT, finding
from .log_facts import place_of, seen

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


def offset_findings(facts: DataFrame, *by: str) -> DataFrame:
    """Return what is found about commits: those that were lost, and those that go back.

    All is seen in one sort, from the last fact back to the first: what was before a fact lies ahead of it there, and
    what came after it has been passed.
    """
    is_commit, is_told = F.col("what") == COMMIT, F.col("what") == TOLD
    at = F.when(is_commit, F.col("seen.ended")).otherwise(F.col("seen.began"))
    rank = F.when(is_told, 0).when(F.col("what") == DOUBT, 1).otherwise(2)
    rows = facts.select(
        "*",
        at.alias("at"),
        rank.alias("rank"),
        F.when(is_commit, F.struct("value", "epoch", "seen")).alias("commit"),
        F.when(F.col("what") == DOUBT, at).alias("doubt"),
        F.when(is_told, F.struct("value", at.alias("at"))).alias("hearing"),
    )
    order = [F.col(name).desc() for name in ("at", "rank", "seen")]
    backwards = Window.partitionBy("place", *by).orderBy(*order)
    to_come = backwards.rowsBetween(Window.unboundedPreceding, -1)
    known = rows.select(
        *("day", "place", "what", "value", "epoch", "seen"),
        F.expr("lead(commit, 1) ignore nulls").over(backwards).alias("before"),
        F.expr("lead(commit, 2) ignore nulls").over(backwards).alias("earlier"),
        F.expr("lead(doubt, 1) ignore nulls").over(backwards).alias("doubted"),
        F.expr("lead(hearing, 1) ignore nulls").over(backwards).alias("heard"),
        F.min(F.when(~is_told, F.col("seen.began"))).over(to_come).alias("next"),
    )
    text = F.when(
        is_told,
        F.format_string("offset %d was committed, and %d is told (-1: none)", "before.value", _told_value()),
    ).otherwise(F.format_string("offset %d was committed after %d", "value", "before.value"))
    return finding(
        known.where((is_told & is_lost()) | (is_commit & goes_back())),
        F.when(is_told, "lost-commit").otherwise("commit-goes-back"),
        F.when(is_told | goes_back_late(), SUSPECT).otherwise(NOTE),
        text,
        "before.seen",
        "seen",
    )


def _told_value() -> Column:
    return F.coalesce("value", F.lit(-1))


def is_lost() -> Column:
    """Return true where OffsetFetch told another offset than the last commit, and than one that may have been later.

    A suspicion only: somebody may commit past kproxy, or have deleted the group.
    """
    ended = F.col("before.seen.ended")
    overlapping = F.when(F.col("earlier.seen.ended") >= F.col("before.seen.began"), F.col("earlier.value"))
    other = (_told_value() != F.col("before.value")) & ~_told_value().eqNullSafe(overlapping)
    doubtful = F.col("doubted").isNotNull() & (F.col("doubted") >= ended - F.expr(IN_FLIGHT))
    under_way = F.col("next").isNotNull() & (F.col("next") <= F.col("seen.ended"))
    expired = F.col("value").isNull() & (F.col("seen.ended") >= ended + F.expr(EXPIRES))
    return F.col("before").isNotNull() & other & ~doubtful & ~under_way & ~expired


def goes_back() -> Column:
    """Return true where a commit is of less than the one before it, which was over when it began."""
    return (F.col("value") < F.col("before.value")) & (F.col("before.seen.ended") < F.col("seen.began"))


def goes_back_late() -> Column:
    """Return true where a commit that goes back is of a later generation, which was told more: that is a suspicion."""
    told_more = (F.col("heard.value") > F.col("value")) & (F.col("heard.at") > F.col("before.seen.ended"))
    return (F.col("epoch") > F.col("before.epoch")) & told_more


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
    """Return writes in an epoch older than one that the producer id had been given before."""
    at = F.when(F.col("what") == GRANTED, F.col("seen.ended")).otherwise(F.col("seen.began"))
    rank = F.when(F.col("what") == USED, 0).otherwise(1)
    before = Window.partitionBy("place", *by).orderBy("at", "rank").rowsBetween(
        Window.unboundedPreceding, Window.currentRow
    )  # fmt: skip
    grant = F.max(F.when(F.col("what") == GRANTED, F.struct("epoch", "seen"))).over(before)
    rows = facts.select("*", at.alias("at"), rank.alias("rank")).withColumn("grant", grant)
    return finding(
        rows.where((F.col("what") == USED) & (F.col("epoch") < F.col("grant.epoch"))),
        "zombie-write",
        SUSPECT,
        F.format_string(
            "producer %d wrote in epoch %d after epoch %d had been given", "producer_id", "epoch", "grant.epoch"
        ),
        "grant.seen",
        "seen",
    )
