"""silver: type what bronze holds, one table per kind of thing.

One silver batch is one bronze batch, and has its name: done again, it takes the place of itself. What bronze has
finished and silver has not is the work. A table that a batch has no lines for is not touched: bronze has sorted them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame

from kproxy.pipeline.ledger import Ledger
from kproxy.pipeline.raw_tables import BRONZE, IDS
from kproxy.pipeline.run import Run, rate
from kproxy.pipeline.transforms.bronze import reread
from kproxy.pipeline.transforms.ids import doubled, ids, without_duplicates
from kproxy.pipeline.transforms.kinds import KINDS, kinds_known
from kproxy.pipeline.transforms.silver import RECIPES, Recipe

AT_ONCE = 2
"""Tables that are written side by side: while one commits its files, another computes."""


def silver(run: Run, *, again: bool = False) -> int:
    """Type every finished bronze batch that is not typed yet, or `again` all of them. How many batches."""
    there, done = Ledger(run.lake, "bronze"), Ledger(run.lake, "silver")
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
    run.lake.replace(IDS, ids(bronze), batch)
    twice = doubled(run.lake.read_batch(IDS, batch)).persist()
    blocks = twice.count()
    rows = without_duplicates(bronze, twice) if blocks else bronze
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(lambda recipe: _write_table(run, recipe, rows, batch, kinds), RECIPES):
            pass  # raises what a table's writing raised
    twice.unpersist()
    return {"blocks_with_duplicates": blocks}


def _write_table(run: Run, recipe: Recipe, bronze: DataFrame, batch: str, kinds: set[str]) -> None:
    if not kinds.isdisjoint(recipe.kinds):
        run.lake.replace(recipe.table, recipe.rows(bronze), batch)
    else:
        run.lake.drop_batch(recipe.table, batch)
