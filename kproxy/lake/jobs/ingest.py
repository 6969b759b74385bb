"""Jobs of bronze and silver.

Bronze copies events, line by line, from event files or a Kafka topic into the lake.

The sources have the columns `line`, `file`, `offset` (of a topic) and `ingested`. `ingested` is the batch's time, which
stays the same when the batch is repeated.

The job is a Spark stream. Its checkpoint assigns files or offsets to a batch before the batch begins. An interrupted
batch is repeated with the same lines and replaces what was written. A batch in the ledger is complete.

Spark fails the whole batch for one unreadable file (torn gzip, a bad disk), and fails again at every start. If a batch
fails, each of its files is therefore read alone. An unreadable file is read up to the defect, and recorded in
bronze_corrupt.

Silver converts bronze to typed rows, one table per kind of event. One silver batch has the name of its bronze batch, so
repeating it replaces it. The job converts the batches that are finished in bronze and not in silver. Lines become rows
in Arrow (`columnar/`). If driver and workers share the lake's file system, workers write the files of all tables in one
pass, and the files of finished tasks are moved into place. Otherwise Spark writes them, table by table, because only
Spark has the credentials.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import current_thread, main_thread
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from kproxy.base.errors import KproxyError, LakeError, plural
from kproxy.lake.columnar.columns import kinds_of
from kproxy.lake.columnar.task import LINES, WRITTEN, giving, giving_ids, writing
from kproxy.lake.lake import BatchLedger, Files, rows_of
from kproxy.lake.spark import SPARK_FAILED, Run, rate
from kproxy.lake.tables import BRONZE, BRONZE_CORRUPT, IDS, KIND, TABLES, LakeTable
from kproxy.lake.transforms.bronze import KINDS, corrupt, events, kinds_known, reread, with_envelope
from kproxy.lake.transforms.ids import doubled, without_duplicates

PUBLISHED = "*.ndjson{,.gz}"
"""Names of complete files. Files still being written have a leading dot, and Spark ignores them."""

BATCH_BYTES = 512 * 1024 * 1024
"""Bytes of files in one batch, compressed: about six million events. A kill loses at most one batch."""

BATCH_OFFSETS = 5_000_000
"""Messages in one batch."""

FOREVER = "36500d"
"""Spark skips files that are a week older than the newest it has seen. Files of a host that was offline come late."""


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
        """Return the stream of lines. Raises LakeError if the folder is not an audit folder."""
        files = Files(spark)
        check_folder(files, self.path)
        read = (
            spark.readStream.schema("value string")
            .option("pathGlobFilter", PUBLISHED)
            .option("lineSep", "\n")
            .option("maxBytesPerTrigger", self.batch_bytes)
            .option("maxFileAge", FOREVER)
            .text(f"{files.absolute(self.path)}/dt=*")
        )
        return read.select(
            F.col("value").alias("line"),
            F.col("_metadata.file_path").alias("file"),
            F.lit(None).cast("long").alias("offset"),
            F.current_timestamp().alias("ingested"),
        )


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """Source of a topic's messages, one event each. `options` are Spark's and, with the prefix `kafka.`, the
    client's."""

    bootstrap: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the checkpoint, one for each topic."""
        return f"kafka-{self.topic}"

    def lines(self, spark: SparkSession) -> DataFrame:
        """Return the stream of lines, from the beginning of the topic.

        Records that the topic lost since the last run are a Spark error unless `failOnDataLoss` is false.
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
    """Raise LakeError unless `path` is an audit folder or an empty folder."""
    if not files.exists(path):
        raise LakeError(f"folder not found: {path} (expected the folder of audit.dir)")
    if not files.is_folder(path):
        raise LakeError(f"{path} is a file; a folder with dt=YYYY-MM-DD/*.ndjson.gz is expected")
    shown = [entry.name for entry in files.entries(path) if not entry.name.startswith((".", "_"))]
    if shown and not any(name.startswith("dt=") for name in shown):
        few = ", ".join(shown[:3])
        raise LakeError(f"{path} holds no events: dt=YYYY-MM-DD/*.ndjson.gz is expected, there is {few}")


STREAM_NAME = "kproxy bronze"
LOOK_EVERY = 0.2
"""Seconds between two checks for Ctrl-C in a continuous stream."""


