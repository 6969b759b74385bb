"""clean: delete days that are too old, and event files that have been taken over.

What has been taken over is what bronze's ledger says, which has nothing but batches that are whole.
"""

from __future__ import annotations

from datetime import date

from kproxy.pipeline.ledger import BatchLedger
from kproxy.pipeline.raw_tables import BRONZE, BRONZE_CORRUPT, RAW_TABLES
from kproxy.pipeline.run import Run
from kproxy.pipeline.silver_tables import TABLES


def drop_old(run: Run, before: date) -> int:
    """Delete the days before `before` from bronze and silver, and return how many tables of days.

    Gold, which is small, stays.
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
    """Forget batches of which nothing is left, neither lines nor event files to delete; returns how many.

    The newest of each stream stays, which Spark may begin again.
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
    """Delete the event files that bronze has taken over and that are still there; returns how many."""
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
