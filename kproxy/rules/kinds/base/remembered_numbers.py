"""Numbers that an effect remembers by key: in this process or, where several have the rule, in common.

For effects that answer one connection by what they have seen on another, such as a client that asks for a coordinator
here and then talks to it there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from kproxy.rules.shared_numbers import NumberCells, SharedNumbers

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
