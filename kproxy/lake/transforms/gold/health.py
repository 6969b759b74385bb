"""Answers on health: latencies, errors, storms, and effects of rules.

`latency`, `client_latency`: percentiles come from merged histograms. The value is the upper bound of the percentile's
bucket, or the maximum of all times if that is lower. So no percentile is above the maximum. The true percentile is
above the bound of the bucket before.

`errors_and_denials` has three kinds of rows, which must not be added up. First, failed requests, with the error at the
top of the response or the first error in it. Second, partitions with an error. Third, connections that failed to
authenticate. A request with five failed partitions is one row of the first kind and five of the second.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kproxy.record.events.schema import LATENCY_BOUNDS_MS

from .aggregates import (
    AMOUNT,
    BUCKETS,
    FIRST,
    HISTOGRAM,
    LAST,
    LATEST_TEXT,
    LONGEST,
    NAMES,
    PEAK,
    SKETCH,
    STORM_APIS,
    TOTAL,
    AnswerTransforms,
    Bases,
    Partial,
    latest,
    minute,
    names_of,
    ratio,
    sketch_of,
)

LATENCY_MEASURES = {
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
}


def latency_by(*keys: str) -> AnswerTransforms:
    """Return the transforms of latencies and their parts by these keys, which are columns of the requests."""
    partial = Partial(keys, LATENCY_MEASURES)
    return AnswerTransforms(
        partial, lambda bases: latency_daily(bases, partial), lambda partials: latency_combine(partials, partial)
    )


def latency_daily(bases: Bases, partial: Partial) -> DataFrame:
    """Sum times and a histogram; `broker_count` is the number of requests with `broker_ms`."""
    times = bases.requests.groupBy("dt", *partial.keys).agg(
        F.sum("count").alias("requests"),
        F.sum("latency_ms").alias("latency_ms"),
        F.max("latency_max_ms").alias("max_ms"),
        F.array(*[F.coalesce(F.sum(f"b{number}"), F.lit(0)) for number in range(BUCKETS)]).alias("buckets"),
        *[F.sum(name).alias(name) for name in ("broker_ms", "broker_count", "rule_ms", "wait_ms")],
        *[F.sum(name).alias(name) for name in ("throttle_ms", "throttled")],
    )
    return partial.select(times)


def latency_combine(partials: DataFrame, partial: Partial) -> DataFrame:
    """Compute means and percentiles over the timed requests, which are those in the histogram."""
    merged = partial.merged(partials)
    return merged.select("*", timed()).select(
        *partial.keys,
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


def timed() -> Column:
    """Return the number of values in `buckets`, as `timed`."""
    return F.aggregate("buckets", F.lit(0).cast("bigint"), lambda total, one: total + one).alias("timed")


def percentile(part: float) -> Column:
    """Return an upper bound in ms for this part of the `timed` values in `buckets`; at most `max_ms`."""
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


LATENCY = latency_by("cluster", "api", "node")
CLIENT_LATENCY = latency_by("cluster", "client_id", "principal", "software_name", "software_version", "api")


ERRORS_AND_DENIALS_PARTIAL = Partial(
    keys=(
        *("cluster", "scope", "kind", "api", "error", "responder"),
        *("client_id", "principal", "client_address", "topic"),
    ),
    measures={"first_seen": FIRST, "last_seen": LAST, "count": TOTAL},
)

AUTHENTICATION = ("SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE", "SECURITY_DISABLED")
CUT_OFF = ("unanswered", "closed")
"""Outcomes that count as errors; lower case, unlike the protocol's errors."""
_ERROR_ROW = ("dt", "cluster", "client_id", "principal", "client_address", "first_seen", "last_seen", "count", "error")


def errors_and_denials_daily(bases: Bases) -> DataFrame:
    """Sum the errors of a day, one row per kind, error, client and topic."""
    rows = (
        failed_requests(bases.requests)
        .unionByName(failed_partitions(bases.writes), allowMissingColumns=True)
        .unionByName(failed_partitions(bases.reads), allowMissingColumns=True)
        .unionByName(failed_commits(bases.commits), allowMissingColumns=True)
        .unionByName(failed_connections(bases.connections), allowMissingColumns=True)
    )
    summed = rows.groupBy("dt", *[key for key in ERRORS_AND_DENIALS_PARTIAL.keys if key != "kind"]).agg(
        F.min("first_seen").alias("first_seen"), F.max("last_seen").alias("last_seen"), F.sum("count").alias("count")
    )
    return ERRORS_AND_DENIALS_PARTIAL.select(summed.select("*", error_kind().alias("kind")))


def error_kind() -> Column:
    """Return the kind of an error by its name: authentication, authorization, cut off or other."""
    error = F.col("error")
    return (
        F.when((F.col("scope") == "connection") | error.isin(*AUTHENTICATION), "authentication")
        .when(error.endswith("AUTHORIZATION_FAILED"), "authorization")
        .when(error.isin(*CUT_OFF), "cut off")
        .otherwise("other")
    )


