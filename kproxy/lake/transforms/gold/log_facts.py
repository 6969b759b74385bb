"""Facts about logs for checks of histories: acknowledged writes, responses of Fetch, and the batches of both.

The rows that checks sort are narrow. A partition is a `place`, a hash of its names; the names are joined to the
findings. A batch that was written, or read ten times, is one row: `fold` merges rows with the same place, offsets and
header. `seen` is the first exchange with the batch.

Rows of minutes (`detail` summary) have no single batches. They are not facts, but counted in `not_checked`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SEEN = "struct<ended:timestamp,began:timestamp,source:string,event_id:bigint>"
"""Type of an exchange in facts. An exchange is before another only if it ended before the other began."""
BATCH = ("first", "last", "records", "crc", "attributes", "producer_id", "epoch", "sequence")
"""Columns that identify a batch of a place."""
CONTROL, TRANSACTIONAL = 0x20, 0x10
READ_COMMITTED = 1
MOST_TOLD = 32
"""Maximum number of batches, and of aborted transactions, that an event lists for one partition."""
_HEADER = (
    "struct<base_offset:bigint,last_delta:int,count:int,attributes:int,crc:bigint,producer_id:bigint,"
    "producer_epoch:int,sequence:int,marker:string>"
)


def place_of(*names: str) -> Column:
    """Return a 64-bit hash of these columns. Null changes the hash, while Spark's hash ignores it."""
    return F.xxhash64(*[F.coalesce(F.col(name).cast("string"), F.lit("\0")) for name in names])


def seen() -> Column:
    ended = F.col("response_out").alias("ended")
    return F.struct(ended, F.col("time").alias("began"), F.col("source"), F.col("event_id")).cast(SEEN)


def located(rows: DataFrame) -> DataFrame:
    """Return listed partitions without an error, with the broker's name in `topic`, and their `place`."""
    answered = F.col("error").isNull() & F.col("response_out").isNotNull() & F.col("partition").isNotNull()
    taken = rows.where((F.col("detail") == "request") & answered)
    named = taken.withColumn("topic", F.coalesce("broker_topic", "topic", "topic_id"))
    return named.withColumn("place", place_of("cluster", "topic", "partition"))


def log_writes(produce_partitions: DataFrame) -> DataFrame:
    """Return the acknowledged writes. `loose`: not by all replicas. `owner`: the producer id, as a place.

    A request has one batch for a partition. For several, which only old clients send, checksums are unknown.
    """
    rows = located(produce_partitions).where((F.col("acks") != 0) & F.col("base_offset").isNotNull())
    one = F.coalesce("batches", F.lit(1)) == 1
    by_count = F.col("base_offset") + F.greatest(F.col("records"), F.lit(1)) - 1
    return rows.select(
        F.col("dt").alias("day"),
        "place",
        F.col("base_offset").alias("first"),
        F.coalesce("last_offset", by_count).alias("last"),
        F.col("records").cast("bigint"),
        F.when(one, F.col("crc")).alias("crc"),
        F.col("attributes").cast("bigint"),
        "producer_id",
        F.col("producer_epoch").cast("bigint").alias("epoch"),
        F.col("base_sequence").cast("bigint").alias("sequence"),
        (F.col("acks") != -1).alias("loose"),
        place_of("cluster", "producer_id").alias("owner"),
        place_of("place", "source", "connection").alias("way"),
        seen().alias("seen"),
    )


def log_answers(fetch_partitions: DataFrame) -> DataFrame:
    """Return the responses of Fetch, each with the headers of its batches. Share groups are excluded: they have no
    order."""
    rows = located(fetch_partitions).where((F.col("api") == "Fetch") & F.col("high_watermark").isNotNull())
    last_delta = F.col("last_offset") - F.col("base_offset")
    lone = F.struct(
        F.col("base_offset"), last_delta.alias("last_delta"), F.col("records").alias("count"), F.col("attributes"),
        F.col("crc"), F.col("producer_id"), F.col("producer_epoch"), F.col("base_sequence").alias("sequence"),
        F.lit(None).alias("marker"),
    ).cast(_HEADER)  # fmt: skip
    told = (F.size("batches_detail") >= F.least(F.col("batches"), F.lit(MOST_TOLD))) & F.col("crc").isNotNull()
    single = (F.col("batches") == 1) & F.col("crc").isNotNull() & last_delta.isNotNull()
    several = F.col("batches_detail").cast(f"array<{_HEADER}>")
    return rows.select(
        F.col("dt").alias("day"),
        "place",
        "fetch_offset",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        F.col("last_offset").alias("read_to"),
        (F.col("isolation") == READ_COMMITTED).alias("committed"),
        "aborted",
        F.when(told, several).when(F.col("batches_detail").isNull() & single, F.array(lone)).alias("headers"),
        seen().alias("seen"),
    )


