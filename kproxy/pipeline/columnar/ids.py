"""Ids that have come, as bits: rows of IDS, 64 neighbours of one source and day folded into one of them.

The ids of a source have no gaps, and files hold them nearly in order; so what is folded is a hundredth of what came.
Several tasks, and several folds of one task, may have parts of the same block: who reads IDS puts them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kproxy.pipeline.columnar.rows import ArrowColumns
from kproxy.pipeline.columnar.types import arrow_schema
from kproxy.pipeline.raw_tables import IDS
from kproxy.pipeline.transforms.ids import BITS

MOST = 1_000_000
"""Ids that wait to be folded: some 30 MB."""


class Ids:
    """Folder of ids into rows of IDS, whenever there are MOST of them, and in the end."""

    def __init__(self) -> None:
        self._waiting: list[ArrowColumns] = []
        self._count = 0

    def add(self, of_bronze: ArrowColumns) -> Iterator[tuple[Any, Any]]:
        """Take `source`, `event_id` and `time` of bronze rows, and yield rows of IDS and their days if there are
        enough.
        """
        self._waiting.append({name: of_bronze[name] for name in ("source", "event_id", "time")})
        self._count += len(of_bronze["time"])
        if self._count >= MOST:
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
