"""Numbers that the same rule in several processes counts together, in a table that all of them have.

With one process nothing of this is there, and triggers and buckets keep their numbers to themselves. With several, each
takes the numbers out (nobody else has them then), does what it would do with its own, and puts them back. So a rule
acts on the third request, wherever it came in, and a quota is one quota. Where the table is, and how it is locked, is
not known here (`app.workers.shared_table`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

MOST_NUMBERS = 6
"""Numbers that one key may have: those of a bucket with promises."""


class NumberCells(Protocol):
    """Numbers of one key in the common table."""

    def take(self, now: float) -> tuple[float, ...] | None:
        """Return the numbers, which are the caller's alone until `put`, which has to follow at once; None: the key has
        none yet, or they had to go for others that were used later. `now`: monotonic seconds, which are the same in all
        processes."""

    def put(self, *numbers: float, until: float | None = None) -> None:
        """Store at most MOST_NUMBERS, always as many for one key; without any they stay as they were. `until`: the time
        from which nothing is lost if they go, where that is not now."""


class NumberTable(Protocol):
    """Table of numbers by key, for a bounded number of keys."""

    def cells(self, owner: bytes, what: str | None) -> NumberCells:
        """Return the cells of a key. `owner`: 8 bytes that stand for one life of one rule. `what`: for which client, or
        whatever else it tells apart; None: for the rule as a whole, and these numbers stay while others go."""


@dataclass(frozen=True, slots=True)
class SharedNumbers:
    """Part of the table that belongs to one life of one rule: it ends when the rule begins anew.

    `own` is put behind the seed of what cannot be drawn in common, so that processes do not draw the same; empty in the
    first of them.
    """

    table: NumberTable
    owner: bytes
    own: str = ""

    def cells(self, what: str | None) -> NumberCells:
        return self.table.cells(self.owner, what)


RememberedNumbers = tuple[float, ...]
NumbersChange = Callable[[RememberedNumbers | None], RememberedNumbers | None]


class HasCommon(Protocol):
    """Effect that may have its numbers in common with other processes."""

    common: SharedNumbers | None


class Remembered:
    """Numbers by key, of `most` keys in each process; those that were used longest ago go."""

    def __init__(self, effect: HasCommon, most: int) -> None:
        self.effect, self.most = effect, most
        self.here: OrderedDict[object, RememberedNumbers] = OrderedDict()
        self.cells: OrderedDict[object, NumberCells] = OrderedDict()

    def change(self, key: tuple[object, ...], now: float, change: NumbersChange) -> RememberedNumbers | None:
        """Replace the numbers of a key by what `change` makes of them, and return that. It is called with None where
        there are none; if it returns None, they stay. Nobody else sees them meanwhile. A key has texts and numbers in
        it."""
        if self.effect.common is not None:
            return self._in_common(self.effect.common, key, now, change)
        after = change(self.here.get(key))
        if after is not None:
            if len(self.here) >= self.most and key not in self.here:
                self.here.popitem(last=False)
            self.here[key] = after
        if key in self.here:
            self.here.move_to_end(key)
        return after

    def _in_common(
        self, common: SharedNumbers, key: tuple[object, ...], now: float, change: NumbersChange
    ) -> RememberedNumbers | None:
        cells = self.cells.get(key)
        if cells is None:
            if len(self.cells) >= self.most:
                self.cells.popitem(last=False)
            cells = self.cells[key] = common.cells(f"remembered {key!r}")
        after: RememberedNumbers | None = None
        before = cells.take(now)
        try:
            after = change(before)
        finally:
            cells.put(*(after or ()))
        return after
