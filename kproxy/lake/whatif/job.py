"""whatif: rehearse candidate rules on captured traffic.

Captures are read once, one task each, into a temporary table of chunks. A chunk packs many exchanges of one connection,
so Spark moves few rows. The summary of a capture (names of its topic ids, exchanges that are unfit) is small and sent
to all workers. Then chunks are shuffled by connection and ordered within it, because a session must see its frames in
order. Tasks return sums of findings, which are cached for the three answers.

Captures are a Spark data source:

    spark.dataSource.register(CaptureSource)
    spark.read.format("kproxy-capture").option("rules", "[]").load('["captures/*.pcapng"]')

The path is a JSON list of files and globs that the workers can read. Options: `ports`, the brokers' ports, separated by
commas; `rules`, names and contents of rule files as JSON, which determine the exchanges to skip.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from kproxy.base.errors import CaptureError, LakeError
from kproxy.lake.lake import struct
from kproxy.lake.whatif.rehearsal_task import FINDINGS_SCHEMA, SAMPLES, rehearse
from kproxy.record.captures.reader import KAFKA_PORT, Capture
from kproxy.record.events.column import Column
from kproxy.tools.rehearse.whatif.candidate import Candidate, CapturePacking, ChunkRow, RuleTexts
from kproxy.tools.rehearse.whatif.exchange import CaptureSummary, unpack_summary

CHUNKS = (
    Column("what", "string", "chunk (exchanges of one connection), or capture (its summary)"),
    Column("capture", "string", "file that it was recorded in"),
    Column("connection", "long", "number of the connection in the capture"),
    Column("place", "long", "tells connections apart that have the same number"),
    Column("part", "long", "position of the chunk on its connection, from 0 on"),
    Column("packed", "string", "`ExchangeChunk` or `CaptureSummary` of `exchange.py`, in MessagePack"),
)
"""`packed` is binary in Spark."""
CHUNKS_SCHEMA = StructType(
    [StructField(field.name, BinaryType()) if field.name == "packed" else field for field in struct(CHUNKS).fields]
)

BATCH_BYTES = 4 << 20
"""Bytes of packed exchanges in one Arrow batch."""
MOST_FRAME = 8 << 20
"""Maximum size of a rehearsed frame in bytes; larger frames are reported as unfit."""

ARROW = pa.schema(
    [
        ("what", pa.string()), ("capture", pa.string()), ("connection", pa.int64()), ("place", pa.int64()),
        ("part", pa.int64()), ("packed", pa.binary()),
    ]
)  # fmt: skip


@dataclass
class File(InputPartition):
    """Partition of the source: one capture."""

    path: str


class CaptureSource(DataSource):
    """Spark source of captures; see the module."""

    @classmethod
    def name(cls) -> str:
        return "kproxy-capture"

    def schema(self) -> StructType:
        return CHUNKS_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return CaptureReader(dict(self.options))


class CaptureReader(DataSourceReader):
    """Reader of the captures of one load."""

    def __init__(self, options: dict[str, str]) -> None:
        self.path = options.get("path", "")
        self.ports = [int(port) for port in options.get("ports", str(KAFKA_PORT)).split(",")]
        self.rules = options.get("rules", "[]")

    def partitions(self) -> list[InputPartition]:
        paths = sorted({path for one in json.loads(self.path) for path in glob(one)})
        if not paths:
            raise LakeError(f"no capture at {self.path!r}")
        return [File(path) for path in paths]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, File)
        waiting: list[ChunkRow] = []
        size = 0
        for row in self.rows(partition.path):
            waiting.append(row)
            size += len(row.packed)
            if size >= BATCH_BYTES:
                yield arrow(waiting)
                waiting, size = [], 0
        yield arrow(waiting)

    def rows(self, path: str) -> Iterator[ChunkRow]:
        """Yield the packed rows of one capture, and its summary last."""
        packing = CapturePacking(path, Candidate([(name, text) for name, text in json.loads(self.rules)], 0.0))
        capture = Capture(path, ports=self.ports, most=MOST_FRAME, closed=packing.ended.append)
        try:
            for seen in capture:
                packing.add(seen)
                if packing.rows:
                    yield from packing.take()
        except CaptureError as error:
            raise LakeError(f"{path}: {error}") from None
        packing.finish(capture.names.by_id)
        yield from packing.take()


def arrow(rows: list[ChunkRow]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)], schema=ARROW
    )


ROWS_AT_ONCE = "64"
"""Chunks in one Arrow batch of a worker: 16 MB, since a full chunk has 256 KB."""
AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Result of the job: the answers as DataFrames, and counts of the input."""

    rules: DataFrame
    affected: DataFrame
    samples: DataFrame
    exchanges: int
    unfit: dict[str, int]
    """Exchanges that could not be rehearsed, by reason."""


