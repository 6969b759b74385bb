"""Spark session and run of all jobs.

Under spark-submit the master, the memory and whatever else was given there stands: only what the jobs rely on is set
here (UTC, columnar details). Started from Python it is `local[*]`, of this process' own interpreter.
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

from kproxy.lake.connector import connector_jars
from kproxy.lake.lake import Lake

SPARK_FAILED = (PySparkException, Py4JJavaError)
"""Errors that Spark raises: those that PySpark knows, and Java's as they are."""

RELIED_ON = {
    "spark.sql.session.timeZone": "UTC",  # dt is a UTC date
    "spark.sql.parquet.compression.codec": "zstd",  # half of snappy's size on these lines, and no slower
    "spark.sql.maxConcurrentOutputFileWriters": "32",  # days in one task: written side by side, without sorting
    "spark.sql.codegen.maxFields": "1000",  # wide rows are compiled, too
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # each expression would tell Java its line
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

FIRST_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
"""Java without its second compiler, which takes longer than what it saves where Java has little to do. So it would have
48 MB for what it compiles, which gold fills: then it compiles no more, or fails."""

LATE_SECOND_COMPILER = (
    "-XX:Tier4InvocationThreshold=60000",
    "-XX:Tier4MinInvocationThreshold=7200",
    "-XX:Tier4CompileThreshold=180000",
    "-XX:Tier4BackEdgeThreshold=240000",
)
"""Java's second compiler begins after twelve times as many calls as usual, and six times as many rounds of a loop: each
stage of a query is a program of its own, most of which are over before it has paid. What goes over millions of rows
reaches this at once; where loops have to wait for longer, 400,000 rows a task are over before."""

COLLECTOR = "-XX:+UseParallelGC"
"""The collector that jobs run fastest with: nobody waits for an answer while it works, and what is compiled is smaller
than for G1, which notes each reference that is stored."""

MEMORY = "2g"
"""Heap of a local session. The jobs stream; what takes memory are Parquet's row groups, open in each task."""

SMALL = 12 << 20
"""Bytes of files below which compiling and dividing a query takes longer than it saves: of 12 MB, which are 300,000
events in silver, gold was still made in less time without; more was not measured."""

FOR_SMALL_DATA = {
    "spark.sql.codegen.wholeStage": ("true", "false"),
    "spark.sql.codegen.factoryMode": ("FALLBACK", "NO_CODEGEN"),
    "spark.sql.adaptive.enabled": ("true", "false"),
    "spark.sql.autoBroadcastJoinThreshold": ("10485760b", "-1b"),
    "spark.sql.shuffle.partitions": (LOCAL["spark.sql.shuffle.partitions"], "1"),
}
"""Settings that take less time for small data: (as they usually are, for small data). Others are somebody's wish."""

FUNCTIONS = ("functions", "org.apache.spark.sql.functions", "PythonUtils")
"""Classes by the names by which PySpark asks for them."""

AT_ONCE = 4
"""Queries at once: while one is planned, which keeps one core busy, tasks of another run."""

_LOGGING = Path(__file__).with_name("log4j2.properties")


def session(
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    memory: str | None = None,
    kafka: bool = False,
    brief: bool = False,
) -> SparkSession:
    """Return the session: the running one, that of spark-submit, or a new one on `master` (local[*]).

    `settings` are Spark's own and go over all others. `kafka`: with the Kafka connector, fetched if need be.
    `brief`: Java has little to do, as there is little data or the work is done by Python's workers.
    """
    builder = SparkSession.builder.appName("kproxy audit")
    for name, value in {**RELIED_ON, **_of_local_master(master, memory, kafka, brief), **(settings or {})}.items():
        builder = builder.config(name, value)
    started: SparkSession = builder.getOrCreate()
    remember_functions(started)
    return started


class FunctionLookup:
    """Class of Java's, of which each static method is looked up once."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._java_class, name)
        setattr(self, name, found)
        return found


def remember_functions(spark: SparkSession) -> None:
    """Look Spark's functions up once. PySpark asks Java for the class and the method at each use: half of what it costs
    to make an expression, and jobs that make hundreds spend most of their time on that where there is little data."""
    view = vars(spark.sparkContext._jvm)
    for name in FUNCTIONS:
        if name not in view:
            view[name] = FunctionLookup(getattr(spark.sparkContext._jvm, name))


def submitted() -> bool:
    """Return True if spark-submit started this process, and so has decided about the master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def suited_to(spark: SparkSession, size: int) -> Iterator[Callable[[DataFrame], DataFrame]]:
    """Have queries of this block planned for so many bytes of files. Yields what is put around each table that they
    read: small data is read by one task, and then nothing has to be exchanged between tasks."""
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
    """Return the rows as several tasks read them, divided by their files."""
    return rows


WorkItem = TypeVar("WorkItem")
WorkResult = TypeVar("WorkResult")


def side_by_side(work: Callable[[WorkItem], WorkResult], things: Sequence[WorkItem]) -> list[WorkResult]:
    """Do the work for each of the things, some at once, and return the results in the order of the things. Raises what
    one of them raises; those that have not begun by then are left."""
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
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers of another Python would not have kproxy
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
    """Return the option for `COLLECTOR`, none if the environment has chosen one: Java refuses to start with two."""
    chosen = (os.environ.get(name, "") for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"))
    return [] if re.search(r"-XX:\+Use\w+GC\b", " ".join(chosen)) else [COLLECTOR]


@dataclass(frozen=True, slots=True)
class Run:
    """Run of one job. `tell` takes one line for the user, without a line end."""

    spark: SparkSession
    lake: Lake
    tell: Callable[[str], None]


def rate(count: int, seconds: float) -> str:
    """Return a count with its rate: `1,000,000 events in 12.1 s (82,645/s)`."""
    return f"{count:,} events in {seconds:.1f} s ({count / max(seconds, 0.001):,.0f}/s)"