def failed_requests(totals: DataFrame) -> DataFrame:
    """Return the requests with an error, or without a response."""
    cut_off = F.when(F.col("outcome").isin(*CUT_OFF), F.col("outcome"))
    named = totals.select("*", F.coalesce("error", cut_off).alias("told")).drop("error")
    bad = named.where(F.col("told").isNotNull()).withColumnRenamed("told", "error")
    return bad.select(*_ERROR_ROW, F.lit("request").alias("scope"), "api", F.col("error_by").alias("responder"))


def failed_partitions(totals: DataFrame) -> DataFrame:
    bad = totals.where(F.col("error").isNotNull())
    by = F.col("error_by").alias("responder")
    return bad.select(*_ERROR_ROW, F.lit("partition").alias("scope"), "api", "topic", by)


def failed_commits(rows: DataFrame) -> DataFrame:
    bad = rows.where(F.col("error").isNotNull())
    timed = bad.select(
        "*", F.lit(1).alias("count"), *[F.col("time").alias(name) for name in ("first_seen", "last_seen")]
    )
    by = F.coalesce("error_by", F.lit("broker")).alias("responder")
    return timed.select(*_ERROR_ROW, F.lit("partition").alias("scope"), "api", "topic", by)


def failed_connections(rows: DataFrame) -> DataFrame:
    bad = rows.where((F.col("action") == "authentication") & F.col("error").isNotNull()).drop("action")
    timed = bad.select(
        "*", F.lit(1).alias("count"), *[F.col("time").alias(name) for name in ("first_seen", "last_seen")]
    )
    return timed.select(*_ERROR_ROW, F.lit("connection").alias("scope"))


def errors_and_denials_combine(partials: DataFrame) -> DataFrame:
    """Merge the days, one row per kind, error, client and topic."""
    return ERRORS_AND_DENIALS_PARTIAL.merged(partials)


ERRORS_AND_DENIALS = AnswerTransforms(ERRORS_AND_DENIALS_PARTIAL, errors_and_denials_daily, errors_and_denials_combine)


STORMS_PARTIAL = Partial(
    keys=("cluster", "client_address", "activity"), measures={"total": TOTAL, "minutes": TOTAL, "peak": PEAK}
)

STORM = {"connections": 60, "Metadata": 300, "ApiVersions": 300, "FindCoordinator": 300}
"""Counts in a minute from one address that are a storm. A running client needs less than one connection or five
requests a second. A host that starts hundreds of clients at once is a storm as well."""


def storms_daily(bases: Bases) -> DataFrame:
    """Count by address and kind: events, minutes, and the worst minute."""
    opened = bases.connections.where(F.col("action") == "open").drop("action")
    connections = opened.groupBy(
        "dt", "cluster", "client_address", F.lit("connections").alias("activity"), minute().alias("minute")
    ).agg(F.count(F.lit(1)).alias("count"))
    starting = bases.minutes.where(F.col("api").isin(*STORM_APIS))
    requests = starting.select("dt", "cluster", "client_address", F.col("api").alias("activity"), "minute", "count")
    by_minute = connections.unionByName(requests)
    summed = by_minute.groupBy("dt", *STORMS_PARTIAL.keys).agg(
        F.sum("count").alias("total"),
        F.count(F.lit(1)).alias("minutes"),
        F.max(F.struct(F.col("count").alias("value"), F.col("minute").alias("time"))).alias("peak"),
    )
    return STORMS_PARTIAL.select(summed)


def storms_combine(partials: DataFrame) -> DataFrame:
    """Filter storms, one row per address and kind."""
    merged = STORMS_PARTIAL.merged(partials)
    return merged.select(
        *STORMS_PARTIAL.keys,
        "total",
        "minutes",
        ratio("total", "minutes").alias("mean_per_minute"),
        F.col("peak.value").alias("peak_per_minute"),
        F.col("peak.time").alias("peak_at"),
        (F.col("peak.value") >= storm_threshold()).alias("storm"),
    )


def storm_threshold() -> Column:
    """Return the count per minute that is a storm of this kind."""
    entries = [F.lit(part) for entry in STORM.items() for part in entry]
    return F.element_at(F.create_map(*entries), F.col("activity"))


STORMS = AnswerTransforms(STORMS_PARTIAL, storms_daily, storms_combine)


THROTTLED_PARTIAL = Partial(
    keys=("cluster", "client_id", "principal", "client_address", "api", "throttle_rule"),
    measures={
        "first_seen": FIRST,
        "last_seen": LAST,
        "requests": TOTAL,
        "throttled": TOTAL,
        "throttle_ms": AMOUNT,
        "mute_ms": AMOUNT,
        "held_ms": AMOUNT,
    },
)


