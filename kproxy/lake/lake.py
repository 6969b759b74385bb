"""Lake of tables: the folder of each table, the writing of batches, and the files that readers see.

    <lake>/bronze/dt=2026-11-21/batch=…/kind=…/    lines as written; kind selects the silver tables
    <lake>/bronze_corrupt/dt=…/batch=…/            lines that are not events; dt is the day of reading
    <lake>/silver/<table>/dt=…/batch=…/            typed rows; dt is the UTC date of the event
    <lake>/ids/dt=…/batch=…/                       ids that came from each source
    <lake>/gold/…                                  gold tables
    <lake>/checkpoints/…                           checkpoints of streams, and complete batches (`BatchLedger`)

The rows of a batch are written to `_staging/<batch>`, because Spark ignores names that begin with `_`. The remains of
an earlier attempt are deleted. Then the folder of each day is renamed into its place. After a kill, writing the same
batch again gives the same tables. A reader sees a day's part of a batch completely or not at all.

`Files` calls Hadoop's FileSystem in the driver's JVM, so a path may be local, HDFS or object storage. `rename` is
atomic on local disks and HDFS only; on object storage it copies. No code here relies on an atomic rename (see
`compact`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kproxy.base.errors import LakeError
from kproxy.lake.tables import BRONZE, BRONZE_CORRUPT, IDS, LakeTable
from kproxy.record.events.column import Column


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Entry of a folder: name, full path, and size in bytes (0 for a folder)."""

    name: str
    path: str
    is_folder: bool
    size: int


class Files:
    """File system access of one Spark session. Every path may be relative, absolute or a URI."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
        self._path = jvm.org.apache.hadoop.fs.Path  # each attribute access is a call to Java

    def absolute(self, path: str) -> str:
        """Return the absolute path with its scheme: file:/srv/lake for lake."""
        where, system = self._at(path)
        return str(system.makeQualified(where).toString())

    def exists(self, path: str) -> bool:
        where, system = self._at(path)
        return bool(system.exists(where))

    def is_folder(self, path: str) -> bool:
        where, system = self._at(path)
        return bool(system.exists(where) and system.getFileStatus(where).isDirectory())

    def entries(self, path: str) -> list[FileEntry]:
        """Return the entries of a folder by name; empty if the folder does not exist."""
        where, system = self._at(path)
        return sorted(map(_entry, system.listStatus(where)), key=lambda one: one.name) if system.exists(where) else []

    def glob(self, pattern: str) -> list[FileEntry]:
        """Return the entries that match a pattern, by path."""
        where, system = self._at(pattern)
        return sorted(map(_entry, system.globStatus(where) or ()), key=lambda one: one.path)

    def size(self, path: str) -> int:
        """Return the bytes of all files below a path."""
        where, system = self._at(path)
        return int(system.getContentSummary(where).getLength()) if system.exists(where) else 0

    def delete(self, path: str) -> None:
        """Delete a file, or a folder recursively; do nothing if it does not exist."""
        where, system = self._at(path)
        if not system.delete(where, True) and system.exists(where):
            raise LakeError(f"{path} could not be deleted")

    def rename(self, old: str, new: str) -> None:
        """Move a file or folder, and create the target's parent folder. Raises LakeError if the target exists."""
        source, system = self._at(old)
        target, _ = self._at(new)
        if system.exists(target):
            raise LakeError(f"cannot rename {old}: {new} exists")
        system.mkdirs(target.getParent())
        if not system.rename(source, target):
            raise LakeError(f"{old} could not be renamed to {new}")

    def read(self, path: str) -> str:
        """Return the text of a small file. Raises LakeError if it does not exist."""
        where, system = self._at(path)
        if not system.exists(where):
            raise LakeError(f"file not found: {path}")
        stream = system.open(where)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        where, system = self._at(path)
        beside = self._path(where.getParent(), f".{where.getName()}.tmp")
        stream = system.create(beside, True)
        stream.write(bytearray(text, "utf-8"))
        stream.close()
        system.delete(where, False)
        if not system.rename(beside, where):
            raise LakeError(f"{path} could not be written")

    def _at(self, path: str) -> tuple[Any, Any]:
        where = self._path(path)
        return where, where.getFileSystem(self._conf)


def _entry(status: Any) -> FileEntry:
    where = status.getPath()
    folder = bool(status.isDirectory())
    return FileEntry(str(where.getName()), str(where.toString()), folder, 0 if folder else int(status.getLen()))


_PLAIN: dict[str, DataType] = {
    "string": StringType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
}

DT = StructField("dt", DateType())
BATCH = StructField("batch", StringType())