def whatif(
    spark: SparkSession, captures: list[str], texts: RuleTexts, *, ports: str = "9092", tasks: int | None = None
) -> WhatIf:
    """Rehearse `texts` (name and content of rule files) on captures, files or globs of them.

    Raises DocumentError for invalid rules, LakeError without captures.
    """
    Candidate(texts, 0.0)  # report errors here, not in a worker
    for pattern in captures:
        if not glob(pattern):
            raise LakeError(f"no capture at {pattern}")
    spark.dataSource.register(CaptureSource)
    source = spark.read.format("kproxy-capture").option("ports", ports).option("rules", json.dumps(list(texts)))
    recorded = source.load(json.dumps(captures)).persist()
    summaries = summaries_of(recorded)
    with _rows_at_once(spark):
        findings = all_findings(recorded, texts, summaries, tasks or spark.sparkContext.defaultParallelism).persist()
        counted = findings.where("what = 'exchanges'").agg(F.sum("count")).first()
    recorded.unpersist()
    unfit: Counter[str] = Counter()
    for capture in summaries.values():
        unfit.update(capture.unfit)
    looked_at = (counted[0] if counted is not None else 0) or 0
    return WhatIf(
        rules(findings), affected(findings), samples(findings),
        looked_at + sum(summary.opaque for summary in summaries.values()), dict(unfit),
    )  # fmt: skip


def summaries_of(recorded: DataFrame) -> dict[str, CaptureSummary]:
    """Return the summary of each capture: small, and broadcast to all workers."""
    rows = recorded.where("what = 'capture'").select("capture", "packed").collect()
    return {row["capture"]: unpack_summary(row["packed"]) for row in rows}


def all_findings(recorded: DataFrame, texts: RuleTexts, summaries: dict[str, CaptureSummary], tasks: int) -> DataFrame:
    chunks = recorded.where("what = 'chunk'").drop("what").repartition(tasks, "capture", "connection")
    ordered = chunks.sortWithinPartitions("capture", "connection", "place", "part")
    return ordered.mapInArrow(rehearse(texts, summaries), FINDINGS_SCHEMA)


@contextmanager
def _rows_at_once(spark: SparkSession) -> Iterator[None]:
    """Limit the rows of an Arrow batch in this block: Spark's limit counts rows, and these are large."""
    before = spark.conf.get(AT_ONCE)
    spark.conf.set(AT_ONCE, ROWS_AT_ONCE)
    try:
        yield
    finally:
        spark.conf.set(AT_ONCE, before or "10000")


def rules(findings: DataFrame) -> DataFrame:
    """Return the effects of each rule, one row a rule.

    Columns: rule, kind, matched, fired, applied (of live rules), requests (for which it fired, or that it changed),
    changed, answered, closed, lost, delay_ms_mean, delay_ms_max, clients, topics (number), approximate. A rule without
    matching exchanges has a row as well.

    A change is attributed with certainty only to a rule that was rehearsed alone. If several live rules fire for one
    request, each row has the effects of all of them.
    """
    counted = (
        findings.where(F.col("what") == "rule")
        .groupBy("rule", "kind")
        .agg(
            *(F.sum(name).alias(name) for name in ("matched", "fired", "applied")),
            F.max("approximate").alias("approximate"),
        )
    )
    groups = findings.where(F.col("what") == "group")
    did = groups.groupBy("rule").agg(
        F.sum("requests").alias("requests"),
        F.sum("changes").alias("changed"),
        F.sum("answers").alias("answered"),
        F.sum("closes").alias("closed"),
        F.sum("losses").alias("lost"),
        (F.sum("delay_ms") / F.sum("requests")).alias("delay_ms_mean"),
        F.max("delay_ms_max").alias("delay_ms_max"),
        F.count_distinct("client_id").alias("clients"),
    )
    topics = groups.select("rule", F.explode("topics").alias("topic")).groupBy("rule")
    named = topics.agg(F.count_distinct("topic").alias("topics"))
    return counted.join(did, "rule", "full").join(named, "rule", "left").orderBy("rule")


def affected(findings: DataFrame) -> DataFrame:
    """Return the clients that each rule would have affected.

    Columns: rule, client_id, client_address, api, topic, requests, first and last.
    """
    each = findings.where(F.col("what") == "group").withColumn("topic", F.explode_outer("topics"))
    return (
        each.groupBy("rule", "client_id", "client_address", "api", "topic")
        .agg(F.sum("requests").alias("requests"), F.min("time").alias("first"), F.max("last").alias("last"))
        .orderBy("rule", F.desc("requests"), "client_id", "api", "topic")
    )


def samples(findings: DataFrame, most: int = SAMPLES) -> DataFrame:
    """Return the first exchanges that each rule would have affected: at most `most`, and at most `SAMPLES`."""
    order = Window.partitionBy("rule").orderBy("time", "capture", "connection", "number")
    return (
        findings.where(F.col("what") == "sample")
        .withColumn("place", F.row_number().over(order))
        .where(F.col("place") <= most)
        .select(
            "rule", "time", "capture", "connection", "number", "client_id", "api", "version", "topics",
            "request_changed", "response_changed", "answered", "closed", "lost", "delay_ms",
        )
        .orderBy("rule", "time", "number")
    )  # fmt: skip
