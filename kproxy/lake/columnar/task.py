"""Tasks of Spark's Python workers on the lines of a bronze batch (`mapInArrow`), and the files that they write.

Rows go to Parquet files, one per table and UTC day, as below `dt=…` in the lake. They are buffered until there are
enough for a row group, or until all buffered rows exceed the memory bound. So a file has few, large row groups, for any
order of days and tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet

from kproxy.lake.columnar.columns import ArrowColumns, arrow_schema
from kproxy.lake.tables import IDS, KIND, LakeTable
from kproxy.lake.transforms.ids import MASK_BITS

from .columns import OF_BRONZE, rows_of

ROWS_A_GROUP = 100_000
"""About 10 to 30 MB: large enough for good compression, small enough for readers."""
MOST_WAITING = 256_000_000
"""Bytes of all buffered rows of one task."""
COMPRESSION = "zstd"


class WrittenFile(NamedTuple):
    """Written file: its table, path and number of rows."""

    table: str
    path: str
    rows: int


@dataclass(slots=True)
class _Part:
    """File of one table and day. `waiting`: buffered rows."""

    path: str
    schema: Any
    waiting: list[Any] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    rows: int = 0
    writer: Any = None


class PartFiles:
    """Files of one task. `folders`: local folder by table name."""

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders
        self._parts: dict[tuple[str, date], _Part] = {}
        self._waiting = 0

    def add(self, table: LakeTable, rows: Any, days: Any) -> None:
        """Add rows of a table with its columns, and the day of each."""
        for day in days.unique().to_pylist():
            whole = pc.all(pc.equal(days, day)).as_py()
            self._add(self._part(table, day, rows.schema), rows if whole else rows.filter(pc.equal(days, day)))

    def close(self) -> Iterator[WrittenFile]:
        """Close all files, and yield each."""
        for (table, _), part in self._parts.items():
            self._put(part)
            part.writer.close()
            yield WrittenFile(table, part.path, part.rows)

    def _part(self, table: LakeTable, day: date, schema: Any) -> _Part:
        part = self._parts.get((table.name, day))
        if part is None:
            folder = f"{self._folders[table.name]}/dt={day}"
            part = self._parts[table.name, day] = _Part(f"{folder}/part-{uuid4()}.zstd.parquet", schema)
        return part

    def _add(self, part: _Part, rows: Any) -> None:
        part.waiting.append(rows)
        part.waiting_rows += len(rows)
        part.waiting_bytes += rows.nbytes
        self._waiting += rows.nbytes
        if part.waiting_rows >= ROWS_A_GROUP:
            self._put(part)
        if self._waiting > MOST_WAITING:
            self._put(max(self._parts.values(), key=lambda one: one.waiting_bytes))

    def _put(self, part: _Part) -> None:
        if part.writer is None:
            files, path = pyarrow.fs.FileSystem.from_uri(part.path)
            files.create_dir(path.rpartition("/")[0], recursive=True)
            part.writer = pyarrow.parquet.ParquetWriter(path, part.schema, compression=COMPRESSION, filesystem=files)
        if part.waiting:
            part.writer.write_table(pa.concat_tables(part.waiting), row_group_size=ROWS_A_GROUP)
        part.rows += part.waiting_rows
        self._waiting -= part.waiting_bytes
        part.waiting, part.waiting_rows, part.waiting_bytes = [], 0, 0


LINES = ("line", *OF_BRONZE, KIND.name)
"""Bronze columns that a task receives."""
_WRITTEN = pa.schema([("table", pa.string()), ("path", pa.string()), ("rows", pa.int64())])
WRITTEN = "table string, path string, rows long"
"""Schema of the results of a task that writes files: one row per file."""

Task = Callable[[Iterable[Any]], Iterator[Any]]

MOST_IDS = 1_000_000
"""Buffered ids, about 30 MB."""


class Ids:
    """Folds ids into rows of IDS, every MOST_IDS ids and at the end.

    A row has 64 consecutive ids of one source and day. A source's ids have no gaps, and files contain them nearly in
    order, so there are about 100 times fewer rows than ids. Several tasks, and several folds of one task, may have
    parts of the same block. Readers of IDS merge them.
    """

    def __init__(self) -> None:
        self._waiting: list[ArrowColumns] = []
        self._count = 0

    def add(self, of_bronze: ArrowColumns) -> Iterator[tuple[Any, Any]]:
        """Add `source`, `event_id` and `time` of bronze rows, and yield rows of IDS with their days if there are
        enough."""
        self._waiting.append({name: of_bronze[name] for name in ("source", "event_id", "time")})
        self._count += len(of_bronze["time"])
        if self._count >= MOST_IDS:
            yield from self.flush()

    def flush(self) -> Iterator[tuple[Any, Any]]:
        """Yield the rows of IDS, with their days, for the buffered ids."""
        if self._count:
            yield folded(pa.concat_tables([pa.table(one) for one in self._waiting]))
        self._waiting, self._count = [], 0


def folded(rows: Any) -> tuple[Any, Any]:
    """Return the rows of IDS for a table with `source`, `event_id` and `time`, and the day of each."""
    named = rows["source"].combine_chunks().dictionary_encode()
    sources, numbers = named.indices.to_numpy(), rows["event_id"].to_numpy()
    times, days = rows["time"].cast(pa.int64()).to_numpy(), rows["time"].cast(pa.date32()).cast(pa.int32()).to_numpy()
    blocks = numbers >> MASK_BITS
    order = np.lexsort((blocks, sources, days))
    days, sources, blocks, numbers, times = (one[order] for one in (days, sources, blocks, numbers, times))
    differs = (np.diff(days) != 0) | (np.diff(sources) != 0) | (np.diff(blocks) != 0)
    begins = np.flatnonzero(np.concatenate(([True], differs)))
    bits = np.left_shift(np.uint64(1), (numbers & (2**MASK_BITS - 1)).astype(np.uint64))
    columns = {
        "source": named.dictionary.take(pa.array(sources[begins])),
        "block": pa.array(blocks[begins]),
        "mask": pa.array(np.bitwise_or.reduceat(bits, begins).view(np.int64)),
        "lines": pa.array(np.diff(np.append(begins, len(numbers)))),
        "first": pa.array(np.minimum.reduceat(times, begins)),
        "last": pa.array(np.maximum.reduceat(times, begins)),
    }
    schema = arrow_schema(IDS)
    table = pa.Table.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)
    return table, pa.array(days[begins]).cast(pa.date32())


def writing(folders: dict[str, str]) -> Task:
    """Return a task that writes the rows of tables to files. `folders`: the folder by table name, including IDS."""
    wanted = frozenset(folders)

    def write(batches: Iterable[Any]) -> Iterator[Any]:
        files, come = PartFiles(folders), Ids()
        for kind, lines, of_bronze in by_kind(batches):
            for table, rows in rows_of(kind, lines, of_bronze, wanted):
                files.add(table, rows, days_of(rows))
            if IDS.name in wanted:
                for rows, days in come.add(of_bronze):
                    files.add(IDS, rows, days)
        for rows, days in come.flush():
            files.add(IDS, rows, days)
        yield pa.RecordBatch.from_pylist([one._asdict() for one in files.close()], schema=_WRITTEN)

    return write


def giving(table: str) -> Task:
    """Return a task that yields the rows of one table to Spark, with dt."""

    def give(batches: Iterable[Any]) -> Iterator[Any]:
        for kind, lines, of_bronze in by_kind(batches):
            for _, rows in rows_of(kind, lines, of_bronze, frozenset((table,))):
                yield from rows.append_column("dt", days_of(rows)).to_batches()

    return give


def giving_ids(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows of IDS, made of lines of every kind, with dt."""
    come = Ids()
    for _, _, of_bronze in by_kind(batches):
        for rows, days in come.add(of_bronze):
            yield from rows.append_column("dt", days).to_batches()
    for rows, days in come.flush():
        yield from rows.append_column("dt", days).to_batches()


def days_of(rows: Any) -> Any:
    """Return the UTC day of each row."""
    return rows["time"].cast(pa.date32()).combine_chunks()


def by_kind(batches: Iterable[Any]) -> Iterator[tuple[str, Any, ArrowColumns]]:
    """Split bronze rows with the columns LINES by kind: yield the kind, its lines, and the other columns."""
    for batch in batches:
        kinds = batch.column(KIND.name)
        for kind in kinds.unique().to_pylist():
            every = pc.all(pc.equal(kinds, kind)).as_py()
            some = batch if every else batch.filter(pc.equal(kinds, kind))
            yield kind, some.column("line"), {name: some.column(name) for name in OF_BRONZE}
