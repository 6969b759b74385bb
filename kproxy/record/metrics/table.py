"""Series of one label: names with a series of their own, and the sum of all other names.

The first names get a series, up to the limit. Later names are counted as `other`, and in a sketch of the most active
names. Once a minute, at most one of these replaces the series with the least movement, if it moved more than twice as
much for three minutes in a row. A series without movement for an hour frees its room. Numbers never move from one
series to another: the count of `other` stays, and a removed series takes its count along. So counters do not jump. If
another config has removed a series, its numbers are kept until its name has a series again.

Clients choose the names. They are cut and control characters are escaped. A name gets a series only if another party
than its sender has confirmed it. The memory for a label depends on the limit alone.

The sketch is Metwally's space-saving sketch. A name without a counter takes the place and the count of the smallest
one, and stores that count as its possible error. A name's certain amount is its count less that error. So invented
names that appear once do not look large, in any number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.terminal import in_line


class HeavyNames:
    """Counters of at most `most` names, those that moved most."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.counts: dict[str, tuple[float, float]] = {}  # count, and how much of it may be others'
        self._heap: list[tuple[float, str]] = []  # may hold counts that are out of date, never too large ones

    def add(self, name: str, weight: float) -> None:
        """Count `weight` for a name, which may drive out another one."""
        counts = self.counts
        known = counts.get(name)
        if known is None:
            least = self._pop_smallest() if len(counts) >= self.most else 0.0
            known = least, least
        counts[name] = known[0] + weight, known[1]
        if len(self._heap) >= 4 * self.most:
            self._heap = [(count, each) for each, (count, _) in counts.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (known[0] + weight, name))

    def _pop_smallest(self) -> float:
        """Give up the name with the smallest count, and return that count."""
        while True:
            count, name = heappop(self._heap)
            known = self.counts.get(name)
            if known is not None and known[0] == count:
                del self.counts[name]
                return count

    def certain(self) -> dict[str, float]:
        """Return the weight that each name has moved for certain."""
        return {name: count - error for name, (count, error) in self.counts.items()}

    def clear(self) -> None:
        self.counts.clear()
        self._heap.clear()


OTHER = "other"
"""Name for all names without a series. An equal name is also counted here, so the word is unambiguous."""
LONGEST_NAME = 100
"""Characters of a name that a label has."""
PIECE = 17
"""Characters of a name that are looked at in one go: where each is escaped, they fill the label."""
SILENCE = 3600.0
"""Seconds without movement after which a series is removed."""
MINUTES = 3
"""Minutes in a row in which a name has to move more than a series to replace it."""
TIMES = 2
"""How many times as much as the smallest series it has to move in each of them."""
MOST_RESTING = 500
"""Names whose numbers are kept after another config has removed their series: as many as can have a series."""
WATCHED = 2
"""Names that are watched for their weight, for each that can have a series."""

BIRTHS = count(1)
"""Numbers of series, and of whatever else counts from zero: one that has the name of an earlier one has another."""

LabelLine = tuple[str, str]
"""(name of a sample, value of its second label; empty where it has none)"""


class LabelSeries:
    """Numbers of one name by line. `weight`: moved in this minute. `last`: when it moved last. `born`: its own number
    in this process."""

    __slots__ = ("born", "last", "name", "values", "weight")

    def __init__(self, name: str, now: float) -> None:
        self.name, self.last, self.weight, self.born = name, now, 0.0, next(BIRTHS)
        self.values: dict[LabelLine, float] = {}


