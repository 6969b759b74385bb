"""LRU maps with bounds on entries and on shared memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

RecentKey = TypeVar("RecentKey", bound=Hashable)
Kept = TypeVar("Kept")


def no_entry() -> Any:
    raise KeyError("expected a key with an entry, got a missing one")


class RecentMap(Generic[RecentKey, Kept]):
    """LRU map of at most `most` entries. `dropped` counts evicted entries, which `end` receives.

    Maps with the same `room` share its bytes. `weigh` estimates the bytes of an entry. An entry is weighed when another
    one is used, since the caller may have added to it.
    """

    __slots__ = ("dropped", "end", "entries", "last", "make", "most", "room", "used", "weigh", "weights")

    def __init__(
        self, most: int, make: Callable[[], Kept] = no_entry, end: Callable[[Kept], object] | None = None, *,
        room: SharedRoom | None = None, weigh: Callable[[Kept], int] | None = None,
    ) -> None:  # fmt: skip
        self.most, self.make, self.end = most, make, end
        self.entries: OrderedDict[RecentKey, Kept] = OrderedDict()
        self.dropped = self.used = 0
        self.room, self.weigh = room, weigh
        self.weights: dict[RecentKey, int] = {}
        self.last: RecentKey | None = None
        if room is not None:
            room.maps.append(self)

    def __getitem__(self, key: RecentKey) -> Kept:
        if self.room is not None and self.last != key:
            self._weigh_last(key)
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = self.make()
            if len(self.entries) > self.most:
                self.drop_oldest()
        else:
            self.entries.move_to_end(key)
        return entry

    def __setitem__(self, key: RecentKey, entry: Kept) -> None:
        if self.room is not None and self.last != key:
            self._weigh_last(key)
        self.entries[key] = entry
        self.entries.move_to_end(key)
        if len(self.entries) > self.most:
            self.drop_oldest()

    def __len__(self) -> int:
        return len(self.entries)

    def _weigh_last(self, key: RecentKey) -> None:
        last, room, weigh = self.last, self.room, self.weigh
        self.last = key
        if last is None or room is None or weigh is None or last not in self.entries:
            return
        now = weigh(self.entries[last])
        change = now - self.weights.get(last, 0)
        if change:
            self.weights[last] = now
            self.used += change
            room.use(change)

    def _lighten(self, key: RecentKey) -> None:
        weight = self.weights.pop(key, 0)
        self.used -= weight
        if self.room is not None:
            self.room.used -= weight

    def drop_oldest(self) -> None:
        key, dropped = self.entries.popitem(last=False)
        self._lighten(key)
        self.dropped += 1
        if self.end is not None:
            self.end(dropped)

    def get(self, key: RecentKey) -> Kept | None:
        """Return the entry or None. This does not count as a use."""
        return self.entries.get(key)

    def forget(self, key: RecentKey) -> None:
        self.entries.pop(key, None)
        self._lighten(key)

    def values(self) -> Iterator[Kept]:
        """Iterate over the entries, the least recently used first."""
        return iter(self.entries.values())


class SharedRoom:
    """Bytes that several maps share. The fullest map evicts first."""

    __slots__ = ("maps", "most", "used")

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0
        self.maps: list[RecentMap[Any, Any]] = []

    def use(self, change: int) -> None:
        self.used += change
        while self.used > self.most:
            fullest = max(self.maps, key=lambda one: one.used)
            if len(fullest) <= 1:
                return
            fullest.drop_oldest()