@dataclass(slots=True)
class BronzeCounts:
    """Counts of one run."""

    batches: int = 0
    lines: int = 0
    corrupt: int = 0


def bronze(run: Run, source: EventSource, every: str | None = None) -> BronzeCounts:
    """Read all available events, then end; with `every` (`30 seconds`), continue until stopped."""
    taken = BronzeCounts()
    writer = _Writer(run, run.lake.checkpoint(f"bronze/{source.name}"), source.name, taken)
    stream = source.lines(run.spark).writeStream.queryName(STREAM_NAME).foreachBatch(writer.write)
    stream = stream.option("checkpointLocation", writer.checkpoint)
    stream = stream.trigger(processingTime=every) if every else stream.trigger(availableNow=True)
    _await(stream.start(), writer, going_on=every is not None)
    return taken


@dataclass(slots=True)
class _Writer:
    """Writer of the stream's batches. `failed` keeps the original error, which Spark wraps."""

    run: Run
    checkpoint: str
    name: str
    taken: BronzeCounts
    failed: KproxyError | None = None

    def write(self, lines: DataFrame, number: int) -> None:
        batch = f"{self.name}-{self._stream_id()[:8]}-{number:06d}"
        ledger = BatchLedger(self.run.lake, "bronze")
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
        aside = f", {plural(noted['corrupt'], 'corrupt line')} put aside" if noted["corrupt"] else ""
        self.run.tell(f"bronze {batch}: {rate(noted['lines'], time.monotonic() - begun)}{aside}")

    def _stream_id(self) -> str:
        """Return Spark's id of the stream.

        Each checkpoint has its own stream id, so its batches never overwrite others.
        """
        return str(json.loads(self.run.lake.files.read(f"{self.checkpoint}/metadata"))["id"])


def write_batch(run: Run, lines: DataFrame, batch: str, paths: list[str]) -> dict[str, Any]:
    """Write one batch, read from the files `paths`.

    Returns the batch's entry in the ledger: lines, corrupt lines, files, and the digest of the kinds.
    """
    try:
        return _write(run, lines, batch, []) | {"files": paths}
    except SPARK_FAILED:
        broken = unreadable(run, paths)
        if not broken:
            raise
        run.tell(f"bronze {batch}: cannot be read to the end: {', '.join(broken)}")
        return _write(run, readable_lines(run, paths), batch, broken) | {"files": paths}


def _write(run: Run, lines: DataFrame, batch: str, broken: list[str]) -> dict[str, Any]:
    observed = Observation()
    judgement = with_envelope(lines).observe(
        observed, F.count(F.lit(1)).alias("lines"), F.count("reason").alias("corrupt")
    )
    run.lake.replace(BRONZE, events(judgement), batch)
    counted = dict(observed.get)
    noted = {"lines": counted["lines"], "corrupt": counted["corrupt"] + len(broken), "kinds": kinds_known()}
    run.lake.drop_batch(BRONZE_CORRUPT, batch)
    if noted["corrupt"]:
        aside = corrupt(with_envelope(lines).observe(Observation(), F.count(F.lit(1)).alias("lines")))
        run.lake.replace(BRONZE_CORRUPT, aside.unionByName(unreadable_rows(run, broken)) if broken else aside, batch)
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
    """Wait for Ctrl-C or the end of the stream; True for Ctrl-C.

    PySpark's own Ctrl-C handler calls the JVM during a call of the main thread, and breaks it.
    """
    interrupts: list[int] = []
    ours = current_thread() is main_thread()
    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number)) if ours else None
    try:
        while not interrupts and query.isActive:
            time.sleep(LOOK_EVERY)
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
    return bool(interrupts)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def files_of_batch(files: Files, checkpoint: str, number: int) -> list[str]:
    """Return the paths of the files of a batch; empty if its source has no files.

    Spark has no API for these, but writes them before the batch begins. `offsets/<batch>` ends in the number of the
    last entry of the source's log that belongs to this batch. `sources/0/<number>` contains the files. A periodic
    `<number>.compact` contains all files up to that number.
    """
    upto = _counts_to(files, checkpoint, number)
    since = _counts_to(files, checkpoint, number - 1) if number else -1
    paths = []
    for count in range(since + 1, upto + 1):
        log = f"{checkpoint}/sources/0/{count}"
        path = log if files.exists(log) else f"{log}.compact"
        entries = [json.loads(line) for line in files.read(path).splitlines()[1:]]  # after its version
        paths += [str(entry["path"]) for entry in entries if entry["batchId"] == count]
    return paths


