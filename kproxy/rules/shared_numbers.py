"""Numbers that one rule shares between processes, and numbers by key that an effect remembers.

With one process, triggers and buckets keep their own numbers. With several, a process locks and takes the numbers,
updates them, and stores them. So `nth: 3` counts requests of all workers, and a quota is one quota.
`app.workers.shared_table` has the table and its lock.

`Remembered` is for effects that respond on one connection to a request on another, such as FindCoordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kproxy.base.bounded_map import BoundedMap

if TYPE_CHECKING:
    from kproxy.rules.kinds.base.rule import Effect

MOST_NUMBERS = 6
"""Numbers that one key may have: those of a bucket with promises."""


class NumberCells(Protocol):
    """Numbers of one key in the common table."""

    def take(self, now: float) -> tuple[float, ...] | None:
        """Return the numbers, which are the caller's alone until `put`, which has to follow at once; None: the key has
        none yet, or they had to go for others that were used later. `now`: monotonic seconds, which are the same in all
        processes."""

    def put(self, *numbers: float, until: float | None = None) -> None:
        """Store at most MOST_NUMBERS, always as many for one key; without arguments they stay. until: time after which
        they may be evicted without loss, if not now."""


FindCells = Callable[[bytes, str | None], NumberCells]
"""Returns the cells of a key in the common table: 8 bytes for one life of a rule, and the client or other key. A key of
None is the whole rule; its numbers are never evicted."""


@dataclass(frozen=True, slots=True)
class SharedNumbers:
    """Part of the table for one life of one rule. It ends when the rule restarts. own: suffix of the seed for draws
    that cannot be shared, so that processes draw differently; empty in the first process."""

    find: FindCells
    owner: bytes
    own: str = ""

    def cells(self, what: str | None) -> NumberCells:
        return self.find(self.owner, what)


RememberedNumbers = tuple[float, ...]
NumbersChange = Callable[[RememberedNumbers | None], RememberedNumbers | None]


class Remembered:
    """Numbers of at most `most` keys in each process. The least recently used key is evicted."""

    def __init__(self, effect: Effect, most: int) -> None:
        self.effect = effect
        self.here: BoundedMap[object, RememberedNumbers] = BoundedMap(most)
        self.cells: BoundedMap[object, NumberCells] = BoundedMap(most)

    def change(self, key: tuple[object, ...], now: float, change: NumbersChange) -> RememberedNumbers | None:
        """Replace the numbers of a key by the result of `change`, and return it. `change` receives None for a new key;
        if it returns None, the numbers stay. The numbers are locked during the call. A key has texts and numbers."""
        if self.effect.common is not None:
            return self._in_common(self.effect.common, key, now, change)
        if key in self.here:
            self.here.move_to_end(key)
        after = change(self.here.get(key))
        if after is not None:
            self.here[key] = after
        return after

    def _in_common(
        self, common: SharedNumbers, key: tuple[object, ...], now: float, change: NumbersChange
    ) -> RememberedNumbers | None:
        if key not in self.cells:
            self.cells[key] = common.cells(f"remembered {key!r}")
        cells = self.cells[key]
        after: RememberedNumbers | None = None
        before = cells.take(now)
        try:
            after = change(before)
        finally:
            cells.put(*(after or ()))
        return after
