"""Latencies in buckets that are a twentieth apart, so that percentiles of any number of them are right within 5 %."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import ceil, log

from kproxy.record.events.schema import LATENCY_BOUNDS_MS

STEP = 1.05
"""Bucket `n` counts latencies above STEP ** (n - 1) ms, up to STEP ** n ms."""
NEVER_MS, LONGEST_MS = 1e-3, 3.6e6
"""Shorter and longer latencies count as these: at most 452 buckets, whatever clients and brokers do."""


def bucket_of(ms: float) -> int:
    return ceil(log(min(max(ms, NEVER_MS), LONGEST_MS)) / log(STEP))


class Latencies:
    """Distribution of latencies, in milliseconds."""

    def __init__(self) -> None:
        self.buckets: Counter[int] = Counter()
        self.longest = 0.0

    def add(self, ms: float, times: int = 1) -> None:
        self.buckets[bucket_of(ms)] += times
        self.longest = max(self.longest, ms)

    def add_buckets(self, counts: Iterable[int], longest: float) -> None:
        """Add the latencies of a summary's line: how many fell into each of the audit's buckets, and the longest."""
        for times, bound in zip(counts, (*LATENCY_BOUNDS_MS, longest), strict=False):
            if times:
                self.add(min(bound, longest), times)

    def percentile(self, share: float) -> float | None:
        """Return the milliseconds that a share (0 to 1) of the latencies did not exceed, the longest at most; None
        without latencies."""
        left = ceil(sum(self.buckets.values()) * share)
        for bucket in sorted(self.buckets):
            left -= self.buckets[bucket]
            if left <= 0:
                return round(min(self.longest, STEP**bucket), 3)
        return None

    def shown(self) -> dict[str, float | None]:
        """Return percentiles and maximum in milliseconds, for tables and JSON."""
        found = {f"p{share}_ms": self.percentile(share / 100) for share in (50, 90, 99)}
        return found | {"max_ms": round(self.longest, 3) if self.buckets else None}
