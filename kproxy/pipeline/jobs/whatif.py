"""The what-if job: candidate rules over captured traffic.

Strategy. Captures are read once, a task each, into a temporary table of chunks: many exchanges of one connection,
packed, so that Spark moves few rows. What is told of a capture as a whole (names of its topic ids, what is unfit) is
small, and goes to all workers. Then chunks are shuffled by connection and ordered within it, on purpose: a session must
see its frames in order. Findings come back summed, and are kept for the three answers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kproxy.pipeline.errors import LakeError
from kproxy.pipeline.whatif import answers
from kproxy.pipeline.whatif.candidate import Candidate, Texts
from kproxy.pipeline.whatif.capture_source import CaptureSource
from kproxy.pipeline.whatif.recorded import Told, unpack_told
from kproxy.pipeline.whatif.rehearse import rehearse
from kproxy.pipeline.whatif.tables import FINDINGS_SCHEMA

ROWS_AT_ONCE = "64"
"""Chunks that a worker is given in one Arrow batch: 16 MB, since a full one has 256 KB."""
AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answers, as DataFrames (see `whatif/answers.py`), and what they are about."""

    rules: DataFrame
    affected: DataFrame
    samples: DataFrame
    exchanges: int
    unfit: dict[str, int]
    """Exchanges that could not be rehearsed, by reason."""


def whatif(
    spark: SparkSession, captures: list[str], texts: Texts, *, ports: str = "9092", tasks: int | None = None
) -> WhatIf:
    """Rehearse `texts` (name and content of rule files) on captures, files or globs of them.

    Raises DocumentError for rules with a mistake, LakeError when there is no capture.
    """
    Candidate(texts, 0.0)  # mistakes are told here, not by a worker
    for one in captures:
        if not glob(one):
            raise LakeError(f"no capture at {one}")
    spark.dataSource.register(CaptureSource)
    source = spark.read.format("kproxy-capture").option("ports", ports).option("rules", json.dumps(list(texts)))
    recorded = source.load(json.dumps(captures)).persist()
    told = told_of(recorded)
    with _rows_at_once(spark):
        findings = rehearsed(recorded, texts, told, tasks or spark.sparkContext.defaultParallelism).persist()
        counted = findings.where("what = 'exchanges'").agg(F.sum("count")).first()
    recorded.unpersist()
    unfit: Counter[str] = Counter()
    for capture in told.values():
        unfit.update(capture.unfit)
    looked_at = (counted[0] if counted is not None else 0) or 0
    return WhatIf(
        answers.rules(findings), answers.affected(findings), answers.samples(findings),
        looked_at + sum(one.opaque for one in told.values()), dict(unfit),
    )  # fmt: skip


def told_of(recorded: DataFrame) -> dict[str, Told]:
    """What is told of each capture: small, and for all workers."""
    rows = recorded.where("what = 'capture'").select("capture", "packed").collect()
    return {row["capture"]: unpack_told(row["packed"]) for row in rows}


def rehearsed(recorded: DataFrame, texts: Texts, told: dict[str, Told], tasks: int) -> DataFrame:
    """Findings of all connections."""
    chunks = recorded.where("what = 'chunk'").drop("what").repartition(tasks, "capture", "connection")
    ordered = chunks.sortWithinPartitions("capture", "connection", "place", "part")
    return ordered.mapInArrow(rehearse(texts, told), FINDINGS_SCHEMA)


@contextmanager
def _rows_at_once(spark: SparkSession) -> Iterator[None]:
    """Spark counts rows of a batch, and these are large."""
    before = spark.conf.get(AT_ONCE)
    spark.conf.set(AT_ONCE, ROWS_AT_ONCE)
    try:
        yield
    finally:
        spark.conf.set(AT_ONCE, before or "10000")
