"""How long requests take."""

import random

import pytest

from kproxy.record.events.schema import LATENCY_BOUNDS_MS

BUCKETS = len(LATENCY_BOUNDS_MS) + 1


def buckets(*latencies):
    return [
        sum(low < latency <= high for latency in latencies)
        for low, high in zip((-1, *LATENCY_BOUNDS_MS), (*LATENCY_BOUNDS_MS, float("inf")), strict=True)
    ]


def row(*latencies, **more):
    return {
        "api": "Fetch", "node": 1, "count": len(latencies), "latency_ms": float(sum(latencies)),
        "latency_max_ms": float(max(latencies, default=0)), "latency_buckets": buckets(*latencies), **more,
    }  # fmt: skip


def test_means_and_parts_are_weighed_by_requests(answer):
    """The broker's part is over the requests that it is known of, throttling over those that were throttled."""
    rows = [
        row(10.0, broker_ms=8.0, rule_ms=1.0, wait_ms=0.5, throttle_ms=0),
        row(10.0, 20.0, 30.0, rule_ms=3.0, wait_ms=0.5, throttle_ms=None),
        row(30.0, broker_ms=28.0, throttle_ms=100),
        row(7.0, node=None),
    ]
    found = {one.get("node"): one for one in answer("latency", requests=rows)}

    assert (5, 20.0, 30.0, 18.0, 0.8, 0.2, 1, 100.0) == tuple(
        found[1][name]
        for name in ("requests", "mean_ms", "max_ms", "broker_ms", "rule_ms", "wait_ms", "throttled", "throttle_ms")
    )
    assert ("broker_ms" in found[None], found[None]["p99_ms"]) == (False, 7.0)


@pytest.mark.parametrize("seed", [1, 2])
def test_percentiles_are_the_bounds_of_their_buckets(answer, seed):
    """The true percentile is at most what is told and more than the bound below, for latencies of any size."""
    chance = random.Random(seed)
    latencies = [chance.lognormvariate(3, 2.5) for _ in range(500)]
    [found] = answer("latency", requests=[row(*latencies[n : n + 50]) for n in range(0, 500, 50)])

    for name, part in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
        true = sorted(latencies)[round(len(latencies) * part) - 1]
        below = max((bound for bound in LATENCY_BOUNDS_MS if bound < found[name]), default=0)
        assert below < true <= found[name] <= max(latencies)


def test_requests_without_an_answer_have_no_latency(answer):
    """They count as requests and have neither mean nor percentiles."""
    [found] = answer("latency", requests=[{"api": "Produce", "acks": 0, "outcome": "no_answer_due"}])

    assert (1, False, False) == (found["requests"], "mean_ms" in found, "p50_ms" in found)
