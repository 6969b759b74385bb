"""Run of a job: the session, the lake, and where to report progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kproxy.pipeline.lake import Lake

SPARK_FAILED = (PySparkException, Py4JJavaError)
"""Errors that Spark raises: those that PySpark knows, and Java's as they are."""


@dataclass(frozen=True, slots=True)
class Run:
    """Run of one job. `tell` takes one line for the user, without a line end."""

    spark: SparkSession
    lake: Lake
    tell: Callable[[str], None]

    @contextmanager
    def timed(self, what: Callable[[float], str]) -> Iterator[None]:
        """Tell `what(seconds)` when the block is done."""
        begun = time.monotonic()
        yield
        self.tell(what(time.monotonic() - begun))


def rate(count: int, seconds: float) -> str:
    """Return a count with its rate: `1,000,000 events in 12.1 s (82,645/s)`."""
    return f"{count:,} events in {seconds:.1f} s ({count / max(seconds, 0.001):,.0f}/s)"