class LabelTable:
    """Series of the names of one label, at most `most`.

    `chosen(name)`: True if a name may have a series at all; None: all may. `text(name)`: the name as series have it, by
    default `label_text`. `gone`: called with a series that was given up. `overflow`: amount counted as `other` for lack
    of room, in the caller's unit. `rests`: numbers of series that other limits leave no place for are kept, for names
    that get a series again.
    """

    def __init__(
        self, most: int, chosen: Callable[[str], bool] | None = None, text: Callable[[str], str] | None = None, *,
        rests: bool = False,
    ) -> None:  # fmt: skip
        self.most, self.chosen, self.rests = most, chosen, rests
        self.resting: BoundedMap[str, LabelSeries] = BoundedMap(MOST_RESTING)
        self.text = label_text if text is None else text
        self.series: dict[str, LabelSeries] = {}
        self.other = LabelSeries(OTHER, 0.0)
        self.overflow = 0.0
        self.heavy = HeavyNames(WATCHED * most)
        self.streaks: dict[str, int] = {}
        self.gone: Callable[[LabelSeries], None] = lambda series: None

    def add(
        self, name: str, lines: Iterable[tuple[LabelLine, float]], now: float, *, weight: float, count: float,
        known: bool = True,
    ) -> LabelSeries:  # fmt: skip
        """Add numbers to the lines of a name, and return its series, which may be `other`.

        `weight`: movement of the name, which decides about series; `count`: addition to the overflow if the name has no
        series. `known`: another party than its sender has confirmed the name.
        """
        series = self.series.get(name)
        if series is None:
            label = self.text(name)
            series = self.series.get(label) or self._begin(label, now, weight, count, known)
        series.last = now
        series.weight += weight
        values = series.values
        for line, number in lines:
            if number:
                values[line] = values.get(line, 0.0) + number
        return series

    def _begin(self, label: str, now: float, weight: float, count: float, known: bool) -> LabelSeries:
        """Return a new series for a name that has none, or `other`."""
        if label == OTHER or not known or (self.chosen is not None and not self.chosen(label)):
            return self.other
        if len(self.series) < self.most:
            return self._give_place(label, now)
        self.overflow += count
        self.heavy.add(label, weight)
        return self.other

    def end_minute(self, now: float) -> None:
        """Give up series that are silent, and one that is small for a name that has moved more for a while."""
        for name in [name for name, series in self.series.items() if now - series.last > SILENCE]:
            self._drop(name)
        smallest = min(self.series.values(), key=lambda one: (one.weight, one.last), default=None)
        if smallest is not None and len(self.series) >= self.most:
            moved = self.heavy.certain()
            larger = [name for name, weight in moved.items() if weight > TIMES * smallest.weight]
            self.streaks = {name: self.streaks.get(name, 0) + 1 for name in larger}
            ready = [name for name, minutes in self.streaks.items() if minutes >= MINUTES]
            if ready:
                heaviest = max(ready, key=moved.__getitem__)
                del self.streaks[heaviest]
                self._drop(smallest.name)
                self._give_place(heaviest, now)
        else:
            self.streaks = {}
        self.heavy.clear()
        for series in self.series.values():
            series.weight = 0.0

    def use(self, most: int, chosen: Callable[[str], bool] | None) -> None:
        """Apply other limits: excess series are removed, those with the least movement first. Later counts of their
        names are `other`. Those that had to go before and have a place now are back."""
        if most != self.most:
            self.heavy, self.streaks = HeavyNames(WATCHED * most), {}
        self.most, self.chosen = most, chosen
        left = {name: None for name in self.series if chosen is not None and not chosen(name)}
        by_weight = sorted((one.weight, one.last, name) for name, one in self.series.items() if name not in left)
        left |= dict.fromkeys(name for _, _, name in by_weight[: max(0, len(by_weight) - most)])
        for name in left:
            if self.rests:
                self.resting[name] = self.series[name]
            self._drop(name)
        for name in [name for name in self.resting if name not in left and (chosen is None or chosen(name))]:
            if len(self.series) < most:
                self.series[name] = self.resting.pop(name)

    def _give_place(self, name: str, now: float) -> LabelSeries:
        """Return a series for a name, which goes on where the name had one before another config."""
        series = self.series[name] = self.resting.pop(name) if name in self.resting else LabelSeries(name, now)
        series.last, series.weight = now, 0.0
        return series

    def _drop(self, name: str) -> None:
        self.gone(self.series.pop(name))

    def everything(self) -> list[LabelSeries]:
        """Return all series, and `other` if anything was counted there."""
        return [*self.series.values(), *([self.other] if self.other.values else [])]


def label_text(name: str) -> str:
    """Return a name as the value of a label: without characters that command anything, and of bounded length."""
    if name.isascii() and name.isprintable():
        return name[:LONGEST_NAME]
    text, at = "", 0
    while len(text) < LONGEST_NAME and at < min(len(name), LONGEST_NAME):  # the part that is cut off needs no escape
        text += in_line(name[at : at + PIECE])
        at += PIECE
    return text[:LONGEST_NAME]
