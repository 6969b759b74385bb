"""Answer: how long requests take, by API and node, and where the time goes.

Percentiles come from merged histograms: what is told is the upper bound of the bucket that holds the percentile (or the
longest time of all, if that is less). The true one is at most that, and more than the bound below it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kproxy.events.schema import LATENCY_BOUNDS_MS
from kproxy.pipeline.transforms.gold.bases import Bases
from kproxy.pipeline.transforms.gold.partial import AMOUNT, BUCKETS, HISTOGRAM, LONGEST, TOTAL, Partial, ratio

PARTIAL = Partial(
    keys=("cluster", "api", "node"),
    measures={
        "requests": TOTAL,
        "latency_ms": AMOUNT,
        "max_ms": LONGEST,
        "buckets": HISTOGRAM,
        "broker_ms": AMOUNT,
        "broker_count": TOTAL,
        "rule_ms": AMOUNT,
        "wait_ms": AMOUNT,
        "throttle_ms": AMOUNT,
        "throttled": TOTAL,
    },
)


def daily(bases: Bases) -> DataFrame:
    """Sum times and a histogram; `broker_count` is how many requests `broker_ms` is known of."""
    times = bases.requests.groupBy("dt", *PARTIAL.keys).agg(
        F.sum("count").alias("requests"),
        F.sum("latency_ms").alias("latency_ms"),
        F.max("latency_max_ms").alias("max_ms"),
        F.array(*[F.coalesce(F.sum(f"b{number}"), F.lit(0)) for number in range(BUCKETS)]).alias("buckets"),
        *[F.sum(name).alias(name) for name in ("broker_ms", "broker_count", "rule_ms", "wait_ms")],
        *[F.sum(name).alias(name) for name in ("throttle_ms", "throttled")],
    )
    return PARTIAL.select(times)


def combine(partials: DataFrame) -> DataFrame:
    """Compute means and percentiles over the requests that were timed, which are those in the histogram."""
    merged = PARTIAL.merged(partials)
    timed = merged.select(
        "*", F.aggregate("buckets", F.lit(0).cast("bigint"), lambda total, one: total + one).alias("timed")
    )
    return timed.select(
        *PARTIAL.keys,
        "requests",
        ratio("latency_ms", "timed").alias("mean_ms"),
        percentile(0.5).alias("p50_ms"),
        percentile(0.95).alias("p95_ms"),
        percentile(0.99).alias("p99_ms"),
        "max_ms",
        ratio("broker_ms", "broker_count").alias("broker_ms"),
        ratio("rule_ms", "timed").alias("rule_ms"),
        ratio("wait_ms", "timed").alias("wait_ms"),
        F.coalesce("throttled", F.lit(0)).alias("throttled"),
        ratio("throttle_ms", "throttled").alias("throttle_ms"),
    )


def percentile(part: float) -> Column:
    """Return a time in ms that this part of the `timed` values in `buckets` does not exceed; at most `max_ms`."""
    bounds = F.array(*[F.lit(float(bound)) for bound in LATENCY_BOUNDS_MS])
    reached = F.transform(
        F.sequence(F.lit(1), F.lit(BUCKETS)),
        lambda upto: (
            F.aggregate(F.slice("buckets", 1, upto), F.lit(0).cast("bigint"), lambda total, one: total + one)
            >= F.col("timed") * F.lit(part)
        ),
    )
    bound = F.get(bounds, F.array_position(reached, True).cast("int") - 1)
    return F.when(F.col("timed") > 0, F.least(F.coalesce(bound, F.col("max_ms")), F.col("max_ms")))
