"""silver: type what bronze holds, one table per kind of thing.

One silver batch is one bronze batch, and has its name: done again, it takes the place of itself. What bronze has
finished and silver has not is the work. Lines become rows in Arrow (`columnar/`). Where the lake lies on disks that
this machine and Spark's workers have, those write the files of all tables in one go, and what finished tasks have
written is moved into its place; elsewhere Spark writes them, table by table, with the credentials that only it has.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.lake.columnar.columns import kinds_of
from kproxy.lake.columnar.task import LINES, WRITTEN, giving, giving_ids, writing
from kproxy.lake.lake import BatchLedger, rows_of
from kproxy.lake.spark import Run, rate
from kproxy.lake.tables import BRONZE, IDS, KIND, TABLES, LakeTable
from kproxy.lake.transforms.bronze import KINDS, kinds_known, reread
from kproxy.lake.transforms.ids import doubled, without_duplicates

ON_DISK = "file:"
"""Beginning of a lake's path that every worker reaches as a folder, as Spark itself requires of such paths."""


def silver(run: Run, *, again: bool = False) -> int:
    """Write every finished bronze batch that is not typed yet, or `again` all of them; returns how many batches."""
    there, done = BatchLedger(run.lake, "bronze"), BatchLedger(run.lake, "silver")
    finished = set() if again else set(done.batches())
    work = [batch for batch in there.batches() if batch not in finished]
    for batch in work:
        begun = time.monotonic()
        noted = there.entry(batch)
        done.remove(batch)
        done.add(batch, write_batch(run, batch, noted))
        run.tell(f"silver {batch}: {rate(noted['lines'] - noted['corrupt'], time.monotonic() - begun)}")
    return len(work)


def write_batch(run: Run, batch: str, noted: Mapping[str, Any]) -> dict[str, Any]:
    """Write one batch of every table. `noted`: what bronze has found in it."""
    bronze = run.lake.read_batch(BRONZE, batch)
    if noted.get("kinds") == kinds_known():
        kinds = run.lake.splits(BRONZE, batch)
    else:
        bronze, kinds = reread(bronze), set(KINDS)
    write = partial(by_workers if run.lake.path.startswith(ON_DISK) else by_spark, run, batch, kinds)
    write(bronze, [IDS, *TABLES])
    twice = doubled(run.lake.read_batch(IDS, batch)).persist()
    blocks = twice.count()
    if blocks:  # seldom: files that were delivered again
        write(without_duplicates(bronze, twice), TABLES)
    twice.unpersist()
    return {"blocks_with_duplicates": blocks}


def by_workers(run: Run, batch: str, kinds: set[str], bronze: DataFrame, tables: Sequence[LakeTable]) -> None:
    """Write all tables at once, as files of those workers that read the lines."""
    staged = {table.name: run.lake.stage(table, batch) for table in tables}
    written = bronze.select(*LINES).mapInArrow(writing(staged), WRITTEN).collect()
    for table in tables:
        paths = {row["path"] for row in written if row["table"] == table.name}
        run.lake.take_staged(table, batch, only=paths)


def by_spark(run: Run, batch: str, kinds: set[str], bronze: DataFrame, tables: Sequence[LakeTable]) -> None:
    """Write table by table. One that the batch has no lines for is not touched: bronze has sorted them."""
    for table in tables:
        of_table = kinds_of(table)
        if kinds.isdisjoint(of_table):
            run.lake.drop_batch(table, batch)
            continue
        lines = bronze.where(F.col(KIND.name).isin(*of_table)).select(*LINES)
        task = giving_ids if table is IDS else giving(table.name)
        run.lake.replace(table, lines.mapInArrow(task, rows_of(table)), batch)
