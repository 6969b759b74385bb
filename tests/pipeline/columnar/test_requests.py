"""Histograms of single latencies."""

from __future__ import annotations

import pyarrow as pa

from kproxy.pipeline.columnar.requests import buckets


def test_a_latency_is_in_the_bucket_whose_bound_it_does_not_exceed() -> None:
    """Bounds belong to their bucket; the last takes what is slower; none without a latency."""
    found = buckets(pa.array([0.2, 1.0, 1.01, 30000.0, 30001.0, None])).to_pylist()

    assert [None if row is None else row.index(1) for row in found] == [0, 0, 1, 13, 14, None]
    assert all(row is None or (sum(row), len(row)) == (1, 15) for row in found)
