"""The what-if job: candidate rules over captured traffic.

Strategy. Captures are read once, a task each, into a temporary table of exchanges. Topic ids get the names that the
captures' own Metadata answers show; they are few, and go to all workers. Then exchanges are shuffled by connection and
ordered within it, on purpose: a session must see its frames in order. Findings are kept for the three answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from glob import glob
from uuid import UUID

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kproxy.errors import DecodeError
from kproxy.pipeline.errors import LakeError
from kproxy.pipeline.whatif import answers
from kproxy.pipeline.whatif.candidate import Candidate, Texts
from kproxy.pipeline.whatif.capture_source import CaptureSource
from kproxy.pipeline.whatif.rehearse import Topics, rehearse
from kproxy.pipeline.whatif.tables import FINDINGS_SCHEMA
from kproxy.wire import decode_response

METADATA = 3
WITH_IDS = 10
"""Version of Metadata from which on answers tell topic ids."""
TOPIC_SCHEMA = "capture string, topic_id string, topic string"
ARROW_TOPICS = pa.schema([("capture", pa.string()), ("topic_id", pa.string()), ("topic", pa.string())])


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
    recorded = spark.read.format("kproxy-capture").option("ports", ports).load(json.dumps(captures)).persist()
    unfit = {
        row["unfit"]: row["count"] for row in recorded.where("unfit is not null").groupBy("unfit").count().collect()
    }
    fit = recorded.where("unfit is null")
    findings = rehearsed(fit, texts, topics_of(fit), tasks or spark.sparkContext.defaultParallelism).persist()
    exchanges = findings.where("what = 'exchanges'").agg(F.sum("count")).first()
    recorded.unpersist()
    return WhatIf(
        answers.rules(findings), answers.affected(findings), answers.samples(findings),
        (exchanges[0] if exchanges is not None else 0) or 0, unfit,
    )  # fmt: skip


def rehearsed(exchanges: DataFrame, texts: Texts, topics: dict[str, Topics], tasks: int) -> DataFrame:
    """Findings of all connections."""
    ordered = exchanges.repartition(tasks, "capture", "connection").sortWithinPartitions(
        "capture", "connection", "request_time", "number"
    )
    return ordered.mapInArrow(rehearse(texts, topics), FINDINGS_SCHEMA)


def topics_of(exchanges: DataFrame) -> dict[str, Topics]:
    """Names by topic id, by capture."""
    shown = exchanges.where((F.col("api_key") == METADATA) & (F.col("version") >= WITH_IDS))
    named = (
        shown.select("capture", "version", "response").where("response is not null").mapInArrow(_named, TOPIC_SCHEMA)
    )
    found: dict[str, dict[UUID, str]] = {}
    for row in named.distinct().collect():
        found.setdefault(row["capture"], {})[UUID(row["topic_id"])] = row["topic"]
    return dict(found)


def _named(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [
            {"capture": row["capture"], "topic_id": str(topic["topic_id"]), "topic": topic["name"]}
            for row in batch.to_pylist()
            for topic in _topics(row["response"], row["version"])
            if topic["name"]
        ]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=ARROW_TOPICS)


def _topics(frame: bytes, version: int) -> list[dict[str, object]]:
    try:
        return decode_response(frame, METADATA, version, trailing=True).body["topics"] or []
    except DecodeError:
        return []
