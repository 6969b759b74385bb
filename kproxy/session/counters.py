"""Counts that sessions keep, as plain integers; the metrics collector reads them at scrape time.

`Counters` are one process's, an `ApiTally` is one (api, version)'s, for all connections and whatever rules come.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field

from kproxy.protocol.table import schema

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
        self.buckets = [mine + its for mine, its in zip(self.buckets, other.buckets, strict=True)]
        self.total += other.total

    @property
    def count(self) -> int:
        return sum(self.buckets)


@dataclass(slots=True)
class Counters:
    """Counters of one process. Words are the label values of the metrics with the same names."""

    events: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Things worth a number and no more: `topics_hidden`, `endpoints_blanked`, `acks0_response_dropped` …"""
    rewritten: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Values changed on their way: `addresses`, `node_endpoints`, `topic_names` …"""
    stopped: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Frames that were not let through, by API name: their answer would have shown a broker's address, a rule cannot
    read them, or one does not allow them (the event `requests_blocked_by_rule`)."""
    proxy_time: Histogram = field(default_factory=lambda: Histogram(PROXY_BOUNDS))
    """Time that kproxy spends on the bytes of one read, from the kernel and back to it."""
    held_time: Histogram = field(default_factory=lambda: Histogram(PROXY_BOUNDS))
    """Time that frames were held: for the rest of their bytes, or for a lookup."""

    def count(self, word: str, n: int = 1) -> None:
        self.events[word] += n


Label = tuple[str, str, str]


class ApiTally:
    """Count of requests of one API and version, and their responses: `latency` has the time since the request's header
    was read."""

    __slots__ = ("api", "depth", "latency", "requests", "version")

    def __init__(self, api: str, version: str, depth: str) -> None:
        self.api, self.version, self.depth = api, version, depth
        self.requests = 0
        self.latency = Histogram(BROKER_BOUNDS)

    @property
    def responses(self) -> int:
        return self.latency.count


class Tallies(dict[Label, ApiTally]):
    """Tallies by api, version and how deep the plan looks. Bounded by the protocol's table."""

    def of(self, key: int, version: int, api: str, depth: str) -> ApiTally:
        """Return the tally of this API and version. A client may send any version of any API: only those of the table
        have a label of their own."""
        known = key in schema.paths() and version in schema.load(key).versions
        label = (api, str(version) if known else "unknown", depth)
        return self.setdefault(label, ApiTally(*label))
