"""Tasks of Spark's Python workers on the lines of a bronze batch (`mapInArrow`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kproxy.pipeline.columnar.ids import Ids
from kproxy.pipeline.columnar.part_files import PartFiles
from kproxy.pipeline.columnar.recipes import OF_BRONZE, rows_of
from kproxy.pipeline.columnar.rows import ArrowColumns
from kproxy.pipeline.raw_tables import IDS, KIND

LINES = ("line", *OF_BRONZE, KIND.name)
"""The columns of bronze that a task is given."""
_WRITTEN = pa.schema([("table", pa.string()), ("path", pa.string()), ("rows", pa.int64())])
WRITTEN = "table string, path string, rows long"
"""Schema of what a task that writes files gives: one row per file."""

Task = Callable[[Iterable[Any]], Iterator[Any]]


def writing(folders: dict[str, str]) -> Task:
    """Return a task that writes the rows of tables to files. `folders`: the folder by table name; that of IDS, too."""
    wanted = frozenset(folders)

    def write(batches: Iterable[Any]) -> Iterator[Any]:
        files, come = PartFiles(folders), Ids()
        for kind, lines, of_bronze in by_kind(batches):
            for table, rows in rows_of(kind, lines, of_bronze, wanted):
                files.add(table, rows, days_of(rows))
            if IDS.name in wanted:
                for rows, days in come.add(of_bronze):
                    files.add(IDS, rows, days)
        for rows, days in come.rest():
            files.add(IDS, rows, days)
        yield pa.RecordBatch.from_pylist([one._asdict() for one in files.close()], schema=_WRITTEN)

    return write


def giving(table: str) -> Task:
    """Return a task that gives the rows of one table, with dt, to Spark."""

    def give(batches: Iterable[Any]) -> Iterator[Any]:
        for kind, lines, of_bronze in by_kind(batches):
            for _, rows in rows_of(kind, lines, of_bronze, frozenset((table,))):
                yield from rows.append_column("dt", days_of(rows)).to_batches()

    return give


def giving_ids(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows of IDS, which is made of lines of every kind, with dt."""
    come = Ids()
    for _, _, of_bronze in by_kind(batches):
        for rows, days in come.add(of_bronze):
            yield from rows.append_column("dt", days).to_batches()
    for rows, days in come.rest():
        yield from rows.append_column("dt", days).to_batches()


def days_of(rows: Any) -> Any:
    """Return the UTC day of each row."""
    return rows["time"].cast(pa.date32()).combine_chunks()


def by_kind(batches: Iterable[Any]) -> Iterator[tuple[str, Any, ArrowColumns]]:
    """Yield the rows of bronze with the columns LINES as: a kind, the lines that are of it, and the other columns."""
    for batch in batches:
        kinds = batch.column(KIND.name)
        for kind in kinds.unique().to_pylist():
            every = pc.all(pc.equal(kinds, kind)).as_py()
            some = batch if every else batch.filter(pc.equal(kinds, kind))
            yield kind, some.column("line"), {name: some.column(name) for name in OF_BRONZE}
