"""bronze: take over what has come, line by line, as it was written.

A stream of Spark's: its checkpoint says which files, or offsets, belong to which batch before the batch is begun. A
batch that was cut short is begun again with the same lines and takes the place of what was written; one that is in the
ledger was whole, and only Spark has not heard of it.
"""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from threading import current_thread, main_thread
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from kproxy.errors import KproxyError
from kproxy.pipeline.errors import LakeError
from kproxy.pipeline.ledger import Ledger
from kproxy.pipeline.raw_tables import BRONZE, BRONZE_CORRUPT
from kproxy.pipeline.run import SPARK_FAILED, Run, rate
from kproxy.pipeline.source_log import files_of_batch
from kproxy.pipeline.sources import Source
from kproxy.pipeline.transforms.bronze import corrupt, events, judged
from kproxy.pipeline.transforms.kinds import kinds_known
from kproxy.pipeline.unreadable import as_far_as_it_goes, on_record, unreadable

STREAM_NAME = "kproxy bronze"
LOOK_EVERY = 0.2
"""Seconds until Ctrl-C is seen by a stream that goes on."""


@dataclass(slots=True)
class Taken:
    """What a run has taken over."""

    batches: int = 0
    lines: int = 0
    corrupt: int = 0


def bronze(run: Run, source: Source, every: str | None = None) -> Taken:
    """Take over all there is now, then end; with `every` (`30 seconds`), go on with what comes until stopped."""
    taken = Taken()
    writer = _Writer(run, run.lake.checkpoint(f"bronze/{source.name}"), source.name, taken)
    stream = source.lines(run.spark).writeStream.queryName(STREAM_NAME).foreachBatch(writer.write)
    stream = stream.option("checkpointLocation", writer.checkpoint)
    stream = stream.trigger(processingTime=every) if every else stream.trigger(availableNow=True)
    _await(stream.start(), writer, going_on=every is not None)
    return taken


@dataclass(slots=True)
class _Writer:
    """Writes batches. `failed` keeps the error behind the one that Spark makes of it."""

    run: Run
    checkpoint: str
    name: str
    taken: Taken
    failed: KproxyError | None = None

    def write(self, lines: DataFrame, number: int) -> None:
        batch = f"{self.name}-{self._stream_id()[:8]}-{number:06d}"
        ledger = Ledger(self.run.lake, "bronze")
        if ledger.has(batch):
            return
        begun = time.monotonic()
        try:
            paths = files_of_batch(self.run.lake.files, self.checkpoint, number)
            noted = write_batch(self.run, lines, batch, paths)
            ledger.add(batch, noted)
        except KproxyError as error:
            self.failed = error
            raise
        self.taken.batches += 1
        self.taken.lines += noted["lines"]
        self.taken.corrupt += noted["corrupt"]
        aside = f", {noted['corrupt']:,} corrupt lines put aside" if noted["corrupt"] else ""
        self.run.tell(f"bronze {batch}: {rate(noted['lines'], time.monotonic() - begun)}{aside}")

    def _stream_id(self) -> str:
        """Spark's id of the stream. Another checkpoint is another stream: its batches never overwrite others."""
        return str(json.loads(self.run.lake.files.read(f"{self.checkpoint}/metadata"))["id"])


def write_batch(run: Run, lines: DataFrame, batch: str, paths: list[str]) -> dict[str, Any]:
    """Write one batch, which comes from the files `paths`. What it held: lines, corrupt ones, and the files; and by
    which kinds its lines are sorted."""
    try:
        return _write(run, lines, batch, []) | {"files": paths}
    except SPARK_FAILED:
        broken = unreadable(run, paths)
        if not broken:
            raise
        run.tell(f"bronze {batch}: cannot be read to the end: {', '.join(broken)}")
        return _write(run, as_far_as_it_goes(run, paths), batch, broken) | {"files": paths}


def _write(run: Run, lines: DataFrame, batch: str, broken: list[str]) -> dict[str, Any]:
    found = Observation()
    judgement = judged(lines).observe(found, F.count(F.lit(1)).alias("lines"), F.count("reason").alias("corrupt"))
    run.lake.replace(BRONZE, events(judgement), batch)
    counted = dict(found.get)
    noted = {"lines": counted["lines"], "corrupt": counted["corrupt"] + len(broken), "kinds": kinds_known()}
    run.lake.drop_batch(BRONZE_CORRUPT, batch)
    if noted["corrupt"]:
        aside = corrupt(judged(lines).observe(Observation(), F.count(F.lit(1)).alias("lines")))
        run.lake.replace(BRONZE_CORRUPT, aside.unionByName(on_record(run, broken)) if broken else aside, batch)
    return noted


def _await(query: StreamingQuery, writer: _Writer, *, going_on: bool) -> None:
    try:
        if going_on and _stopped(query):
            query.stop()
        else:
            query.awaitTermination()
    except Exception as error:
        if writer.failed is not None:
            raise writer.failed from error
        raise LakeError(f"bronze stopped: {_first_line(error)}") from error


def _stopped(query: StreamingQuery) -> bool:
    """Wait for Ctrl-C, or for the stream's end; whether it was Ctrl-C.

    PySpark's own handler of Ctrl-C talks to the JVM in the middle of what the main thread has to say to it, and breaks.
    """
    asked: list[int] = []
    ours = current_thread() is main_thread()
    before = signal.signal(signal.SIGINT, lambda number, _: asked.append(number)) if ours else None
    try:
        while not asked and query.isActive:
            time.sleep(LOOK_EVERY)
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
    return bool(asked)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
