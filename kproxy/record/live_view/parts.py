"""Messages of a process to those who look, in the form in which processes send them to each other."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

UNKNOWN = -1
"""Stands for how many exchanges are missing where nobody knows."""


class LatencyTotals(msgspec.Struct, frozen=True):
    """Latencies of answered exchanges, as their clients see them: counts by bucket (`record.observer.latencies`), and
    the sums
    of their parts."""

    buckets: dict[int, int] = {}
    kproxy_ms: float = 0.0
    rule_ms: float = 0.0
    broker_ms: float = 0.0


ApiTotals = tuple[int, int, int, int, LatencyTotals]
"""Totals of one API: requests that passed, and of those looked at errors, bytes from clients, bytes to clients, and
latencies."""

AuditTotals = tuple[int, int, int, int, int]
"""Events written, waiting and lost, outlets that fail now, and processes that do not read clients because of that."""


class ViewTotals(msgspec.Struct, frozen=True):
    """Totals of one process, or of several, since it began. `read`: bytes from clients, and from brokers; `missed`:
    exchanges that were not looked at, as far as somebody had wanted to look."""

    passed: int = 0
    looked_at: int = 0
    missed: int = 0
    connections: int = 0
    read: tuple[int, int] = (0, 0)
    throttle_ms: int = 0
    apis: Mapping[str, ApiTotals] = {}
    errors: Mapping[str, int] = {}
    held_bytes: int = 0
    audit: AuditTotals | None = None


class ViewPart(msgspec.Struct, frozen=True):
    """Part of what a viewer is told. `rows`: a list in JSON, empty if there are none; `place`: up to here everything of
    this process has been told. The others are totals: `matched` the filter, and were left out, for too many or since
    the viewer was too slow; could not be judged, for the reason `why`. `missing`: exchanges that had gone before this
    part, once; UNKNOWN: nobody knows how many."""

    place: int
    rows: bytes = b""
    matched: int = 0
    too_many: int = 0
    too_slow: int = 0
    unknown: int = 0
    why: str = ""
    missing: int = 0
