"""From lines to bronze: is it an event, whose, of which type and when? The line itself stays as it is.

Strategy: the line is put between brackets and read as an array, because a JSON reader stops at the end of the first
value: two events written without a line end between them, or an event with a torn one behind it, would pass as one.
Reading JSON is most of what the pipeline costs. So it is done here, once: with the envelope comes the data of the
two types that nearly all lines are of, and silver takes it from there. The line stays what counts: `reread` makes the
same columns of it when they have become more.

Whoever filters what `judged` gives puts something between (`observe`, `persist`): Spark would evaluate the JSON once
more for every condition that it moves below the reading of it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType, TimestampType

from kproxy.pipeline.raw_tables import BRONZE, BRONZE_CORRUPT, DATA, MOST_EVENTS
from kproxy.pipeline.schema import spark_type

_TEXT = StringType()
ENVELOPE = StructType(
    [
        StructField("id", _TEXT),
        StructField("source", _TEXT),
        StructField("type", _TEXT),
        StructField("time", TimestampType()),
        StructField("data", spark_type(DATA)),
    ]
)


def judged(lines: DataFrame) -> DataFrame:
    """Lines (line, file, offset, ingested) with what their envelope says, and `reason` if they are no events."""
    bracketed = F.concat(F.lit("["), "line", F.lit("]"))
    read = lines.withColumn("events", F.from_json(bracketed, ArrayType(ENVELOPE)))
    one = read.withColumn("event", F.get("events", 0))
    return one.select(
        "line",
        "file",
        "offset",
        "ingested",
        _reason().alias("reason"),
        F.col("event.source").alias("source"),
        _number(F.col("event.id")).alias("event_id"),
        F.col("event.type").alias("type"),
        F.col("event.time").alias("time"),
        F.when(is_of_most(F.col("event.type")), F.col("event.data")).alias("data"),
        F.coalesce("event.data.topic", "event.data.topic_id").isNotNull().alias("by_topic"),
    )


def events(judged: DataFrame) -> DataFrame:
    """The lines that are events, as bronze has them, and dt."""
    return (
        judged.where(F.col("reason").isNull())
        .withColumn("corrupt", F.lit(False))
        .select(*BRONZE.names, F.to_date("time").alias("dt"))
    )


def corrupt(judged: DataFrame) -> DataFrame:
    """The lines that are none, with the reason, and dt: the day on which they were read."""
    return (
        judged.where(F.col("reason").isNotNull())
        .withColumn("corrupt", F.lit(True))
        .select(*BRONZE_CORRUPT.names, F.to_date("ingested").alias("dt"))
    )


def reread(bronze: DataFrame) -> DataFrame:
    """Bronze rows of an older kproxy with the data that this one finds in their lines."""
    event = F.from_json("line", ENVELOPE)
    return bronze.withColumn("data", F.when(is_of_most(F.col("type")), event["data"]))


def is_of_most(type_name: Column) -> Column:
    """The condition that an event of this type has `data` in bronze."""
    return type_name.isin(*(event.name for event in MOST_EVENTS))


def _reason() -> Column:
    event = F.col("event")
    is_one_object = (F.size("events") == 1) & event.isNotNull() & F.rtrim("line").endswith("}")
    return (
        F.when(~F.coalesce(is_one_object, F.lit(False)), "not_json")
        .when(_number(event["id"]).isNull(), "no_id")
        .when(event["source"].isNull(), "no_source")
        .when(event["type"].isNull(), "no_type")
        .when(event["time"].isNull(), "no_time")
    )


def _number(text: Column) -> Column:
    return text.try_cast("long")
