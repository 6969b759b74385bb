"""Answer on client metrics (KIP-714), compared with kproxy's own measurements of the same clients.

Instances of a client are summed. For a mean, the sum and the number of pushes with it are stored; for instance ids, a
sketch. kproxy's measurements are stored for all clients, since a client's metrics may arrive on another day. Clients
without metrics are removed at the end. The numbers are claims of clients, up to 2^63 each, so no cast may overflow.
"""

from __future__ import annotations

from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kproxy.lake.tables import READ_APIS, WRITE_APIS
from kproxy.lake.transforms.gold.health import CUT_OFF, percentile, timed
from kproxy.protocol.table.errors import all_codes

from .aggregates import (
    AMOUNT,
    BUCKETS,
    FIRST,
    HISTOGRAM,
    LAST,
    LONGEST,
    SKETCH,
    TOTAL,
    AnswerTransforms,
    Bases,
    Partial,
    failed,
    ratio,
    sketch_of,
)

SAID = {
    "producer_request": "producer_node_request_latency",
    "consumer_request": "consumer_node_request_latency",
    "queue": "producer_record_queue_time",
    "throttle": "producer_produce_throttle_time",
    "fetch": "consumer_fetch_manager_fetch_latency",
    "commit": "consumer_coordinator_commit_latency",
    "rebalance": "consumer_coordinator_rebalance_latency",
}
"""Name in the answer, without its unit → name in events, without `_avg` and `_max`."""
SEEN = {"produce": WRITE_APIS, "fetch": READ_APIS, "commit": ("OffsetCommit",), "join": ("JoinGroup",)}
"""APIs with separate latencies, as in the clients' own metrics."""
PUSHING = ("GetTelemetrySubscriptions", "PushTelemetry")
"""APIs that push client metrics. kproxy answers them itself, so they do not count as a client's work."""
MADE = ("producer_connection_creation_total", "consumer_connection_creation_total")
FARTHER_MS, FARTHER_TIMES = 10, 2
"""Difference in ms, and factor, between a client's latency and kproxy's that indicate a slow network between them."""

CLIENT_METRICS_PARTIAL = Partial(
    keys=("cluster", "client_id", "principal", "software_name", "software_version"),
    measures={
        "first_seen": FIRST,
        "last_seen": LAST,
        "pushes": TOTAL,
        "instances": SKETCH,
        "connections": AMOUNT,
        **{f"{name}_ms": AMOUNT for name in SAID},
        **{f"{name}_count": TOTAL for name in SAID},
        **{f"{name}_max_ms": LONGEST for name in SAID},
        "seen_connections": TOTAL,
        "seen_requests": TOTAL,
        "latency_ms": AMOUNT,
        "max_ms": LONGEST,
        "buckets": HISTOGRAM,
        **{f"seen_{name}_ms": AMOUNT for name in SEEN},
        **{f"seen_{name}_count": TOTAL for name in SEEN},
        **{f"seen_{name}_max_ms": LONGEST for name in SEEN},
        "seen_throttled": TOTAL,
        "throttle_time_ms": AMOUNT,
        "seen_errors": TOTAL,
        "seen_retriable": TOTAL,
        "seen_cut_off": TOTAL,
    },
)
"""`…_count`: number of pushes with a mean, or of timed requests."""


def client_metrics_daily(bases: Bases) -> DataFrame:
    """Sum client metrics, requests and connections by client."""
    return CLIENT_METRICS_PARTIAL.gathered(
        from_clients(bases.telemetry), seen_requests(bases.requests), seen_connections(bases.connections)
    )


def from_clients(telemetry: DataFrame) -> DataFrame:
    """Sum the numbers of pushes by client, over all its instances."""
    means = [(name, F.col(f"{column}_avg")) for name, column in SAID.items()]
    created = reduce(add, [F.coalesce(name, F.lit(0.0)) for name in MADE])
    return telemetry.groupBy("dt", *CLIENT_METRICS_PARTIAL.keys).agg(
        F.min("time").alias("first_seen"),
        F.max("time").alias("last_seen"),
        F.count(F.lit(1)).alias("pushes"),
        sketch_of("client_instance_id").alias("instances"),
        F.sum(F.when(F.coalesce(*MADE).isNotNull(), created)).alias("connections"),
        *[F.sum(mean).alias(f"{name}_ms") for name, mean in means],
        *[F.count(mean).alias(f"{name}_count") for name, mean in means],
        *[F.max(f"{column}_max").alias(f"{name}_max_ms") for name, column in SAID.items()],
    )