def _counts_to(files: Files, checkpoint: str, number: int) -> int:
    """Return the last entry of the source's log that belongs to this batch or an earlier one; -1 without a log."""
    offset = json.loads(files.read(f"{checkpoint}/offsets/{number}").splitlines()[-1])
    return int(offset.get("logOffset", -1)) if isinstance(offset, dict) else -1


def unreadable(run: Run, paths: list[str]) -> list[str]:
    """Return the paths of the files that cannot be read completely."""
    return [path for path in paths if not _can_be_read(run, path)]


def readable_lines(run: Run, paths: list[str]) -> DataFrame:
    """Return the lines of the files; of unreadable files, the lines before the defect."""
    read = run.spark.read.schema("value string").option("lineSep", "\n").option("ignoreCorruptFiles", True).text(paths)
    return read.select(
        F.col("value").alias("line"),
        F.col("_metadata.file_path").alias("file"),
        F.lit(None).cast("long").alias("offset"),
        F.current_timestamp().alias("ingested"),
    )


def unreadable_rows(run: Run, paths: list[str]) -> DataFrame:
    """Return a row of bronze_corrupt, with dt, for each of the files."""
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


ON_DISK = "file:"
"""Prefix of a lake's path that every worker reaches as a folder. Spark requires the same of such paths."""


def silver(run: Run, *, again: bool = False) -> int:
    """Write every finished bronze batch that has no silver batch; with `again`, all. Returns the number of batches."""
    there, done = BatchLedger(run.lake, "bronze"), BatchLedger(run.lake, "silver")
    finished = set() if again else set(done.batches())
    work = [batch for batch in there.batches() if batch not in finished]
    for batch in work:
        begun = time.monotonic()
        noted = there.entry(batch)
        done.remove(batch)
        done.add(batch, write_silver_batch(run, batch, noted))
        run.tell(f"silver {batch}: {rate(noted['lines'] - noted['corrupt'], time.monotonic() - begun)}")
    return len(work)


def write_silver_batch(run: Run, batch: str, noted: Mapping[str, Any]) -> dict[str, Any]:
    """Write one batch of every table. `noted`: bronze's entry in the ledger."""
    bronze = run.lake.read_batch(BRONZE, batch)
    if noted.get("kinds") == kinds_known():
        kinds = run.lake.splits(BRONZE, batch)
    else:
        bronze, kinds = reread(bronze), set(KINDS)
    write = partial(by_workers if run.lake.path.startswith(ON_DISK) else by_spark, run, batch, kinds)
    write(bronze, [IDS, *TABLES])
    twice = doubled(run.lake.read_batch(IDS, batch)).persist()
    blocks = twice.count()
    if blocks:  # rare: files that were delivered twice
        write(without_duplicates(bronze, twice), TABLES)
    twice.unpersist()
    return {"blocks_with_duplicates": blocks}


def by_workers(run: Run, batch: str, kinds: set[str], bronze: DataFrame, tables: Sequence[LakeTable]) -> None:
    """Write all tables in one pass, as files of the workers that read the lines."""
    staged = {table.name: run.lake.stage(table, batch) for table in tables}
    written = bronze.select(*LINES).mapInArrow(writing(staged), WRITTEN).collect()
    for table in tables:
        paths = {row["path"] for row in written if row["table"] == table.name}
        run.lake.take_staged(table, batch, only=paths)


def by_spark(run: Run, batch: str, kinds: set[str], bronze: DataFrame, tables: Sequence[LakeTable]) -> None:
    """Write table by table. Tables without lines in the batch are skipped, because bronze has sorted the lines by
    kind."""
    for table in tables:
        of_table = kinds_of(table)
        if kinds.isdisjoint(of_table):
            run.lake.drop_batch(table, batch)
            continue
        lines = bronze.where(F.col(KIND.name).isin(*of_table)).select(*LINES)
        task = giving_ids if table is IDS else giving(table.name)
        run.lake.replace(table, lines.mapInArrow(task, rows_of(table)), batch)
