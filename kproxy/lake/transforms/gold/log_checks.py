"""Checks of logs, offsets and producer epochs: facts in, findings (day, place, check, level, text, events) out.

Each check is a window over a place, ordered by offset or time, with the maximum of all earlier values. `by` separates
facts: ("day",) within days, empty for facts of several days. The place is the first column of each window, because
Spark compares whole rows only if the first column is equal. The checks have the names of those of `kproxy verify`.
Events have no configs, so an unclean leader election may explain each finding, and no finding is proved.

Facts of a group: `commit`, an accepted commit; `doubt`, a commit with an unknown result (no response, an error, part of
a transaction); `told`, an offset from OffsetFetch, null if there was none. Facts of a producer id: epochs that were
`granted`, and epochs that an accepted Produce `used`. A fact is before another if it ended before the other began.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kproxy.lake.transforms.gold.log_facts import CONTROL, place_of, seen

SUSPECT, NOTE = "suspect", "note"
FINDING = ("day", "place", "check", "level", "text", "events", "time", "producer_id")
DELETE_HORIZON = 0x40
WRAPS = 1 << 30
"""A larger difference between sequences is a wrap from 2³¹ − 1 to 0."""
STARTS, ENDS = 0, 1
"""Order of steps at the same time: a request that begins when another ends is concurrent with it."""


def log_findings(batches: DataFrame, gaps: DataFrame, steps: DataFrame, *by: str) -> DataFrame:
    found = [
        *overlaps(batches, *by),
        duplicates(batches, *by),
        *sequences(batches, *by),
        lost_writes(batches, gaps, *by),
        aborted_reads(batches, *by),
        behind_watermark(steps, *by),
    ]
    return reduce(DataFrame.unionByName, found)


def finding(rows: DataFrame, check: Column | str, level: Column | str, text: Column, *events: str) -> DataFrame:
    """Return findings of a check. `events`: columns with the exchanges; the last one completed the finding."""
    told = [F.format_string("%s#%d", f"{name}.source", f"{name}.event_id") for name in events]
    producer = F.col("producer_id") if "producer_id" in rows.columns else F.lit(None)
    return rows.select(
        "day",
        "place",
        (F.lit(check) if isinstance(check, str) else check).alias("check"),
        (F.lit(level) if isinstance(level, str) else level).alias("level"),
        text.alias("text"),
        F.array_distinct(F.array(*told)).alias("events"),
        F.col(f"{events[-1]}.ended").alias("time"),
        producer.cast("bigint").alias("producer_id"),
    )


def later_day(rows: DataFrame, other: str) -> DataFrame:
    """Return rows with the later one of their day and that of `other`, the second fact of the finding."""
    return rows.withColumn("day", F.greatest("day", f"{other}.day"))


def overlaps(batches: DataFrame, *by: str) -> Iterator[DataFrame]:
    """Yield batches with offsets that another batch has.

    Each batch is compared with the one of the largest last offset among those that begin at the same offset or before.
    A broker that recompresses batches, or sets their timestamps, changes the checksum and the attributes. Compaction
    keeps the offsets and removes records. Neither makes a different batch.
    """
    before = Window.partitionBy("place", *by).orderBy("first", "last", "seen")
    names = ("last", "first", "records", "crc", "attributes", "written", "seen", "day")
    met = F.max(F.struct(*names)).over(before.rowsBetween(Window.unboundedPreceding, -1))
    rows = later_day(batches.withColumn("met", met).where(F.col("first") <= F.col("met.last")), "met")
    same_place = (F.col("first") == F.col("met.first")) & (F.col("last") == F.col("met.last"))
    stored_anew = (F.col("attributes") != F.col("met.attributes")) | (F.col("records") != F.col("met.records"))
    horizon = F.col("attributes").bitwiseAND(DELETE_HORIZON) != 0
    acknowledged = (F.col("written") > 0) & (F.col("met.written") > 0)
    yield finding(
        rows.where(acknowledged),
        "offset-given-twice",
        SUSPECT,
        F.format_string("offsets %d to %d were given to two acknowledged writes", "first", "last"),
        "met.seen",
        "seen",
    )
    yield finding(
        rows.where(~acknowledged & ~(same_place & (stored_anew | horizon))),
        "inconsistent-offset",
        SUSPECT,
        F.format_string(
            "at offsets %d to %d is another batch than the one at %d to %d", "first", "last", "met.first", "met.last"
        ),
        "met.seen",
        "seen",
    )


def duplicates(batches: DataFrame, *by: str) -> DataFrame:
    """Return batches without a producer id that are at more offsets than they were acknowledged.

    A suspicion only: an acknowledgement may be missing in the recording, and two of many batches may have the same
    checksum by chance.
    """
    plain = batches.where(F.col("producer_id").isNull() & ~is_control())
    alike = plain.groupBy(*by, "place", "crc", "records").agg(
        *([] if "day" in by else [F.max("day").alias("day")]),
        F.count_distinct("first").alias("places"),
        F.sum("written").alias("written"),
        F.min("first").alias("first"),
        F.max("first").alias("last"),
        F.min("seen").alias("seen"),
        F.max("seen").alias("other"),
    )
    return finding(
        alike.where((F.col("written") > 0) & (F.col("places") > F.col("written"))),
        "duplicate",
        SUSPECT,
        F.format_string(
            "a batch of %d records is at offsets %d and %d, acknowledged %d×", "records", "first", "last", "written"
        ),
        "seen",
        "other",
    )


def sequences(batches: DataFrame, *by: str) -> Iterator[DataFrame]:
    """Yield sequences of producers that are at two offsets, or that do not ascend with the offsets.

    If a broker has expired a producer's state, its sequences validly restart at 0, and its first batches may be missing
    in the recording. So descending sequences are a suspicion only.
    """
    own = batches.where(F.col("producer_id").isNotNull() & (F.col("sequence") >= 0) & ~is_control())
    keys = ("place", "producer_id", "epoch")
    once = own.groupBy(*by, *keys, "sequence").agg(
        *([] if "day" in by else [F.max("day").alias("day")]),
        F.min(F.struct("first", "seen")).alias("low"),
        F.max(F.struct("first", "seen")).alias("high"),
    )
    yield finding(
        once.where(F.col("low.first") < F.col("high.first")),
        "duplicate-sequence",
        SUSPECT,
        F.format_string(
            "sequence %d of producer %d, epoch %d, is at offsets %d and %d",
            *("sequence", "producer_id", "epoch", "low.first", "high.first"),
        ),
        "low.seen",
        "high.seen",
    )
    order = Window.partitionBy(*keys, *by).orderBy("low.first")
    stepped = once.withColumn("before", F.lag(F.struct("sequence", "low")).over(order))
    back = F.col("before.sequence") - F.col("sequence")
    yield finding(
        stepped.where((back > 0) & (back < WRAPS)),
        "order",
        SUSPECT,
        F.format_string(
            "sequence %d of producer %d is at offset %d, behind %d at %d",
            *("sequence", "producer_id", "low.first", "before.sequence", "before.low.first"),
        ),
        "before.low.seen",
        "low.seen",
    )


def lost_writes(batches: DataFrame, gaps: DataFrame, *by: str) -> DataFrame:
    """Return acknowledged batches that a later or concurrent response skipped.

    A suspicion only: compaction also removes batches, and values of configs are never recorded.
    """
    shared = ("day", "place", "first", "last")
    written = batches.where(F.col("written") > 0).select(
        *shared, F.lit(None).cast("bigint").alias("value"), "seen", F.lit(ENDS).alias("step")
    )
    rows = written.unionByName(gaps.select(*shared, "value", "seen", F.lit(STARTS).alias("step")))
    before = Window.partitionBy("place", *by).orderBy("first", "step")
    gap = F.when(F.col("step") == STARTS, F.struct("last", "seen", "value", "day"))
    found = rows.withColumn("gap", F.max(gap).over(before.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
    passed = (F.col("step") == ENDS) & (F.col("gap.last") >= F.col("last"))
    in_time = F.col("gap.seen.ended") >= F.col("seen.began")
    in_log = F.col("gap.value").isNull() | (F.col("gap.value") <= F.col("first"))
    text = F.format_string("offsets %d to %d were acknowledged, and a Fetch passed over them", "first", "last")
    return finding(
        later_day(found.where(passed & in_time & in_log), "gap"), "lost-write", SUSPECT, text, "seen", "gap.seen"
    )


def aborted_reads(batches: DataFrame, *by: str) -> DataFrame:
    """Return data read as committed if its producer's next marker in the partition is an abort.

    No finding if a batch before the marker is unknown, since another marker may be in between. No finding for a batch
    without records, which the log cleaner keeps for its sequence.
    """
    before = Window.partitionBy("place", *by).orderBy("first", "last", "seen")
    passed = before.rowsBetween(Window.unboundedPreceding, -1)
    torn = F.coalesce(F.col("first") > F.max("last").over(passed) + 1, F.lit(True))
    stretch = F.sum(F.col("torn").cast("bigint")).over(before.rowsBetween(Window.unboundedPreceding, 0))
    known = batches.withColumn("torn", torn).withColumn("stretch", stretch).drop("torn")
    rows = known.where(F.col("producer_id").isNotNull() & (F.col("reader").isNotNull() | is_control()))
    behind = Window.partitionBy("place", "producer_id", *by).orderBy(F.col("first").desc())
    marker = F.when(
        is_control(), F.struct("first", F.coalesce("marker", F.lit("")).alias("says"), "seen", "day", "stretch")
    )
    ahead = behind.rowsBetween(Window.unboundedPreceding, -1)
    ended = rows.withColumn("end", F.last(marker, ignorenulls=True).over(ahead))
    aborted = (F.col("end.says") == "abort") & (F.col("end.stretch") == F.col("stretch"))
    return finding(
        later_day(ended.where(F.col("reader").isNotNull() & aborted & (F.col("records") > 0)), "end"),
        "aborted-read",
        SUSPECT,
        F.format_string(
            "data of producer %d at offset %d was read as committed, and aborted at %d",
            *("producer_id", "first", "end.first"),
        ),
        "reader",
        "end.seen",
    )


def behind_watermark(steps: DataFrame, *by: str) -> DataFrame:
    """Return responses with a high watermark at or below an offset that all replicas had acknowledged before.

    A note: events do not name the broker of a Fetch, a follower may lag, and a new leader learns its followers' offsets
    late.
    """
    rows = running(steps, "place", *by).where(F.col("value") <= F.col("top.value"))
    text = F.format_string("a high watermark of %d, after offset %d was acknowledged", "value", "top.value")
    return finding(rows, "watermark-behind", NOTE, text, "top.seen", "seen")


def disorder(steps: DataFrame, *by: str) -> DataFrame:
    """Return writes without a producer id that got lower offsets than an earlier completed write on the same
    connection."""
    rows = running(steps, "way", *by).where(F.col("value") < F.col("top.value"))
    text = F.format_string("a write got offset %d, after %d was acknowledged", "value", "top.value")
    return finding(rows, "order", SUSPECT, text, "top.seen", "seen")


def running(steps: DataFrame, key: str, *by: str) -> DataFrame:
    """Return the steps that start, with the largest value of the steps that ended before as `top`."""
    before = Window.partitionBy(key, *by).orderBy("at", "step")
    ended = F.when(F.col("step") == ENDS, F.struct("value", "seen"))
    top = F.max(ended).over(before.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    return steps.withColumn("top", top).where(F.col("step") == STARTS)


def beyond_stable(read: DataFrame) -> DataFrame:
    """Return data of a read_committed response at or above its own last stable offset.

    A suspicion only: brokers read that offset before the log, and a transaction may end in between.
    """
    text = F.format_string("data at offset %d was read as committed, beyond the last stable offset", "first")
    return finding(read.where(F.col("beyond")), "read-beyond-stable", SUSPECT, text, "seen")


def is_control() -> Column:
    """Return True if a batch is a marker or another control batch."""
    return F.col("attributes").bitwiseAND(CONTROL) != 0


def log_steps(writes: DataFrame, answers: DataFrame) -> DataFrame:
    """Return the times when all replicas had acknowledged offsets, and the times of responses with high watermarks."""
    done = writes.where(~F.col("loose")).select(
        "day", "place", F.col("seen.ended").alias("at"), F.lit(ENDS).alias("step"), F.col("last").alias("value"),
        "seen",
    )  # fmt: skip
    told = answers.select(
        "day", "place", F.col("seen.began").alias("at"), F.lit(STARTS).alias("step"),
        F.col("high_watermark").alias("value"), "seen",
    )  # fmt: skip
    return done.unionByName(told)


def write_steps(writes: DataFrame) -> DataFrame:
    """Return the begin and end times of writes without a producer id, by connection."""
    plain = writes.where(F.col("producer_id").isNull())
    both = [
        plain.select(
            "day", "place", "way", F.col(f"seen.{at}").alias("at"), F.lit(step).alias("step"),
            F.col("first").alias("value"), "seen",
        )
        for at, step in (("began", STARTS), ("ended", ENDS))
    ]  # fmt: skip
    return both[0].unionByName(both[1])


TOLD, DOUBT, COMMIT = "told", "doubt", "commit"
GRANTED, USED = "granted", "used"
IN_FLIGHT = "interval 10 minutes"
"""A commit without a response may take effect later than it was sent, within this limit."""
EXPIRES = "interval 1 day"
"""Offsets of a group without members expire, by default after days. No event reports that."""


def group_place() -> Column:
    """Return the place of a group's offset of one partition, from columns `group` and `topic` with the broker's
    names."""
    return place_of("cluster", "group", "topic", "partition")


def named_offsets(rows: DataFrame) -> DataFrame:
    """Return commits, or offsets from OffsetFetch, with the broker's names and their place."""
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
    """Return findings for lost commits and for commits that go back.

    One descending sort is enough: `lead` reads earlier facts, and the window's preceding rows are later facts.
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
    """Return true if OffsetFetch returned another offset than the last commit, and than a commit that overlaps it.

    A suspicion only: a client may commit without kproxy, or delete the group.
    """
    ended = F.col("before.seen.ended")
    overlapping = F.when(F.col("earlier.seen.ended") >= F.col("before.seen.began"), F.col("earlier.value"))
    other = (_told_value() != F.col("before.value")) & ~_told_value().eqNullSafe(overlapping)
    doubtful = F.col("doubted").isNotNull() & (F.col("doubted") >= ended - F.expr(IN_FLIGHT))
    under_way = F.col("next").isNotNull() & (F.col("next") <= F.col("seen.ended"))
    expired = F.col("value").isNull() & (F.col("seen.ended") >= ended + F.expr(EXPIRES))
    return F.col("before").isNotNull() & other & ~doubtful & ~under_way & ~expired


def goes_back() -> Column:
    """Return true if a commit has a lower offset than the commit before, which had ended when this one began."""
    return (F.col("value") < F.col("before.value")) & (F.col("before.seen.ended") < F.col("seen.began"))


def goes_back_late() -> Column:
    """Return true for a suspicious commit that goes back: its generation is later, and OffsetFetch had returned a
    larger offset."""
    told_more = (F.col("heard.value") > F.col("value")) & (F.col("heard.at") > F.col("before.seen.ended"))
    return (F.col("epoch") > F.col("before.epoch")) & told_more


def producer_facts(requests: DataFrame, writes: DataFrame) -> DataFrame:
    """Return the facts of producer ids: day, place, what, epoch, producer_id, seen. For a used epoch, only its last
    use."""
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
    """Return writes with an older epoch than one granted to the producer id before."""
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