def throttled_daily(bases: Bases) -> DataFrame:
    """Sum the requests that a rule throttled, or that have a throttle time, by client, API and rule."""
    rule = F.col("throttle_rule").isNotNull()
    found = bases.requests.where(rule | (F.col("throttled") > 0)).groupBy("dt", *THROTTLED_PARTIAL.keys)
    summed = found.agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum(F.when(rule, F.col("count")).otherwise(F.col("throttled"))).alias("requests"),
        F.sum("throttled").alias("throttled"),
        F.sum("throttle_ms").alias("throttle_ms"),
        F.sum("mute_ms").alias("mute_ms"),
        F.sum(F.when(rule, F.col("rule_ms"))).alias("held_ms"),
    )
    return THROTTLED_PARTIAL.select(summed)


def throttled_combine(partials: DataFrame) -> DataFrame:
    return THROTTLED_PARTIAL.merged(partials).select(
        *THROTTLED_PARTIAL.keys,
        "requests",
        F.coalesce("throttled", F.lit(0)).alias("throttled"),
        "throttle_ms",
        ratio("throttle_ms", "throttled").alias("mean_throttle_ms"),
        "mute_ms",
        "held_ms",
        "first_seen",
        "last_seen",
    )


THROTTLED = AnswerTransforms(THROTTLED_PARTIAL, throttled_daily, throttled_combine)


RULES_EFFECT_PARTIAL = Partial(
    keys=("rule", "day"),
    measures={
        "latest_kind": LATEST_TEXT,
        "first_seen": FIRST,
        "last_seen": LAST,
        "connections": TOTAL,
        "matched": TOTAL,
        "fired": TOTAL,
        "applied": TOTAL,
        "requests": TOTAL,
        "answered": TOTAL,
        "clients": SKETCH,
        "topics": SKETCH,
        "client_names": NAMES,
        "topic_names": NAMES,
    },
)


def rules_effect_daily(bases: Bases) -> DataFrame:
    """Sum counters of rules, their connections, and the recorded requests for which they fired.

    APIs with `summary` detail have no such requests.
    """
    return RULES_EFFECT_PARTIAL.gathered(
        rule_counters(bases.rules),
        bound_connections(bases.connections),
        ruled_totals(bases.ruled),
        ruled_topics(bases.ruled),
    )


def bound_connections(connections: DataFrame) -> DataFrame:
    opened = connections.where(F.col("action") == "open")
    bound = opened.select("dt", "time", F.explode("bound_rules").alias("bound")).select("dt", "time", "bound.*")
    return bound.groupBy("dt", F.col("dt").alias("day"), "rule").agg(
        latest("time", "kind").alias("latest_kind"),
        F.min("time").alias("first_seen"),
        F.max("time").alias("last_seen"),
        F.count(F.lit(1)).alias("connections"),
    )


def rule_counters(rules: DataFrame) -> DataFrame:
    fired = rules.where(F.col("action") == "fired")
    return fired.groupBy("dt", F.col("dt").alias("day"), "rule").agg(
        latest("time", "kind").alias("latest_kind"),
        F.min("time").alias("first_seen"),
        F.max("time").alias("last_seen"),
        *[F.sum(name).alias(name) for name in ("matched", "fired", "applied")],
    )


def ruled_totals(ruled: DataFrame) -> DataFrame:
    return ruled.groupBy("dt", F.col("dt").alias("day"), "rule").agg(
        F.min("time").alias("first_seen"),
        F.max("time").alias("last_seen"),
        F.sum("count").alias("requests"),
        F.sum(F.when(F.col("responder") == "kproxy", F.col("count"))).alias("answered"),
        sketch_of("client_id").alias("clients"),
        names_of("client_id").alias("client_names"),
    )


def ruled_topics(ruled: DataFrame) -> DataFrame:
    named = ruled.select("dt", "rule", F.explode("topics_named").alias("topic"))
    return named.groupBy("dt", F.col("dt").alias("day"), "rule").agg(
        sketch_of("topic").alias("topics"), names_of("topic").alias("topic_names")
    )


def rules_effect_combine(partials: DataFrame) -> DataFrame:
    """Merge the days, one row per rule and day."""
    merged = RULES_EFFECT_PARTIAL.merged(partials)
    counts = ("matched", "fired", "applied", "connections", "requests", "answered")
    return merged.select(
        "rule",
        "day",
        F.col("latest_kind.value").alias("kind"),
        "first_seen",
        "last_seen",
        *[F.coalesce(name, F.lit(0)).alias(name) for name in counts],
        *[F.hll_sketch_estimate(F.coalesce(name, F.lit(None))).alias(name) for name in ("clients", "topics")],
        *("client_names", "topic_names"),
    )


RULES_EFFECT = AnswerTransforms(RULES_EFFECT_PARTIAL, rules_effect_daily, rules_effect_combine)
