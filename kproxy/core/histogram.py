"""Counts of durations in buckets, as plain integers; the metrics sink reads them at scrape time."""

from __future__ import annotations

from bisect import bisect_left

BROKER_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds in seconds: from a local broker's half millisecond to a long poll's 30 s."""
PROXY_BOUNDS = (5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.1, 1.0, 10.0)
"""Upper bounds in seconds: from a frame that passes unread to one that had to wait for its rest."""


class Histogram:
    """Histogram of durations: `buckets[i]` counts those up to `bounds[i]` seconds, the last one those above all;
    `total` is their sum."""

    __slots__ = ("bounds", "buckets", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count a duration, or several that are equal."""
        self.buckets[bisect_left(self.bounds, seconds)] += times
        self.total += seconds * times

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram with the same bounds."""
        self.buckets = [mine + its for mine, its in zip(self.buckets, other.buckets, strict=True)]
        self.total += other.total

    @property
    def count(self) -> int:
        return sum(self.buckets)
