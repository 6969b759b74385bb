"""Upkeep of the lake. clean: delete old days, and event files that are in bronze. compact: merge a day's batches,
remove duplicates exactly, and make larger files.

An event file is in bronze if bronze's ledger lists it. The ledger has complete batches only.

Steps of the compaction of one table and day, with the state after a kill:

1. The rows of the finished batches, without duplicates, are written to `_compact/dt=<day>`. After a kill, readers
   ignore that folder, and the next run deletes it.
2. A note (`lake.BatchSwap`) names the new batch, its files and the old batches. It is a small file, written atomically.
   From now on readers ignore the new batch until it is complete in its place, and ignore the old ones afterwards.
3. The folder is renamed into its place. On object storage this copies; a kill leaves a part, which readers ignore.
4. The old batches are deleted. A kill leaves some, which readers ignore.
5. The note is deleted.

A run first completes pending notes. If the new batch is in its place, it does steps 4 and 5. If the new batch is
complete in `_compact`, it does steps 3 to 5. Otherwise it deletes the note, and nothing has changed.
"""

from __future__ import annotations

import math
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kproxy.base.errors import plural
from kproxy.lake.lake import WORK, BatchLedger, BatchSwap, Lake, rows_of, swaps
from kproxy.lake.spark import Run
from kproxy.lake.tables import BRONZE, BRONZE_CORRUPT, RAW_TABLES, TABLES, LakeTable

FILE_BYTES = 256 * 1024 * 1024
"""Target file size: large enough that opening files is cheap, small enough to divide among workers."""

FEW_KEYS = 1_000_000
"""Duplicate keys that are broadcast to all workers. With more, all rows are sorted by key instead."""


def drop_old(run: Run, before: date) -> int:
    """Delete the days before `before` from bronze and silver, and return the number of (table, day) pairs.

    Gold is small and is kept.
    """
    dropped = 0
    for table in (*RAW_TABLES, *TABLES):
        for day in run.lake.days(table):
            if day < before:
                run.lake.drop_day(table, day)
                run.tell(f"clean: {table.name} {day} deleted")
                dropped += 1
    forget(run)
    return dropped


def forget(run: Run) -> int:
    """Remove batches without lines and without event files from the ledger, and return their number.

    The newest batch of each stream is kept, because Spark may repeat it.
    """
    bronze, silver = BatchLedger(run.lake, "bronze"), BatchLedger(run.lake, "silver")
    newest = {batch.rpartition("-")[0]: batch for batch in bronze.batches()}
    left = {batch for table in (BRONZE, BRONZE_CORRUPT) for batch in run.lake.all_batches(table)}
    gone = [batch for batch in bronze.batches() if batch not in left and batch not in newest.values()]
    gone = [batch for batch in gone if not any(map(run.lake.files.exists, bronze.entry(batch).get("files", [])))]
    for batch in gone:
        bronze.remove(batch)
        silver.remove(batch)
    return len(gone)


def delete_consumed(run: Run) -> int:
    """Delete the event files that are in bronze, and return their number."""
    ledger, deleted = BatchLedger(run.lake, "bronze"), 0
    for batch in ledger.batches():
        noted = ledger.entry(batch)
        paths = noted.get("files", [])
        for path in paths:
            if run.lake.files.exists(path):
                run.lake.files.delete(path)
                deleted += 1
        if paths:
            ledger.add(batch, noted | {"files": []})
    return deleted


def compact(run: Run, days: list[date] | None = None, tables: tuple[LakeTable, ...] = TABLES) -> int:
    """Compact these days, or all with several finished batches, and return the number of (table, day) pairs."""
    done = 0
    for table in tables:
        finish(run.lake, table)
        for day in run.lake.days(table) if days is None else days:
            done += compact_day(run, table, day)
    return done


def compact_day(run: Run, table: LakeTable, day: date) -> bool:
    """Compact one table of one day, if it has several finished batches."""
    finished = set(BatchLedger(run.lake, "silver").batches())
    old = [batch for batch in run.lake.batches(table, day) if batch in finished]
    if len(old) < 2:
        return False
    path = run.lake.table_path(table)
    new = f"compact-{max(old).removeprefix('compact-')}-{len(old)}"
    waiting = f"{path}/{WORK}/dt={day}"
    rows = run.lake.read(table, [day]).where(F.col("batch").isin(old))
    size = sum(run.lake.files.size(f"{path}/dt={day}/batch={batch}") for batch in old)
    single = without_duplicates(rows, table).select(*rows_of(table).names).drop("dt")
    single.coalesce(max(1, math.ceil(size / FILE_BYTES))).write.mode("overwrite").parquet(waiting)
    files = tuple(entry.name for entry in run.lake.files.entries(waiting) if not entry.name.startswith((".", "_")))
    swap = BatchSwap(day, new, tuple(old), files)
    BatchLedger(run.lake, "silver").add(new, {"compacted": old})
    run.lake.files.write(swap.note(path), swap.to_json())
    _finish(run.lake, path, swap)
    run.tell(
        f"compact {table.name} {day}: {plural(len(old), 'batch')}, {plural(size, 'byte')}, "
        f"in {plural(len(files), 'file')}"
    )
    return True


def without_duplicates(rows: DataFrame, table: LakeTable) -> DataFrame:
    """Return the rows, each key once. Only rows with duplicate keys are compared."""
    key = list(table.key)
    twice = rows.groupBy(*key).agg(F.count("*").alias("times")).where(F.col("times") > 1).select(*key).persist()
    count = twice.limit(FEW_KEYS + 1).count()
    if not count:
        return rows
    if count > FEW_KEYS:
        return rows.dropDuplicates(key)
    few = F.broadcast(twice)
    single = rows.join(few, key, how="left_anti")
    return single.unionByName(rows.join(few, key, how="left_semi").dropDuplicates(key))


def finish(lake: Lake, table: LakeTable) -> None:
    path = lake.table_path(table)
    for swap in swaps(lake.files, path):
        _finish(lake, path, swap)
    lake.files.delete(f"{path}/{WORK}")


def _finish(lake: Lake, path: str, swap: BatchSwap) -> None:
    files = lake.files
    if not swap.is_in_place(files, path):
        whole = {entry.name for entry in files.entries(swap.waiting(path))}.issuperset(swap.files)
        files.delete(swap.place(path))
        if not whole:
            files.delete(swap.note(path))
            return
        files.rename(swap.waiting(path), swap.place(path))
    for batch in swap.old:
        files.delete(f"{path}/dt={swap.day}/batch={batch}")
    files.delete(swap.note(path))