def seen_requests(requests: DataFrame) -> DataFrame:
    """Sum the times and errors of requests by client, without those of `PUSHING`."""
    retriable = [error.name for error in all_codes() if error.retriable]
    number = reduce(add, [F.coalesce(f"b{bucket}", F.lit(0)) for bucket in range(BUCKETS)])
    apart = [(name, F.col("api").isin(*apis)) for name, apis in SEEN.items()]
    work = requests.where(F.col("api").isNull() | ~F.col("api").isin(*PUSHING))
    return work.groupBy("dt", *CLIENT_METRICS_PARTIAL.keys).agg(
        F.sum("count").alias("seen_requests"),
        F.sum("latency_ms").alias("latency_ms"),
        F.max("latency_max_ms").alias("max_ms"),
        F.array(*[F.coalesce(F.sum(f"b{bucket}"), F.lit(0)) for bucket in range(BUCKETS)]).alias("buckets"),
        *[F.sum(F.when(is_it, F.col("latency_ms"))).alias(f"seen_{name}_ms") for name, is_it in apart],
        *[F.sum(F.when(is_it, number)).alias(f"seen_{name}_count") for name, is_it in apart],
        *[F.max(F.when(is_it, F.col("latency_max_ms"))).alias(f"seen_{name}_max_ms") for name, is_it in apart],
        F.sum("throttled").alias("seen_throttled"),
        F.sum("throttle_ms").alias("throttle_time_ms"),
        F.sum(failed("count")).alias("seen_errors"),
        F.sum(F.when(F.col("error").isin(*retriable), F.col("count"))).alias("seen_retriable"),
        F.sum(F.when(F.col("outcome").isin(*CUT_OFF), F.col("count"))).alias("seen_cut_off"),
    )


def seen_connections(connections: DataFrame) -> DataFrame:
    """Count closed connections by client. The client of a connection is unknown when it opens."""
    closed = connections.where(F.col("action") == "close")
    return closed.groupBy("dt", *CLIENT_METRICS_PARTIAL.keys).agg(F.count(F.lit(1)).alias("seen_connections"))


def client_metrics_combine(partials: DataFrame) -> DataFrame:
    """Merge the days, one row per client with metrics."""
    said = CLIENT_METRICS_PARTIAL.merged(partials).where(F.col("pushes") > 0).select("*", timed())
    counts = ("seen_connections", "seen_requests", "seen_throttled", "seen_errors", "seen_retriable", "seen_cut_off")
    rated = said.select(
        *CLIENT_METRICS_PARTIAL.keys,
        *("first_seen", "last_seen", "pushes"),
        F.hll_sketch_estimate("instances").alias("instances"),
        F.col("connections").try_cast("bigint").alias("connections"),
        *[ratio(f"{name}_ms", f"{name}_count").alias(f"{name}_ms") for name in SAID],
        *[f"{name}_max_ms" for name in SAID],
        ratio("latency_ms", "timed").alias("seen_mean_ms"),
        *[percentile(part).alias(name) for name, part in _PERCENTILES.items()],
        F.col("max_ms").alias("seen_max_ms"),
        *[ratio(f"seen_{name}_ms", f"seen_{name}_count").alias(f"seen_{name}_ms") for name in SEEN],
        *[f"seen_{name}_max_ms" for name in SEEN],
        ratio("throttle_time_ms", "seen_throttled").alias("seen_throttle_ms"),
        *[F.coalesce(name, F.lit(0)).alias(name) for name in counts],
    )
    return rated.select("*", client_findings().alias("findings"))


_PERCENTILES = {"seen_p50_ms": 0.5, "seen_p95_ms": 0.95, "seen_p99_ms": 0.99}


def client_findings() -> Column:
    # a producer's mean covers all its requests, so a few slow requests of other APIs than Produce may raise it
    produce = F.when(F.col("seen_produce_ms").isNotNull(), F.greatest("seen_produce_ms", "seen_mean_ms"))
    slow = _farther(F.col("producer_request_ms"), produce) | _farther(F.col("fetch_ms"), F.col("seen_fetch_ms"))
    return F.array_compact(F.array(F.when(slow, F.lit("slow before kproxy"))))


def _farther(said: Column, seen: Column) -> Column:
    """Return true if a client's latency exceeds kproxy's so far that most of it is spent between them."""
    return F.coalesce((said > seen * FARTHER_TIMES) & (said > seen + FARTHER_MS), F.lit(False))


CLIENT_METRICS = AnswerTransforms(CLIENT_METRICS_PARTIAL, client_metrics_daily, client_metrics_combine)
