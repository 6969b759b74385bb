"""The exchanges that the list holds: rows in the order in which they came, up to a bound, and found by their ids.

Strategy: a list whose oldest rows go a thousand at a time, so that a new one costs no more than an append. `gone`
counts those that went, so that the places by id need no change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .exchange_cells import ColumnReader, StreamRow

MOST_ROWS = 200_000
"""Rows that are held: some 200 MB where every column has a value of its own."""
MOST_MARKED = 1000
STEP = 1000
"""Rows that go at a time when there are too many."""


class ExchangeStore:
    """Rows of exchanges in the order in which they came; `gone` counts those that had to make room."""

    def __init__(self, most: int = MOST_ROWS) -> None:
        self.most, self.gone = most, 0
        self.read = ColumnReader(())
        self.rows: list[StreamRow] = []
        self.places: dict[str, int] = {}
        self.marked: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def clear(self) -> None:
        """Forget all rows, their places and marks."""
        self.rows, self.places, self.gone = [], {}, 0
        self.marked = {}

    def begin(self, columns: Sequence[str]) -> None:
        """Take the names of the columns of the rows that come from now on; rows of other columns are forgotten."""
        if tuple(columns) != self.read.columns:
            self.clear()
            self.read = ColumnReader(columns)

    def getter(self, index: int) -> Callable[[str], Any]:
        """Return what gives the values of the row at this place by their columns' names."""
        row, read = self.rows[index], self.read
        return lambda name: read(row, name)

    def ident(self, index: int) -> str:
        return str(self.read(self.rows[index], "id"))

    def add(self, rows: Iterable[StreamRow]) -> int:
        """Add rows, or put them in the place of those with the same ids. Return how many rows went to make room."""
        for row in rows:
            if not isinstance(row, (list, tuple)):
                continue
            ident = str(self.read(row, "id"))
            place = self.places.get(ident)
            if place is None:
                self.places[ident] = len(self.rows) + self.gone
                self.rows.append(row)
            else:
                self.rows[place - self.gone] = row
        went = 0
        while len(self.rows) > self.most:
            went += self._drop(min(STEP, len(self.rows)))
        return went

    def _drop(self, count: int) -> int:
        for row in self.rows[:count]:
            ident = str(self.read(row, "id"))
            self.places.pop(ident, None)
            self.marked.pop(ident, None)
        del self.rows[:count]
        self.gone += count
        return count

    def place(self, ident: str) -> int | None:
        """Return where the row of this id stands, None if it is not held."""
        found = self.places.get(ident)
        return None if found is None else found - self.gone

    def mark(self, ident: str) -> None:
        """Mark a row, or take its mark away."""
        if ident in self.marked:
            del self.marked[ident]
        elif len(self.marked) < MOST_MARKED:
            self.marked[ident] = None
