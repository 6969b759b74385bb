"""Answer on what clients say of themselves (KIP-714), beside what kproxy saw of the same clients.

Strategy: instances of a client meet in sums. Of a mean that pushes told, the sum and how often it was told are kept; of
instance ids a sketch. What was seen is kept of all clients, since what they say may come on another day; clients that
say nothing are left out in the end. Numbers are the clients' own claims, up to 2^63 each, so none is cast unasked.
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
"""APIs whose latency is told apart: what clients measure is about these."""
PUSHING = ("GetTelemetrySubscriptions", "PushTelemetry")
"""APIs by which clients tell this; kproxy answers them at once, which says nothing of a client's work."""
MADE = ("producer_connection_creation_total", "consumer_connection_creation_total")
FARTHER_MS, FARTHER_TIMES = 10, 2
"""How much longer, in ms and as a factor, a client measures than kproxy where the way between them is slow."""

CLIENT_SAYS_PARTIAL = Partial(
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
"""`…_count`: how many pushes told a mean, or how many requests were timed."""


def client_says_daily(bases: Bases) -> DataFrame:
    """Sum what clients told, and their requests and connections, by client."""
    return CLIENT_SAYS_PARTIAL.gathered(
        told_by_clients(bases.telemetry), seen_requests(bases.requests), seen_connections(bases.connections)
    )


def told_by_clients(telemetry: DataFrame) -> DataFrame:
    """Sum the numbers of pushes by client, over all its instances."""
    means = [(name, F.col(f"{column}_avg")) for name, column in SAID.items()]
    created = reduce(add, [F.coalesce(name, F.lit(0.0)) for name in MADE])
    return telemetry.groupBy("dt", *CLIENT_SAYS_PARTIAL.keys).agg(
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
    """Sum the times and errors of requests by client, but for those by which clients push."""
    retriable = [error.name for error in all_codes() if error.retriable]
    number = reduce(add, [F.coalesce(f"b{bucket}", F.lit(0)) for bucket in range(BUCKETS)])
    apart = [(name, F.col("api").isin(*apis)) for name, apis in SEEN.items()]
    work = requests.where(F.col("api").isNull() | ~F.col("api").isin(*PUSHING))
    return work.groupBy("dt", *CLIENT_SAYS_PARTIAL.keys).agg(
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
    """Count the connections that closed by client: when one opens, its client has not said who it is."""
    closed = connections.where(F.col("what") == "close")
    return closed.groupBy("dt", *CLIENT_SAYS_PARTIAL.keys).agg(F.count(F.lit(1)).alias("seen_connections"))


def client_says_combine(partials: DataFrame) -> DataFrame:
    """Merge the days, one row per client that said something."""
    said = CLIENT_SAYS_PARTIAL.merged(partials).where(F.col("pushes") > 0).select("*", timed())
    counts = ("seen_connections", "seen_requests", "seen_throttled", "seen_errors", "seen_retriable", "seen_cut_off")
    rated = said.select(
        *CLIENT_SAYS_PARTIAL.keys,
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
    """Return the findings about a client as an array of words."""
    # a producer's own mean is that of all its requests, which a few slow ones that are no Produce may make large
    produce = F.when(F.col("seen_produce_ms").isNotNull(), F.greatest("seen_produce_ms", "seen_mean_ms"))
    slow = _farther(F.col("producer_request_ms"), produce) | _farther(F.col("fetch_ms"), F.col("seen_fetch_ms"))
    return F.array_compact(F.array(F.when(slow, F.lit("slow before kproxy"))))


def _farther(said: Column, seen: Column) -> Column:
    """Return true where a client measures so much more than kproxy that what is between them takes most of it."""
    return F.coalesce((said > seen * FARTHER_TIMES) & (said > seen + FARTHER_MS), F.lit(False))


CLIENT_SAYS = AnswerTransforms(CLIENT_SAYS_PARTIAL, client_says_daily, client_says_combine)
