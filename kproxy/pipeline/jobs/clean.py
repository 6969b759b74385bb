"""clean: delete days that are too old, and event files that have been taken over.

What has been taken over is what the checkpoint of bronze says, and only of batches that bronze has finished.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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
    deleted = 0
    for path in consumed(run):
        if run.lake.files.exists(path):
            run.lake.files.delete(path)
            deleted += 1
    return deleted


def consumed(run: Run) -> Iterator[str]:
    """The event files of finished batches, from the log of Spark's file source."""
    checkpoint = run.lake.checkpoint("bronze/files")
    if not run.lake.files.exists(f"{checkpoint}/metadata"):
        return
    stream = json.loads(run.lake.files.read(f"{checkpoint}/metadata"))["id"][:8]
    finished = set(Ledger(run.lake, "bronze").batches())
    for entry in run.lake.files.entries(f"{checkpoint}/sources/0"):
        if entry.name.startswith("."):
            continue
        for line in run.lake.files.read(entry.path).splitlines()[1:]:  # the first is the version of the log
            logged = json.loads(line)
            if f"files-{stream}-{logged['batchId']:06d}" in finished:
                yield logged["path"]
