"""Spark session and run of all jobs.

Under spark-submit the master, the memory and whatever else was given there stands: only what the jobs rely on is set
here (UTC, columnar details). Started from Python it is `local[*]`, of this process' own interpreter.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kproxy.pipeline.connector import connector_jars
from kproxy.pipeline.lake import Lake

SPARK_FAILED = (PySparkException, Py4JJavaError)
"""Errors that Spark raises: those that PySpark knows, and Java's as they are."""

RELIED_ON = {
    "spark.sql.session.timeZone": "UTC",  # dt is a UTC date
    "spark.sql.parquet.compression.codec": "zstd",  # half of snappy's size on these lines, and no slower
    "spark.sql.maxConcurrentOutputFileWriters": "32",  # days in one task: written side by side, without sorting
    "spark.sql.codegen.maxFields": "1000",  # wide rows are compiled, too
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings that answers depend on, or that save much."""

LOCAL = {
    "spark.sql.shuffle.partitions": "8",  # 200 by default, tasks of some rows each
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.files.maxPartitionBytes": "64m",
}
"""Settings that suit one machine; clusters have their own."""

FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
"""Java without its second compiler, which takes longer than what Java does in a job whose work is Python's."""

MEMORY = "2g"
"""Heap of a local session. The jobs stream; what takes memory are Parquet's row groups, open in each task."""

_LOGGING = Path(__file__).with_name("log4j2.properties")


def session(
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    memory: str | None = None,
    kafka: bool = False,
    in_python: bool = False,
) -> SparkSession:
    """Return the session: the running one, that of spark-submit, or a new one on `master` (local[*]).

    `settings` are Spark's own and go over all others. `kafka`: with the Kafka connector, fetched if need be.
    `in_python`: nearly all of the job's work is done by Python's workers.
    """
    builder = SparkSession.builder.appName("kproxy audit")
    for name, value in {**RELIED_ON, **_of_local_master(master, memory, kafka, in_python), **(settings or {})}.items():
        builder = builder.config(name, value)
    started: SparkSession = builder.getOrCreate()
    return started


def submitted() -> bool:
    """Return True if spark-submit started this process, and so has decided about the master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _of_local_master(master: str | None, memory: str | None, kafka: bool, in_python: bool) -> dict[str, str]:
    if submitted():
        return {}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers of another Python would not have kproxy
    chosen = {"spark.master": master or "local[*]"}
    if chosen["spark.master"].startswith("local"):
        chosen |= LOCAL
        java = [f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}", *([FIRST_COMPILER] if in_python else [])]
        chosen |= {
            "spark.driver.extraJavaOptions": " ".join(java),
            "spark.driver.memory": memory or MEMORY,
            "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        }
    if kafka:
        chosen["spark.jars"] = ",".join(map(str, connector_jars()))
    return chosen


@dataclass(frozen=True, slots=True)
class Run:
    """Run of one job. `tell` takes one line for the user, without a line end."""

    spark: SparkSession
    lake: Lake
    tell: Callable[[str], None]


def rate(count: int, seconds: float) -> str:
    """Return a count with its rate: `1,000,000 events in 12.1 s (82,645/s)`."""
    return f"{count:,} events in {seconds:.1f} s ({count / max(seconds, 0.001):,.0f}/s)"
