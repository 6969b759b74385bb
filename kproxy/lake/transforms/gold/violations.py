"""Answer `violations`: guarantees of Kafka that the recorded exchanges break.

Each day's facts are checked by themselves. The day's partial has the findings, and a few facts per place for checks
across days: batches written and not read, batches read and not written that day, skipped offsets, the furthest
acknowledgement and the lowest watermark, first and last commits, epochs. When days are combined, the same checks
process the kept facts of all days. So a pair of exchanges on two days is found like a pair on one day, if its facts
were kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kproxy.lake.transforms.gold.log_checks import (
    ENDS,
    NOTE,
    SUSPECT,
    beyond_stable,
    disorder,
    is_control,
    log_findings,
    log_steps,
    write_steps,
)
from kproxy.lake.transforms.gold.log_facts import BATCH, SEEN, folded, gaps, log_names, not_checked, place_of

from .aggregates import FIRST, LARGEST, LAST, NAMES, TOTAL, AnswerTransforms, Bases, Merge, Partial, offset_names
from .log_checks import (
    COMMIT,
    GRANTED,
    TOLD,
    group_place,
    named_offsets,
    offset_facts,
    offset_findings,
    producer_facts,
    zombie_writes,
)

MOST_KEPT = 100
"""Maximum number of batches of each kind that a day keeps for one partition."""
BATCHES, GAPS, STEPS, EPOCHS, OFFSETS, EDGES, FOUND = "batch", "gap", "step", "epoch", "offset", "edge", "found"
NOT_CHECKED, UNSEEN = "not-checked", "unseen"
WORST_FIRST = (SUSPECT, NOTE)
NAMED = ("cluster", "topic", "topic_id", "partition", "group")

_SEEN = Merge(SEEN, F.min)
_TEXT = Merge("string", F.min)
VIOLATIONS_PARTIAL = Partial(
    keys=("kind", *NAMED, "check", "level", "what"),
    measures={
        "producer_id": LARGEST,
        "count": TOTAL,
        "text": _TEXT,
        "events": NAMES,
        "time": FIRST,
        **{name: LARGEST for name in BATCH if name != "producer_id"},
        "marker": _TEXT,
        "written": TOTAL,
        "read": TOTAL,
        "value": LARGEST,
        "step": LARGEST,
        "at": LAST,
        "reader": _SEEN,
        "seen": _SEEN,
    },
)


@dataclass(frozen=True, slots=True)
class HistoryFacts:
    """Input facts of the checks: all facts of single days, or kept facts of several."""

    batches: DataFrame
    gaps: DataFrame
    steps: DataFrame
    epochs: DataFrame
    offsets: DataFrame

    def findings(self, *by: str) -> DataFrame:
        found = [
            log_findings(self.batches, self.gaps, self.steps, *by),
            zombie_writes(self.epochs, *by),
            offset_findings(self.offsets, *by),
        ]
        return reduce(DataFrame.unionByName, found)


def violations_daily(bases: Bases) -> DataFrame:
    """Check the facts of each day, and keep those that other days need."""
    silver = bases.silver
    written, told = silver["produce_partitions"], silver["fetch_partitions"]
    writes, answers, read = bases.log_writes, bases.log_answers, bases.log_reads
    facts = HistoryFacts(
        bases.log_batches,
        gaps(read),
        log_steps(writes, answers),
        producer_facts(silver["requests"], writes),
        offset_facts(bases.commits, silver["offsets_told"]),
    )
    found = reduce(
        DataFrame.unionByName,
        (facts.findings("day"), disorder(write_steps(writes), "day"), beyond_stable(read)),
    )
    names = log_names(written, told).withColumn("group", F.lit(None).cast("string"))
    names = _union(names, _group_names(bases.commit_names, offset_names(silver["offsets_told"])))
    names = _union(names, _producer_names(_union(silver["requests"], written)))
    names = names.select(F.col("day").alias("named"), F.col("place").alias("named_place"), *NAMED)
    rows = _union(
        distinct_findings(found, "day", "place").withColumn("kind", F.lit(FOUND)), *kept(facts), edges(writes, answers)
    )
    named = rows.join(names, on=_same_place(), how="inner")
    blind = not_checked(written, told).select("*", *_blind()).drop("api")
    return VIOLATIONS_PARTIAL.select(_union(named, blind).select(*_partial_columns()))


def kept(facts: HistoryFacts) -> list[DataFrame]:
    """Return the facts of a day that later days need, or earlier days that arrive late."""
    epochs = Window.partitionBy("place", "day", "what").orderBy(
        F.when(F.col("what") == GRANTED, -F.col("epoch")).otherwise(F.col("epoch"))
    )
    highest = F.when(F.col("step") == ENDS, -F.col("value")).otherwise(F.col("value"))
    return [
        _of_kind(_first_ones(_open(facts.batches), ("what",), "rank", MOST_KEPT).drop("rank"), BATCHES),
        _of_kind(_first_ones(facts.gaps, (), "seen.ended", MOST_KEPT), GAPS),
        _of_kind(_first_ones(facts.steps, ("step",), highest, 1), STEPS),
        _of_kind(facts.epochs.withColumn("n", F.row_number().over(epochs)).where("n = 1"), EPOCHS),
        _of_kind(_first_and_last(facts.offsets), OFFSETS),
    ]


def _first_and_last(offsets: DataFrame) -> DataFrame:
    """Return the first and last commit, the first OffsetFetch and the last doubt of each group's partition.

    They are minima by other columns, so no fact is sorted, and only these are shuffled.
    """
    newest_first = F.coalesce(-F.unix_micros("seen.ended"), F.lit((1 << 63) - 1))
    ends = offsets.groupBy("day", "place", "what").agg(
        F.min(F.struct("seen.began", "seen", "value", "epoch")).alias("first"),
        F.min(F.struct(newest_first.alias("order"), "seen", "value", "epoch")).alias("last"),
    )
    first, last = [F.struct(f"{end}.seen", f"{end}.value", f"{end}.epoch") for end in ("first", "last")]
    both = F.array_distinct(F.array(first, last))
    fact = F.when(F.col("what") == COMMIT, both).when(F.col("what") == TOLD, F.array(first)).otherwise(F.array(last))
    return ends.select("day", "place", "what", F.inline(fact))


def _open(batches: DataFrame) -> DataFrame:
    """Return batches for checks across days: batches not read that day, the newest first; batches not written that day,
    the oldest first; markers, and data whose transaction may end or begin on another day."""
    unread = (F.col("written") > 0) & (F.col("read") == 0)
    what = F.when(unread, "unread").when(F.col("reader").isNotNull() | is_control(), "transaction")
    what = what.when(F.col("written") == 0, "strange")
    rank = F.when(unread, -F.col("first")).otherwise(F.unix_micros("seen.ended"))
    return batches.select("*", what.alias("what"), rank.alias("rank")).where(F.col("what").isNotNull())


def _first_ones(rows: DataFrame, keys: tuple[str, ...], order: str | Column, most: int) -> DataFrame:
    number = F.row_number().over(Window.partitionBy("place", "day", *keys).orderBy(order, "seen"))
    return rows.withColumn("n", number).where(F.col("n") <= most).drop("n")


def edges(writes: DataFrame, answers: DataFrame) -> DataFrame:
    """Return by place the first and the last acknowledged offset, and the last offset read."""
    acknowledged = writes.groupBy("day", "place").agg(
        F.min("first").alias("first"), F.max("last").alias("last"), F.max("seen").alias("seen")
    )
    reached = F.greatest(F.col("read_to"), F.col("fetch_offset") - 1)
    read = answers.groupBy("day", "place").agg(F.max(reached).alias("value"))
    return _of_kind(_union(acknowledged, read), EDGES)


def distinct_findings(findings: DataFrame, *by: str) -> DataFrame:
    """Return one row for each check and place (and day, if in `by`): the first text of the worst level, and the number
    of findings."""
    rank = F.array_position(F.array(*map(F.lit, WORST_FIRST)), F.col("level")).alias("rank")
    worst = F.min(F.struct(rank, "time", "text", "events", "level", "producer_id"))
    rows = findings.groupBy(*by, "check").agg(worst.alias("worst"), F.count(F.lit(1)).alias("count"))
    names = ("level", "text", "events", "time", "producer_id")
    return rows.select(*by, "check", "count", *[F.col(f"worst.{name}").alias(name) for name in names])


def violations_combine(partials: DataFrame) -> DataFrame:
    """Check the kept facts of all days together; return these findings and those of single days."""
    ids = Window.partitionBy("cluster", "topic")
    one = F.min("topic_id").over(ids) == F.max("topic_id").over(ids)
    known = F.when(one, F.max("topic_id").over(ids)).otherwise(F.col("topic_id"))
    rows = partials.withColumnRenamed("dt", "day").withColumn("topic_id", known)
    of_log = F.col("group").isNull() & F.col("topic").isNotNull()
    place = F.when(of_log, place_of("cluster", "topic", "topic_id", "partition")).when(
        F.col("group").isNotNull(), group_place()
    )
    placed = rows.withColumn("place", F.coalesce(place, place_of("cluster", "producer_id")))
    names = placed.groupBy(F.col("place").alias("named_place")).agg(*[F.max(name).alias(name) for name in NAMED])
    overnight = distinct_findings(_of_rows(placed).findings(), "day", "place").withColumn("overnight", F.lit(True))
    by_day = placed.where(F.col("kind") == FOUND).withColumn("overnight", F.lit(False))
    columns = ("day", "place", "check", "level", "count", "text", "events", "time", "producer_id", "overnight")
    both = by_day.select(*columns).unionByName(overnight.select(*columns))
    first = Window.partitionBy("place", "day", "check").orderBy("overnight")
    found = both.withColumn("n", F.row_number().over(first)).where("n = 1")
    named = found.join(names, on=F.col("place") == F.col("named_place"), how="inner")
    return _union(named, *_counted(placed)).select(
        "cluster", "day", "check", "level",
        F.col("topic").alias("broker_topic"), "partition", F.col("group").alias("broker_group"), "producer_id",
        "count", "text", "events", F.col("time").alias("first_seen"),
    )  # fmt: skip


def _of_rows(placed: DataFrame) -> HistoryFacts:
    """Return the kept facts of partials. A batch that was written on one day and read on another is merged."""

    def of(kind: str, *columns: str) -> DataFrame:
        return placed.where(F.col("kind") == kind).select("day", "place", *columns, "seen")

    return HistoryFacts(
        folded(of(BATCHES, *BATCH, "marker", "written", "read", "reader")),
        of(GAPS, "first", "last", "value"),
        of(STEPS, "at", "step", "value"),
        of(EPOCHS, "what", "epoch", "producer_id"),
        of(OFFSETS, "what", "value", "epoch"),
    )


def _counted(placed: DataFrame) -> list[DataFrame]:
    """Return counts: unchecked requests, and acknowledged offsets without a read."""
    blind = placed.where(F.col("kind") == NOT_CHECKED).select(*_NOTE)
    read = F.max("value")
    places = placed.where(F.col("kind") == EDGES).groupBy("cluster", "topic", "place").agg(
        F.min("first").alias("first"), F.max("last").alias("last"), read.alias("value"), F.max("day").alias("day"),
        F.max("seen.ended").alias("time"),
    )  # fmt: skip
    unread = F.col("last") - F.greatest(F.col("value"), F.col("first") - 1)
    topics = places.groupBy("cluster", "topic").agg(
        F.sum(F.when(unread > 0, unread)).alias("count"), F.max("day").alias("day"), F.max("time").alias("time")
    )
    checked = topics.join(blind.select("cluster", "topic").distinct(), on=["cluster", "topic"], how="left_anti")
    text = F.format_string("%d offsets were acknowledged, and nobody has read them through kproxy", "count")
    unseen = checked.where(F.col("count") > 0).select(
        "day", "cluster", "topic", "count", F.lit(UNSEEN).alias("check"), F.lit(NOTE).alias("level"),
        text.alias("text"), F.array().cast("array<string>").alias("events"), "time",
    )  # fmt: skip
    return [blind, unseen]


_NOTE = ("day", "cluster", "topic", "check", "level", "count", "text", "events")


def _blind() -> list[Column]:
    said = "%d %s requests do not tell their batches: what they wrote or read is not checked"
    return [
        F.lit(NOT_CHECKED).alias("kind"),
        F.lit(NOT_CHECKED).alias("check"),
        F.lit(NOTE).alias("level"),
        F.format_string(said, "count", "api").alias("text"),
        F.array().cast("array<string>").alias("events"),
        F.col("api").alias("what"),
    ]


def _group_names(*names: DataFrame) -> DataFrame:
    columns = ("place", "cluster", "group", "topic", "partition")
    return named_offsets(_union(*names)).select(F.col("dt").alias("day"), *columns).distinct()


def _producer_names(rows: DataFrame) -> DataFrame:
    owners = rows.where(F.col("producer_id").isNotNull() & (F.col("detail") == "request"))
    place = place_of("cluster", "producer_id").alias("place")
    return owners.select(F.col("dt").alias("day"), place, "cluster").distinct()


def _same_place() -> Column:
    return (F.col("day") == F.col("named")) & (F.col("place") == F.col("named_place"))


def _of_kind(rows: DataFrame, kind: str) -> DataFrame:
    return rows.withColumn("kind", F.lit(kind))


def _union(*parts: DataFrame) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)


def _partial_columns() -> list[Column]:
    return [F.col("day").alias("dt"), *[F.col(name) for name in VIOLATIONS_PARTIAL.types]]


VIOLATIONS = AnswerTransforms(VIOLATIONS_PARTIAL, violations_daily, violations_combine)
