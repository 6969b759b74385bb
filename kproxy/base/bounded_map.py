"""Parts of caches: a map that evicts its least recently used entry, and methods that a cache can hold weakly."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast
from weakref import ref

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
MISSING: Any = object()
_store = OrderedDict.__setitem__


class BoundedMap(OrderedDict[Key, Value]):
    """LRU map of at most `max_entries` entries; `evicted` counts the evictions.

    Assignments and lookups by `[]` are uses. `get`, `in` and iteration are not, and run at the speed of a dict. The
    iteration starts with the least recently used entry. A lookup of a missing key stores the result of `make`, or
    raises KeyError without it. `on_evict` receives the key and value of each evicted entry.

    Maps with the same `budget` share its bytes. `weigh` estimates the bytes of an entry. An entry is weighed at the
    next use of another one, because its user may enlarge it. Remove entries of such a map by `discard` only.
    """

    __slots__ = ("budget", "evicted", "last", "make", "max_entries", "on_evict", "used", "weigh", "weights")

    def __init__(
        self, max_entries: int, make: Callable[[], Value] | None = None,
        on_evict: Callable[[Key, Value], object] | None = None, *,
        budget: SharedBudget | None = None, weigh: Callable[[Value], int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.max_entries, self.make, self.on_evict = max_entries, make, on_evict
        self.evicted = self.used = 0
        self.budget, self.weigh = budget, weigh
        self.weights: dict[Key, int] = {}
        self.last: Any = MISSING
        if budget is not None:
            budget.maps.append(self)

    def __getitem__(self, key: Key) -> Value:
        if self.budget is not None and self.last != key:
            self._weigh_last(key)
        found: Value = self.get(key, MISSING)
        if found is not MISSING:
            self.move_to_end(key)
        elif self.make is None:
            raise KeyError(key)
        else:
            self[key] = found = self.make()
        return found

    def __setitem__(self, key: Key, value: Value) -> None:
        if self.budget is not None and self.last != key:
            self._weigh_last(key)
        if key in self:
            self.move_to_end(key)
        else:
            while len(self) >= self.max_entries:
                self.evict()
        _store(self, key, value)

    def evict(self) -> None:
        """Remove the least recently used entry. Raises KeyError for an empty map."""
        key, value = self.popitem(last=False)
        if self.budget is not None:
            self._lighten(key)
        self.evicted += 1
        if self.on_evict is not None:
            self.on_evict(key, value)

    def discard(self, key: Key) -> None:
        """Remove an entry, if there is one, without counting it as evicted."""
        self.pop(key, None)
        if self.budget is not None:
            self._lighten(key)

    def _weigh_last(self, key: Key) -> None:
        last, self.last = self.last, key
        entry = self.get(last, MISSING)
        if entry is not MISSING and self.budget is not None and self.weigh is not None:
            weight = self.weigh(entry)
            change = weight - self.weights.get(last, 0)
            if change:
                self.weights[last] = weight
                self.used += change
                self.budget.use(change)

    def _lighten(self, key: Key) -> None:
        weight = self.weights.pop(key, 0)
        self.used -= weight
        if self.budget is not None:
            self.budget.used -= weight


class SharedBudget:
    """Bytes that several maps share. The fullest map evicts first, and keeps its last entry."""

    __slots__ = ("maps", "max_bytes", "used")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.used = max_bytes, 0
        self.maps: list[BoundedMap[Any, Any]] = []

    def use(self, change: int) -> None:
        """Add bytes to the used ones, and evict entries until the limit holds again."""
        self.used += change
        while self.used > self.max_bytes:
            fullest = max(self.maps, key=lambda one: one.used)
            if len(fullest) <= 1:
                return
            fullest.evict()


F = TypeVar("F", bound=Callable[..., Any])


def unheld(method: F) -> F:
    """Return a function that calls this bound method while other code holds its object.

    A cache stored on an object can call the object by it without a reference cycle. The garbage collector frees old
    cycles only every ten minutes (`app/garbage.py`).
    """
    bound = cast("Any", method)
    owner, function = ref(bound.__self__), bound.__func__

    def call(*args: Any) -> Any:
        return function(owner(), *args)

    return cast("F", call)