def struct(columns: Iterable[Column]) -> StructType:
    """Return the columns as a struct, all of them nullable."""
    return StructType([StructField(column.name, spark_type(column)) for column in columns])


def spark_type(column: Column) -> DataType:
    element = struct(column.columns) if column.type == "struct" else _PLAIN[column.type]
    return ArrayType(element) if column.array else element


def rows_of(table: LakeTable) -> StructType:
    """Return the schema of a table's rows in transforms: its columns, and dt."""
    return StructType([*struct(table.columns).fields, DT])


def on_disk(table: LakeTable) -> StructType:
    """Return the schema on disk: the table's columns, dt, batch and, if the table has one, `split`."""
    split = [] if table.split is None else [StructField(table.split.name, spark_type(table.split))]
    return StructType([*rows_of(table).fields, BATCH, *split])


_ABOVE = {BRONZE.name: "", BRONZE_CORRUPT.name: "", IDS.name: ""}
WORK = "_compact"
"""Folder in a table's folder; Spark and readers ignore it."""


@dataclass(frozen=True, slots=True)
class BatchSwap:
    """Swap on `day` of the batches `old` for the batch `new` with `files` (their names): a compaction.

    Deleting the old batches and renaming the new one are several steps. A kill between them must neither lose rows nor
    show them twice. So the first step writes the swap to a small file, and readers use it. They ignore the new batch
    until it is complete in its place, and ignore the old ones afterwards. The file is deleted last.
    """

    day: date
    new: str
    old: tuple[str, ...]
    files: tuple[str, ...]

    def waiting(self, table_path: str) -> str:
        """Return the folder of the new batch before it is moved into its place."""
        return f"{table_path}/{WORK}/dt={self.day}"

    def place(self, table_path: str) -> str:
        return f"{table_path}/dt={self.day}/batch={self.new}"

    def note(self, table_path: str) -> str:
        return f"{table_path}/{WORK}/dt={self.day}.json"

    def is_in_place(self, files: Files, table_path: str) -> bool:
        """Return True if the new batch is complete in its place.

        On object storage an interrupted rename leaves a part of it.
        """
        there = {entry.name for entry in files.entries(self.place(table_path))}
        return there.issuperset(self.files)

    def unseen(self, files: Files, table_path: str) -> list[str]:
        return list(self.old) if self.is_in_place(files, table_path) else [self.new]

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"day": self.day.isoformat()})


def from_json(text: str) -> BatchSwap:
    """Return the swap serialized by `to_json`."""
    fields = json.loads(text)
    return BatchSwap(date.fromisoformat(fields["day"]), fields["new"], tuple(fields["old"]), tuple(fields["files"]))


def swaps(files: Files, table_path: str) -> list[BatchSwap]:
    notes = (entry for entry in files.entries(f"{table_path}/{WORK}") if not entry.is_folder)
    return [from_json(files.read(note.path)) for note in notes if note.name.endswith(".json")]


