"""Event files that cannot be read to their end: torn gzip, a bad disk. kproxy publishes none, but copies get torn.

Spark fails the whole batch for one of them, and again at every start. So when a batch fails, each of its files is read
by itself; those that cannot be are read as far as it goes, and are on record in bronze_corrupt.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.raw_tables import BRONZE_CORRUPT
from kproxy.pipeline.run import SPARK_FAILED, Run


def unreadable(run: Run, paths: list[str]) -> list[str]:
    """Those of the files that cannot be read to their end."""
    return [path for path in paths if not _can_be_read(run, path)]


def as_far_as_it_goes(run: Run, paths: list[str]) -> DataFrame:
    """The lines of the files, of unreadable ones those before the place where they break."""
    read = run.spark.read.schema("value string").option("lineSep", "\n").option("ignoreCorruptFiles", True).text(paths)
    return read.select(
        F.col("value").alias("line"),
        F.col("_metadata.file_path").alias("file"),
        F.lit(None).cast("long").alias("offset"),
        F.current_timestamp().alias("ingested"),
    )


def on_record(run: Run, paths: list[str]) -> DataFrame:
    """A row of bronze_corrupt, with dt, for each of the files."""
    rows = run.spark.createDataFrame([(path,) for path in paths], "file string").withColumns(
        {
            "line": F.lit(None).cast("string"),
            "offset": F.lit(None).cast("long"),
            "ingested": F.current_timestamp(),
            "corrupt": F.lit(True),
            "reason": F.lit("unreadable_file"),
        }
    )
    return rows.select(*BRONZE_CORRUPT.names, F.to_date("ingested").alias("dt"))


def _can_be_read(run: Run, path: str) -> bool:
    try:
        run.spark.read.schema("value string").text(path).agg(F.count("value")).collect()
    except SPARK_FAILED:
        return False
    return True
