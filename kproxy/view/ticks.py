"""Counts of a process that are told each second: what passed, what was looked at, how long brokers took.

Strategy. A process tells totals since it began; who shows them subtracts those of a second before. So nothing is lost
when somebody comes late, and processes are added up. Exchanges and latencies are of all that passed, as the metrics
count them; bytes by API, errors and throttling are of those that were looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kproxy.core.counters import BROKER_BOUNDS, ApiTally

from .parts import ApiTotals, AuditTotals, ViewTotals
from .sink import Looked, error_name

ROOM = len(BROKER_BOUNDS) + 1
NOTHING = (0, 0, 0, 0, (0,) * ROOM)


def totals_of(
    tallies: Iterable[ApiTally], looked: Looked, *, missed: int, connections: int, read: tuple[int, int],
    held: int = 0, audit: AuditTotals | None = None,
) -> ViewTotals:  # fmt: skip
    """Return the totals of a process. `tallies`: what its metrics count of frames."""
    apis: dict[str, ApiTotals] = {}
    passed = 0
    for tally in list(tallies):
        passed += tally.requests
        before = apis.get(tally.api, NOTHING)
        buckets = tuple(map(sum, zip(before[4], tally.latency.buckets, strict=True)))
        apis[tally.api] = before[0] + tally.requests, 0, 0, 0, buckets
    for api, counts in looked.apis.items():
        requests, _, _, _, buckets = apis.get(api, NOTHING)
        apis[api] = requests, counts.errors, counts.request_bytes, counts.response_bytes, buckets
    errors = {error_name(code): count for code, count in looked.errors.items()}
    return ViewTotals(
        passed, looked.exchanges, missed, connections, read, looked.throttle_ms, apis, errors, held, audit
    )


def together(totals: Iterable[ViewTotals]) -> ViewTotals:
    """Return the totals of several processes, added up."""
    total = ViewTotals()
    for one in totals:
        apis = dict(total.apis)
        for api, counts in one.apis.items():
            apis[api] = plus(apis.get(api, NOTHING), counts)
        errors = dict(total.errors)
        for name, count in one.errors.items():
            errors[name] = errors.get(name, 0) + count
        total = ViewTotals(
            total.passed + one.passed, total.looked_at + one.looked_at, total.missed + one.missed,
            total.connections + one.connections,
            (total.read[0] + one.read[0], total.read[1] + one.read[1]),
            total.throttle_ms + one.throttle_ms, apis, errors,
            total.held_bytes + one.held_bytes, added(total.audit, one.audit),
        )  # fmt: skip
    return total


def added(one: AuditTotals | None, other: AuditTotals | None) -> AuditTotals | None:
    """Return the counts of two audits, added up."""
    if one is None or other is None:
        return one or other
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3], one[4] + other[4]


def plus(one: ApiTotals, other: ApiTotals, sign: int = 1) -> ApiTotals:
    """Return the sum of two totals, or with `sign` -1 what the first has more."""
    buckets = tuple(a + sign * b for a, b in zip(one[4], other[4], strict=True))
    return (
        one[0] + sign * other[0], one[1] + sign * other[1], one[2] + sign * other[2], one[3] + sign * other[3], buckets
    )  # fmt: skip


def tick_of(now: ViewTotals, before: ViewTotals, seconds: float) -> dict[str, Any]:
    """Return what has happened between two totals, as it is told to those who look. Totals that are smaller than those
    before are of a process that has begun anew: nothing is told of that second."""
    apis = {}
    for api, totals in now.apis.items():
        more = plus(totals, before.apis.get(api, NOTHING), -1)
        if any(more[:4]) or any(more[4]):
            apis[api] = [*(max(0, count) for count in more[:4]), [max(0, count) for count in more[4]]]
    errors = {name: count - before.errors.get(name, 0) for name, count in now.errors.items()}
    return {
        "seconds": round(seconds, 3),
        "passed": max(0, now.passed - before.passed),
        "looked_at": max(0, now.looked_at - before.looked_at),
        "connections": now.connections,
        "bytes": [max(0, a - b) for a, b in zip(now.read, before.read, strict=True)],
        "apis": apis,
        "errors": {name: count for name, count in errors.items() if count > 0},
        "held_bytes": now.held_bytes,
        "throttle_ms": max(0, now.throttle_ms - before.throttle_ms),
    }