class Lake:
    """Lake of tables under one path. `files` accesses all its files."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark, self.files = spark, Files(spark)
        self.path = self.files.absolute(path)
        if self.files.exists(path) and not self.files.is_folder(path):
            raise LakeError(f"{path} is a file, a folder is expected")

    def table_path(self, table: LakeTable) -> str:
        return f"{self.path}/{_ABOVE.get(table.name, 'silver/')}{table.name}"

    def checkpoint(self, name: str) -> str:
        return f"{self.path}/checkpoints/{name}"

    def read(self, table: LakeTable, days: list[date] | None = None) -> DataFrame:
        """Return all rows, or those of some days, with dt and batch; empty if the table has none.

        The schema is the current one: columns that a file does not have are null.
        """
        path = self.table_path(table)
        if not self.files.exists(path):
            return self.spark.createDataFrame([], on_disk(table))
        rows = self.spark.read.schema(on_disk(table)).parquet(path)
        for swap in swaps(self.files, path):
            unseen = swap.unseen(self.files, path)
            rows = rows.where(~((F.col("dt") == F.lit(swap.day)) & F.col("batch").isin(unseen)))
        return rows if days is None else rows.where(F.col("dt").isin(days))

    def read_batch(self, table: LakeTable, batch: str) -> DataFrame:
        path = self.table_path(table)
        folders = [entry.path for entry in self.files.glob(f"{path}/dt=*/batch={batch}")]
        schema: StructType = on_disk(table)
        if not folders:
            return self.spark.createDataFrame([], schema)
        return self.spark.read.schema(schema).option("basePath", path).parquet(*folders)

    def replace(self, table: LakeTable, rows: DataFrame, batch: str) -> None:
        """Replace the batch's rows with `rows`, which have dt and the table's split."""
        below = () if table.split is None else (table.split.name,)
        rows.write.mode("overwrite").partitionBy("dt", *below).parquet(self.stage(table, batch))
        self.take_staged(table, batch)

    def stage(self, table: LakeTable, batch: str) -> str:
        """Return an empty staging folder for the days of a batch; `take_staged` moves them."""
        staging = self._staging(table, batch)
        self.files.delete(staging)
        return staging

    def take_staged(self, table: LakeTable, batch: str, *, only: set[str] | None = None) -> None:
        """Replace the batch's rows with the staged files, and delete the remains of earlier attempts; `only`: these
        files only."""
        path, staging = self.table_path(table), self._staging(table, batch)
        self.drop_batch(table, batch)
        for entry in self.files.entries(staging):
            if entry.is_folder and entry.name.startswith("dt="):
                files = self.files.entries(entry.path)
                unasked = [] if only is None else [file for file in files if file.path not in only]
                for file in unasked:
                    self.files.delete(file.path)
                if len(unasked) < len(files):
                    self.files.rename(entry.path, f"{path}/{entry.name}/batch={batch}")
        self.files.delete(staging)

    def _staging(self, table: LakeTable, batch: str) -> str:
        return f"{self.table_path(table)}/_staging/{batch}"

    def splits(self, table: LakeTable, batch: str) -> set[str]:
        name = "" if table.split is None else table.split.name
        folders = self.files.glob(f"{self.table_path(table)}/dt=*/batch={batch}/{name}=*")
        return {entry.name.removeprefix(f"{name}=") for entry in folders}

    def drop_batch(self, table: LakeTable, batch: str) -> None:
        for entry in self.files.glob(f"{self.table_path(table)}/dt=*/batch={batch}"):
            self.files.delete(entry.path)

    def days(self, table: LakeTable) -> list[date]:
        return self.days_below(self.table_path(table))

    def days_below(self, path: str) -> list[date]:
        return [date.fromisoformat(entry.name.removeprefix("dt=")) for entry in self.files.glob(f"{path}/dt=*")]

    def batches(self, table: LakeTable, day: date) -> list[str]:
        """Return the batches of a day that readers see. Two equal lists mean equal rows."""
        path = self.table_path(table)
        unseen = {name for swap in self._swaps_of(path, day) for name in swap.unseen(self.files, path)}
        entries = self.files.entries(f"{path}/dt={day}")
        there = [entry.name.removeprefix("batch=") for entry in entries if entry.name.startswith("batch=")]
        return [name for name in there if name not in unseen]

    def all_batches(self, table: LakeTable) -> set[str]:
        """Return the batches that have a folder in the table, on any day."""
        return {
            entry.name.removeprefix("batch=") for entry in self.files.glob(f"{self.table_path(table)}/dt=*/batch=*")
        }

    def drop_day(self, table: LakeTable, day: date) -> None:
        self.files.delete(f"{self.table_path(table)}/dt={day}")

    def _swaps_of(self, path: str, day: date) -> list[BatchSwap]:
        return [swap for swap in swaps(self.files, path) if swap.day == day]


@dataclass(frozen=True, slots=True)
class BatchLedger:
    """Ledger of the complete batches of one job, with notes about them.

    A batch's entry is a small JSON file, written last. A batch without an entry is incomplete and is repeated. Silver
    processes the batches in bronze's ledger. `compact` may merge the batches in silver's ledger.
    """

    lake: Lake
    job: str

    def batches(self) -> list[str]:
        """Return the names of the finished batches, in order."""
        entries = self.lake.files.entries(self._folder)
        return [entry.name.removesuffix(".json") for entry in entries if entry.name.endswith(".json")]

    def has(self, batch: str) -> bool:
        return self.lake.files.exists(self._path(batch))

    def entry(self, batch: str) -> dict[str, Any]:
        noted: dict[str, Any] = json.loads(self.lake.files.read(self._path(batch)))
        return noted

    def add(self, batch: str, noted: dict[str, Any]) -> None:
        """Record a complete batch, with notes about it."""
        self.lake.files.write(self._path(batch), json.dumps(noted, default=str))

    def remove(self, batch: str) -> None:
        """Remove the entry of a batch that has no files."""
        self.lake.files.delete(self._path(batch))

    @property
    def _folder(self) -> str:
        return self.lake.checkpoint(f"batches/{self.job}")

    def _path(self, batch: str) -> str:
        return f"{self._folder}/{batch}.json"