def read_batches(answers: DataFrame) -> DataFrame:
    """Return the batches in responses. `due`: the next expected offset; null if unknown.

    `unlisted`: data of a transaction that a read_committed response does not list as aborted. `beyond`: data of a
    read_committed response at or above its own last stable offset.
    """
    headers = F.transform("headers", _with_due)
    rows = answers.withColumn("header", F.explode(headers))
    header, attributes = F.col("header"), F.col("header.attributes")
    listed = F.exists(
        "aborted",
        lambda one: (one["producer_id"] == header["producer_id"]) & (one["first_offset"] <= header["base_offset"]),
    )
    full = F.size("aborted") >= MOST_TOLD
    data = attributes.bitwiseAND(CONTROL) == 0
    in_transaction = data & (attributes.bitwiseAND(TRANSACTIONAL) != 0)
    return rows.select(
        "day",
        "place",
        F.col("header.base_offset").alias("first"),
        (F.col("header.base_offset") + F.col("header.last_delta")).alias("last"),
        F.col("header.count").cast("bigint").alias("records"),
        F.col("header.crc").alias("crc"),
        attributes.cast("bigint").alias("attributes"),
        F.col("header.producer_id").alias("producer_id"),
        F.col("header.producer_epoch").cast("bigint").alias("epoch"),
        F.col("header.sequence").cast("bigint").alias("sequence"),
        F.col("header.marker").alias("marker"),
        F.col("header.due").alias("due"),
        (F.col("committed") & in_transaction & ~F.coalesce(listed | full, F.lit(False))).alias("unlisted"),
        (F.col("committed") & data & (F.col("header.base_offset") >= F.col("last_stable_offset"))).alias("beyond"),
        "log_start_offset",
        "seen",
    )


def _with_due(header: Column, number: Column) -> Column:
    before = F.get("headers", number - 1)
    due = F.when(number == 0, F.col("fetch_offset")).otherwise(before["base_offset"] + before["last_delta"] + 1)
    names = ("base_offset", "last_delta", "count", "attributes", "crc", "producer_id", "producer_epoch", "sequence")
    return F.struct(*[header[name].alias(name) for name in (*names, "marker")], due.alias("due"))


def fold(writes: DataFrame, batches: DataFrame) -> DataFrame:
    """Return each batch once, with the number of acknowledgements and reads, and the first exchange with it."""
    written = writes.where(F.col("crc").isNotNull()).select(
        "day", "place", *BATCH, F.lit(None).cast("string").alias("marker"), F.lit(1).alias("written"),
        F.lit(0).alias("read"), F.lit(None).cast(SEEN).alias("reader"), "seen",
    )  # fmt: skip
    reader = F.when(F.col("unlisted"), F.col("seen")).alias("reader")
    read = batches.select(
        "day", "place", *BATCH, "marker", F.lit(0).alias("written"), F.lit(1).alias("read"),
        reader, "seen",
    )  # fmt: skip
    return folded(written.unionByName(read), "day")


def folded(batches: DataFrame, *by: str) -> DataFrame:
    """Merge rows of the same batch; across days unless `by` contains the day."""
    return batches.groupBy(*by, "place", *BATCH).agg(
        *([] if "day" in by else [F.max("day").alias("day")]),
        F.max("marker").alias("marker"),
        F.sum("written").cast("bigint").alias("written"),
        F.sum("read").cast("bigint").alias("read"),
        F.min("reader").alias("reader"),
        F.min("seen").alias("seen"),
    )


def gaps(batches: DataFrame) -> DataFrame:
    """Return offsets that a response skipped: from the expected offset `first` to `last`, before the next batch."""
    passed = batches.where(F.col("due") < F.col("first"))
    return passed.select(
        "day",
        "place",
        F.col("due").alias("first"),
        (F.col("first") - 1).alias("last"),
        F.col("log_start_offset").alias("value"),
        "seen",
    )


def log_names(produce_partitions: DataFrame, fetch_partitions: DataFrame) -> DataFrame:
    """Return the names of places by day. `topic_id`: null if unknown, or if there are several because the topic was
    recreated."""
    names = ["dt", "place", "cluster", "topic", "partition"]
    rows = located(produce_partitions).select(*names, "topic_id")
    both = rows.unionByName(located(fetch_partitions).select(*names, "topic_id"))
    ids = both.groupBy(*names).agg(F.min("topic_id").alias("least"), F.max("topic_id").alias("topic_id"))
    one = F.when(F.col("least") == F.col("topic_id"), F.col("topic_id")).alias("topic_id")
    return ids.select(F.col("dt").alias("day"), "place", "cluster", "topic", "partition", one)


def not_checked(produce_partitions: DataFrame, fetch_partitions: DataFrame) -> DataFrame:
    """Count by topic the requests without single batches in their rows: minutes, and old events."""
    reads = fetch_partitions.where(F.col("api") == "Fetch")
    names = ("dt", "cluster", "broker_topic", "topic", "topic_id", "detail", "batches", "crc", "count", "error", "api")
    rows = produce_partitions.select(*names).unionByName(reads.select(*names))
    blind = (F.col("detail") == "summary") | ((F.col("batches") > 0) & F.col("crc").isNull() & F.col("error").isNull())
    topic = F.coalesce("broker_topic", "topic", "topic_id").alias("topic")
    counted = (
        rows.where(blind).groupBy(F.col("dt").alias("day"), "cluster", topic, "api").agg(F.sum("count").alias("count"))
    )
    return counted.where(F.col("topic").isNotNull())
