"""Tasks of Spark's Python workers on the lines of a bronze batch (`mapInArrow`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kproxy.pipeline.columnar.columns import ArrowColumns, arrow_schema
from kproxy.pipeline.columnar.part_files import PartFiles
from kproxy.pipeline.columnar.recipes import OF_BRONZE, rows_of
from kproxy.pipeline.tables import IDS, KIND
from kproxy.pipeline.transforms.ids import BITS

LINES = ("line", *OF_BRONZE, KIND.name)
"""The columns of bronze that a task is given."""
_WRITTEN = pa.schema([("table", pa.string()), ("path", pa.string()), ("rows", pa.int64())])
WRITTEN = "table string, path string, rows long"
"""Schema of what a task that writes files gives: one row per file."""

Task = Callable[[Iterable[Any]], Iterator[Any]]

MOST_IDS = 1_000_000
"""Ids that wait to be folded: some 30 MB."""


class Ids:
    """Folder of ids into rows of IDS, whenever there are MOST_IDS of them, and in the end.

    A row has 64 neighbours of one source and day. The ids of a source have no gaps, and files hold them nearly in
    order; so what is folded is a hundredth of what came. Several tasks, and several folds of one task, may have parts
    of the same block: who reads IDS puts them together.
    """

    def __init__(self) -> None:
        self._waiting: list[ArrowColumns] = []
        self._count = 0

    def add(self, of_bronze: ArrowColumns) -> Iterator[tuple[Any, Any]]:
        """Take `source`, `event_id` and `time` of bronze rows, and yield rows of IDS and their days if there are
        enough.
        """
        self._waiting.append({name: of_bronze[name] for name in ("source", "event_id", "time")})
        self._count += len(of_bronze["time"])
        if self._count >= MOST_IDS:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[Any, Any]]:
        """Yield the rows of IDS, and their days, of the ids that wait."""
        if self._count:
            yield folded(pa.concat_tables([pa.table(one) for one in self._waiting]))
        self._waiting, self._count = [], 0


def folded(rows: Any) -> tuple[Any, Any]:
    """Return the rows of IDS for a table with `source`, `event_id` and `time`, and the day of each."""
    named = rows["source"].combine_chunks().dictionary_encode()
    sources, numbers = named.indices.to_numpy(), rows["event_id"].to_numpy()
    times, days = rows["time"].cast(pa.int64()).to_numpy(), rows["time"].cast(pa.date32()).cast(pa.int32()).to_numpy()
    blocks = numbers >> BITS
    order = np.lexsort((blocks, sources, days))
    days, sources, blocks, numbers, times = (one[order] for one in (days, sources, blocks, numbers, times))
    differs = (np.diff(days) != 0) | (np.diff(sources) != 0) | (np.diff(blocks) != 0)
    begins = np.flatnonzero(np.concatenate(([True], differs)))
    bits = np.left_shift(np.uint64(1), (numbers & (2**BITS - 1)).astype(np.uint64))
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
