"""Last step of every answer: the declared columns, in their order and types, and no others."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.answer import GoldAnswer
from kproxy.pipeline.schema import spark_type


def conform(rows: DataFrame, answer: GoldAnswer) -> DataFrame:
    """Return rows with exactly the columns that the answer declares; Spark's error names a column that is missing."""
    return rows.select(*[F.col(column.name).cast(spark_type(column)).alias(column.name) for column in answer.columns])
