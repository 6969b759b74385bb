"""Answer: what went wrong, and who was refused.

Strategy: three kinds of rows, which must not be added up together. A request that ended badly (its error is the one at
the top of the response, or the first in it); a partition that was answered with an error; a connection that failed to
authenticate. A request with five bad partitions is one row of the first kind and five of the second.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import Bases
from kproxy.pipeline.transforms.gold.partial import FIRST, LAST, TOTAL, Partial

PARTIAL = Partial(
    keys=(
        *("cluster", "what", "kind", "api", "error", "answered_by"),
        *("client_id", "principal", "client_address", "topic"),
    ),
    measures={"first_seen": FIRST, "last_seen": LAST, "count": TOTAL},
)

AUTHENTICATION = ("SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE", "SECURITY_DISABLED")
CUT_OFF = ("unanswered", "closed")
"""Outcomes that are told as errors; in lower case, they are none of the protocol's."""
_ROW = ("dt", "cluster", "client_id", "principal", "client_address", "first_seen", "last_seen", "count", "error")


def daily(bases: Bases) -> DataFrame:
    """Sum the errors of a day, one row per kind, error, client and topic."""
    rows = (
        requests(bases.requests)
        .unionByName(partitions(bases.writes), allowMissingColumns=True)
        .unionByName(partitions(bases.reads), allowMissingColumns=True)
        .unionByName(commits(bases.commits), allowMissingColumns=True)
        .unionByName(connections(bases.connections), allowMissingColumns=True)
    )
    summed = rows.groupBy("dt", *[key for key in PARTIAL.keys if key != "kind"]).agg(
        F.min("first_seen").alias("first_seen"), F.max("last_seen").alias("last_seen"), F.sum("count").alias("count")
    )
    return PARTIAL.select(summed.select("*", kind().alias("kind")))


def kind() -> Column:
    """Return the kind of an error by its name: authentication, authorization, cut off or other."""
    error = F.col("error")
    return (
        F.when((F.col("what") == "connection") | error.isin(*AUTHENTICATION), "authentication")
        .when(error.endswith("AUTHORIZATION_FAILED"), "authorization")
        .when(error.isin(*CUT_OFF), "cut off")
        .otherwise("other")
    )


def requests(totals: DataFrame) -> DataFrame:
    """Return the requests that ended in an error, or without a response."""
    cut_off = F.when(F.col("outcome").isin(*CUT_OFF), F.col("outcome"))
    named = totals.select("*", F.coalesce("error", cut_off).alias("told")).drop("error")
    bad = named.where(F.col("told").isNotNull()).withColumnRenamed("told", "error")
    return bad.select(*_ROW, F.lit("request").alias("what"), "api", F.col("error_by").alias("answered_by"))


def partitions(totals: DataFrame) -> DataFrame:
    """Return the partitions written or read that were answered with an error."""
    bad = totals.where(F.col("error").isNotNull())
    by = F.col("error_by").alias("answered_by")
    return bad.select(*_ROW, F.lit("partition").alias("what"), "api", "topic", by)


def commits(rows: DataFrame) -> DataFrame:
    """Return the partitions whose offset was not taken."""
    bad = rows.where(F.col("error").isNotNull())
    timed = bad.select(
        "*", F.lit(1).alias("count"), *[F.col("time").alias(name) for name in ("first_seen", "last_seen")]
    )
    by = F.coalesce("error_by", F.lit("broker")).alias("answered_by")
    return timed.select(*_ROW, F.lit("partition").alias("what"), "api", "topic", by)


def connections(rows: DataFrame) -> DataFrame:
    """Return the connections that did not get through authentication."""
    bad = rows.where((F.col("what") == "authentication") & F.col("error").isNotNull()).drop("what")
    timed = bad.select(
        "*", F.lit(1).alias("count"), *[F.col("time").alias(name) for name in ("first_seen", "last_seen")]
    )
    return timed.select(*_ROW, F.lit("connection").alias("what"))


def combine(partials: DataFrame) -> DataFrame:
    """Merge the days, one row per kind, error, client and topic."""
    return PARTIAL.merged(partials)
