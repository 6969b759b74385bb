"""Counts of a process for the view's ticks, one each second.

Strategy. A process reports totals since it began; the stream subtracts those of a second before. A late viewer misses
nothing, and the totals of processes add up. Requests are of all exchanges, as the metrics count them. Latencies, bytes
by API, errors and throttling are of the exchanges that were looked at, so that they agree with the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kproxy.protocol.table.errors import error_name
from kproxy.session.counters import ApiTally

from .parts import ApiTotals, AuditTotals, LatencyTotals, ViewTotals
from .sink import Looked

NOTHING: ApiTotals = (0, 0, 0, 0, LatencyTotals())


def totals_of(
    tallies: Iterable[ApiTally], looked: Looked, *, missed: int, connections: int, read: tuple[int, int],
    held: int = 0, audit: AuditTotals | None = None,
) -> ViewTotals:  # fmt: skip
    """Return the totals of a process. `tallies`: what its metrics count of frames."""
    apis: dict[str, ApiTotals] = {}
    passed = 0
    for tally in list(tallies):
        passed += tally.requests
        apis[tally.api] = apis.get(tally.api, NOTHING)[0] + tally.requests, *NOTHING[1:]
    for api, counts in looked.apis.items():
        times = (
            round(seconds * 1000, 3) for seconds in (counts.kproxy_seconds, counts.rule_seconds, counts.broker_seconds)
        )
        latency = LatencyTotals(dict(counts.buckets), *times)
        apis[api] = apis.get(api, NOTHING)[0], counts.errors, counts.request_bytes, counts.response_bytes, latency
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
    """Return the sum of two totals, or with `sign` -1 their difference."""
    a, b = one[4], other[4]
    buckets = dict(a.buckets)
    for bucket, count in b.buckets.items():
        buckets[bucket] = buckets.get(bucket, 0) + sign * count
    latency = LatencyTotals(
        buckets, a.kproxy_ms + sign * b.kproxy_ms, a.rule_ms + sign * b.rule_ms, a.broker_ms + sign * b.broker_ms
    )
    return (
        one[0] + sign * other[0], one[1] + sign * other[1], one[2] + sign * other[2], one[3] + sign * other[3], latency
    )  # fmt: skip


def latency_shown(latency: LatencyTotals) -> dict[str, Any]:
    """Return latencies as JSON has them: buckets as [number, count], none that is empty."""
    return {
        "buckets": sorted([bucket, count] for bucket, count in latency.buckets.items() if count > 0),
        "kproxy_ms": max(0.0, round(latency.kproxy_ms, 3)),
        "rule_ms": max(0.0, round(latency.rule_ms, 3)),
        "broker_ms": max(0.0, round(latency.broker_ms, 3)),
    }


def tick_of(now: ViewTotals, before: ViewTotals, seconds: float) -> dict[str, Any]:
    """Return what has happened between two totals, as it is told to those who look. Totals that are smaller than those
    before are of a process that has begun anew: nothing is told of that second."""
    apis = {}
    for api, totals in now.apis.items():
        more = plus(totals, before.apis.get(api, NOTHING), -1)
        if any(more[:4]) or any(more[4].buckets.values()):
            apis[api] = [*(max(0, count) for count in more[:4]), latency_shown(more[4])]
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
