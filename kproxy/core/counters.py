"""Counts that sessions keep, as plain integers; the metrics sink reads them at scrape time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from .histogram import PROXY_BOUNDS, Histogram


@dataclass(slots=True)
class Counters:
    """Counters of one process. Words are the label values of the metrics with the same names."""

    events: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Things worth a number and no more: `topics_hidden`, `endpoints_blanked`, `acks0_response_dropped` …"""
    rewritten: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Values changed on their way: `addresses`, `node_endpoints`, `topic_names` …"""
    stopped: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Frames that were not let through, by API name: their answer would have shown a broker's address, a rule cannot
    read them, or one does not allow them (the event `stopped_by_rule`)."""
    proxy_time: Histogram = field(default_factory=lambda: Histogram(PROXY_BOUNDS))
    """How long kproxy is at work on what one read gave, from the kernel and back to it."""
    held_time: Histogram = field(default_factory=lambda: Histogram(PROXY_BOUNDS))
    """How long frames were held: for their rest, or for what had to be found out about them."""

    def count(self, word: str, n: int = 1) -> None:
        self.events[word] += n
