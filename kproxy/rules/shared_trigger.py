"""Triggers of rules that are at work in several processes: they count together, and draw from one row of chances.

Strategy: what all have counted is loaded into the count that a single process would have, which then decides, and is
stored. The place in the row of chances is one of the numbers; a process passes over what the others have drawn. A
connection is in one process, so what is counted for each connection stays there.
"""

from __future__ import annotations

from collections import OrderedDict
from math import isnan, nan
from random import Random

from kproxy.rules.shared_numbers import NumberCells, SharedNumbers
from kproxy.rules.trigger import BLOCK, MOST_COUNTS, Trigger, TriggerCount, let_go
from kproxy.rules.when import When


class SharedTrigger(Trigger):
    """Trigger that counts with other processes, by `common`. Numbers: seen, fired, draws, since (NaN: not yet)."""

    def __init__(self, when: When | None, seed: str, began: float, common: SharedNumbers) -> None:
        super().__init__(when, seed, began)
        self.common = common
        self.cells: OrderedDict[str | None, NumberCells] = OrderedDict()

    def fires(self, now: float, connection: object = None, client_id: str | None = None) -> bool:
        when = self.when
        if when is None or when.count_per == "connection":
            return super().fires(now, connection, client_id)
        count = self.count(when, connection, client_id)
        cells = self.cells_of(None if when.count_per == "rule" else client_id or "")
        load(count, cells.take(now), let_go(when))
        try:
            return super().fires(now, connection, client_id)
        finally:
            cells.put(count.seen, count.fired, count.draws, nan if count.since is None else count.since)

    def cells_of(self, what: str | None) -> NumberCells:
        cells = self.cells.get(what)
        if cells is None:
            if len(self.cells) >= MOST_COUNTS:
                self.cells.popitem(last=False)
            cells = self.cells[what] = self.common.cells(what)
        elif what is not None:
            self.cells.move_to_end(what)
        return cells


def load(count: TriggerCount, numbers: tuple[float, ...] | None, let_go: int) -> None:
    """Set a count to what all processes together have counted; None: nothing so far."""
    seen, fired, draws, since = numbers[:4] if numbers is not None else (-let_go, 0, 0, nan)
    count.seen, count.fired = int(seen), int(fired)
    count.since = None if isnan(since) else since
    if draws != count.draws:
        pass_over(count, int(draws))


def pass_over(count: TriggerCount, draws: int) -> None:
    """Set a count's generator to the chance that comes after so many draws."""
    before, count.draws = count.draws, draws
    block, over = divmod(draws, BLOCK)
    if not before < draws or before // BLOCK != block or not before % BLOCK:
        count.random, before = Random(f"{count.seed}#{block}" if block else count.seed), block * BLOCK
    over = draws - before
    if over:
        count.random.getrandbits(64 * over)  # a chance takes 64 bits out of the generator
