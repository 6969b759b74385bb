"""silver: convert bronze to typed rows, one table per kind of event.

One silver batch has the name of its bronze batch, so repeating it replaces it. The job converts the batches that are
finished in bronze and not in silver. Lines become rows in Arrow (`columnar/`). If driver and workers share the lake's
file system, workers write the files of all tables in one pass, and the files of finished tasks are moved into place.
Otherwise Spark writes them, table by table, because only Spark has the credentials.
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
        done.add(batch, write_batch(run, batch, noted))
        run.tell(f"silver {batch}: {rate(noted['lines'] - noted['corrupt'], time.monotonic() - begun)}")
    return len(work)


def write_batch(run: Run, batch: str, noted: Mapping[str, Any]) -> dict[str, Any]:
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
