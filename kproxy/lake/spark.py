"""Spark session and run of all jobs.

Under spark-submit, its master, memory and other settings are kept. This module only sets what the jobs depend on (UTC,
columnar settings). Started from Python, the master is `local[*]` with the interpreter of this process.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kproxy.base.errors import plural
from kproxy.lake.connector import connector_jars
from kproxy.lake.lake import Lake

SPARK_FAILED = (PySparkException, Py4JJavaError)
"""Errors that Spark raises: PySpark's exceptions, and Java exceptions without one."""

RELIED_ON = {
    "spark.sql.session.timeZone": "UTC",  # dt is a UTC date
    "spark.sql.parquet.compression.codec": "zstd",  # half of snappy's size on these lines, and no slower
    "spark.sql.maxConcurrentOutputFileWriters": "32",  # days in one task: files written concurrently, without sorting
    "spark.sql.codegen.maxFields": "1000",  # compiles wide rows as well
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # without it each expression sends its line to Java
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings that answers depend on, or that save much time."""

LOCAL = {
    "spark.sql.shuffle.partitions": "8",  # default 200: tasks of a few rows each
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.files.maxPartitionBytes": "64m",
}
"""Settings for one machine; clusters have their own."""

FIRST_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
"""Disables Java's second compiler, which takes longer than it saves in short jobs. This alone would limit the code
cache to 48 MB. Gold fills that, and Java then stops compiling, or fails."""

LATE_SECOND_COMPILER = (
    "-XX:Tier4InvocationThreshold=60000",
    "-XX:Tier4MinInvocationThreshold=7200",
    "-XX:Tier4CompileThreshold=180000",
    "-XX:Tier4BackEdgeThreshold=240000",
)
"""Java's second compiler starts after 12 times as many calls, and 6 times as many loop iterations, as by default. Each
stage of a query is its own program, and most end before compilation pays off. Code for millions of rows reaches these
thresholds at once. With higher loop thresholds, tasks of 400,000 rows end first."""

COLLECTOR = "-XX:+UseParallelGC"
"""The fastest collector for these jobs, which have no latency requirement. Compiled code is smaller than for G1, which
has a barrier at each stored reference."""

MEMORY = "2g"
"""Heap of a local session. The jobs stream; most memory is used by Parquet's open row groups of each task."""

SMALL = 12 << 20
"""Bytes of files below which compiling and partitioning a query takes longer than it saves. Gold was faster without at
12 MB, which is 300,000 events in silver; larger sizes were not measured."""

FOR_SMALL_DATA = {
    "spark.sql.codegen.wholeStage": ("true", "false"),
    "spark.sql.codegen.factoryMode": ("FALLBACK", "NO_CODEGEN"),
    "spark.sql.adaptive.enabled": ("true", "false"),
    "spark.sql.autoBroadcastJoinThreshold": ("10485760b", "-1b"),
    "spark.sql.shuffle.partitions": (LOCAL["spark.sql.shuffle.partitions"], "1"),
}
"""Faster settings for small data: (default, for small data). A setting is kept if its current value is not the
default."""

FUNCTIONS = ("functions", "org.apache.spark.sql.functions", "PythonUtils")
"""Names by which PySpark looks up Java classes."""

AT_ONCE = 4
"""Concurrent queries: planning one keeps one core busy while tasks of another run."""

_LOGGING = Path(__file__).with_name("log4j2.properties")


def session(
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    memory: str | None = None,
    kafka: bool = False,
    brief: bool = False,
) -> SparkSession:
    """Return the running session, that of spark-submit, or a new one on `master` (local[*]).

    `settings` are Spark's and override all others. `kafka`: with the Kafka connector, fetched if missing. `brief`: Java
    has little work, because data is small or Python's workers do the work.
    """
    builder = SparkSession.builder.appName("kproxy audit")
    for name, value in {**RELIED_ON, **_of_local_master(master, memory, kafka, brief), **(settings or {})}.items():
        builder = builder.config(name, value)
    started: SparkSession = builder.getOrCreate()
    remember_functions(started)
    return started


class FunctionLookup:
    """Java class with cached lookups of static methods."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._java_class, name)
        setattr(self, name, found)
        return found


def remember_functions(spark: SparkSession) -> None:
    """Cache Spark's functions. PySpark looks up the class and the method in Java at each use, which is half of the cost
    of an expression. With little data, jobs with hundreds of expressions spend most of their time there."""
    view = vars(spark.sparkContext._jvm)
    for name in FUNCTIONS:
        if name not in view:
            view[name] = FunctionLookup(getattr(spark.sparkContext._jvm, name))


def submitted() -> bool:
    """Return True if spark-submit started this process, and so has chosen the master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def suited_to(spark: SparkSession, size: int) -> Iterator[Callable[[DataFrame], DataFrame]]:
    """Set the session's settings for queries on this many bytes of files during this block. Yields a function to apply
    to each table: small data is read by one task, so no shuffle is needed."""
    changed = {}
    if size < SMALL:
        for name, (usual, small) in FOR_SMALL_DATA.items():
            if spark.conf.get(name) == usual:
                changed[name] = usual
                spark.conf.set(name, small)
    try:
        yield in_one_partition if size < SMALL else as_it_is
    finally:
        for name, usual in changed.items():
            spark.conf.set(name, usual)


def in_one_partition(rows: DataFrame) -> DataFrame:
    return rows.coalesce(1)


def as_it_is(rows: DataFrame) -> DataFrame:
    """Return the rows unchanged: several tasks read them."""
    return rows


WorkItem = TypeVar("WorkItem")
WorkResult = TypeVar("WorkResult")


def side_by_side(work: Callable[[WorkItem], WorkResult], things: Sequence[WorkItem]) -> list[WorkResult]:
    """Run `work` for each of the things, `AT_ONCE` concurrently, and return the results in order. Raises the first
    error and cancels pending work."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        begun = [pool.submit(work, thing) for thing in things]
        try:
            return [one.result() for one in begun]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _of_local_master(master: str | None, memory: str | None, kafka: bool, brief: bool) -> dict[str, str]:
    if submitted():
        return {}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # other Python installations may not have kproxy
    chosen = {"spark.master": master or "local[*]"}
    if chosen["spark.master"].startswith("local"):
        chosen |= LOCAL
        compilers = FIRST_COMPILER if brief else LATE_SECOND_COMPILER
        java = [f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}", *_collector(), *compilers]
        chosen |= {
            "spark.driver.extraJavaOptions": " ".join(java),
            "spark.driver.memory": memory or MEMORY,
            "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        }
    if kafka:
        chosen["spark.jars"] = ",".join(map(str, connector_jars()))
    return chosen


def _collector() -> list[str]:
    """Return the option for `COLLECTOR`; empty if the environment sets a collector, because Java does not start with
    two."""
    chosen = (os.environ.get(name, "") for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"))
    return [] if re.search(r"-XX:\+Use\w+GC\b", " ".join(chosen)) else [COLLECTOR]


@dataclass(frozen=True, slots=True)
class Run:
    """Run of one job. `tell` prints one line for the user; the line has no line end."""

    spark: SparkSession
    lake: Lake
    tell: Callable[[str], None]


def rate(count: int, seconds: float) -> str:
    """Return a count with its rate: `1,000,000 events in 12.1 s (82,645/s)`."""
    return f"{plural(count, 'event')} in {seconds:.1f} s ({count / max(seconds, 0.001):,.0f}/s)"
