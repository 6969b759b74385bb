"""clean: delete days that are too old, and event files that have been taken over.

What has been taken over is what bronze's ledger says, which has nothing but batches that are whole.
"""

from __future__ import annotations

from datetime import date

from kproxy.pipeline.ledger import Ledger
from kproxy.pipeline.raw_tables import RAW_TABLES
from kproxy.pipeline.run import Run
from kproxy.pipeline.tables import TABLES


def drop_old(run: Run, before: date) -> int:
    """Delete the days before `before` from bronze and silver. Gold, which is small, stays. How many tables of days."""
    dropped = 0
    for table in (*RAW_TABLES, *TABLES):
        for day in run.lake.days(table):
            if day < before:
                run.lake.drop_day(table, day)
                run.tell(f"clean: {table.name} {day} deleted")
                dropped += 1
    return dropped


def delete_consumed(run: Run) -> int:
    """Delete the event files that bronze has taken over, and that are still there. How many files."""
    ledger, deleted = Ledger(run.lake, "bronze"), 0
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
