"""Writer of tables' rows to Parquet files, one per table and UTC day, as the lake has them below `dt=…`.

Strategy: rows wait until there are enough of them for a row group, or until all that wait take too much memory; so a
file has few, large row groups, whatever the order in which days and tables come.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet

from kproxy.pipeline.tables import LakeTable

ROWS_A_GROUP = 100_000
"""Some 10 to 30 MB: enough for columns to compress well, and what a reader takes at once."""
MOST_WAITING = 256_000_000
"""Bytes of all rows that wait in one task."""
COMPRESSION = "zstd"


class WrittenFile(NamedTuple):
    """File that was written: its table, its path, and how many rows it has."""

    table: str
    path: str
    rows: int


@dataclass(slots=True)
class _Part:
    """File of one table and day. `waiting`: rows that are not in it yet."""

    path: str
    schema: Any
    waiting: list[Any] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    rows: int = 0
    writer: Any = None


class PartFiles:
    """Files of one task. `folders`: by table name the folder, on a file system that this process has."""

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
        """Finish all files, and yield each."""
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
        """Write the rows that wait into the file."""
        if part.writer is None:
            files, path = pyarrow.fs.FileSystem.from_uri(part.path)
            files.create_dir(path.rpartition("/")[0], recursive=True)
            part.writer = pyarrow.parquet.ParquetWriter(path, part.schema, compression=COMPRESSION, filesystem=files)
        if part.waiting:
            part.writer.write_table(pa.concat_tables(part.waiting), row_group_size=ROWS_A_GROUP)
        part.rows += part.waiting_rows
        self._waiting -= part.waiting_bytes
        part.waiting, part.waiting_rows, part.waiting_bytes = [], 0, 0
