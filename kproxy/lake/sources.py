"""Sources of events: the files that kproxy writes, or a Kafka topic. Streams of lines, nothing parsed.

Columns: `line`, `file`, `offset` (of a topic), `ingested` (the batch's time, the same when the batch is done again).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kproxy.base.errors import LakeError

from .files import Files

PUBLISHED = "*.ndjson{,.gz}"
"""Names of whole files; what is still being written has a dot in front, and Spark passes over it."""

BATCH_BYTES = 512 * 1024 * 1024
"""Bytes of files in one batch, gzipped as they are: some six million events. What a kill costs is one batch."""

BATCH_OFFSETS = 5_000_000
"""Messages in one batch."""

FOREVER = "36500d"
"""Spark passes over files a week older than the newest it has seen. Files of a host that was away come late, too."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """Source of the files of an audit folder: `<path>/dt=…/*.ndjson.gz`."""

    path: str
    batch_bytes: int = BATCH_BYTES

    @property
    def name(self) -> str:
        """Return the name of the checkpoint: files of all folders are one stream."""
        return "files"

    def lines(self, spark: SparkSession) -> DataFrame:
        """Return the stream of lines. Raises LakeError if this is no audit folder."""
        files = Files(spark)
        check_folder(files, self.path)
        read = (
            spark.readStream.schema("value string")
            .option("pathGlobFilter", PUBLISHED)
            .option("lineSep", "\n")
            .option("maxBytesPerTrigger", self.batch_bytes)
            .option("maxFileAge", FOREVER)
            .text(f"{files.whole(self.path)}/dt=*")
        )
        return read.select(
            F.col("value").alias("line"),
            F.col("_metadata.file_path").alias("file"),
            F.lit(None).cast("long").alias("offset"),
            F.current_timestamp().alias("ingested"),
        )


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """Source of a topic's messages, one event each. `options` are Spark's and, with `kafka.` in front, the client's."""

    bootstrap: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the checkpoint, one for each topic."""
        return f"kafka-{self.topic}"

    def lines(self, spark: SparkSession) -> DataFrame:
        """Return the stream of lines, from the topic's beginning on.

        What the topic has lost since the last run is an error of Spark's, unless `failOnDataLoss` says otherwise.
        """
        read = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", BATCH_OFFSETS)
            .options(**self.options)
            .load()
        )
        return read.select(
            F.col("value").cast("string").alias("line"),
            F.concat(F.lit("kafka:"), "topic", F.lit("/"), "partition").alias("file"),
            "offset",
            F.current_timestamp().alias("ingested"),
        )


EventSource = FileSource | KafkaSource


def check_folder(files: Files, path: str) -> None:
    """Raise LakeError unless `path` is a folder that kproxy writes events to, or an empty one."""
    if not files.exists(path):
        raise LakeError(f"there is no folder {path}; it is the one that the config has as audit.dir")
    if not files.is_folder(path):
        raise LakeError(f"{path} is a file; a folder with dt=YYYY-MM-DD/*.ndjson.gz is expected")
    shown = [entry.name for entry in files.entries(path) if not entry.name.startswith((".", "_"))]
    if shown and not any(name.startswith("dt=") for name in shown):
        few = ", ".join(shown[:3])
        raise LakeError(f"{path} holds no events: dt=YYYY-MM-DD/*.ndjson.gz is expected, there is {few}")
