"""Answers on use: traffic, producers and consumers of topics, and dormant clients."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .aggregates import (
    FIRST,
    LAST,
    LATEST_TEXT,
    SKETCH,
    TOTAL,
    WHO,
    AnswerTransforms,
    Bases,
    Partial,
    failed,
    latest,
    sketch_of,
    stored,
    unconfirmed,
    went_well,
)

TRAFFIC_PARTIAL = Partial(
    keys=("cluster", "minute", "api"),
    measures={"requests": TOTAL, "errors": TOTAL, "request_bytes": TOTAL, "response_bytes": TOTAL},
)


def traffic_daily(bases: Bases) -> DataFrame:
    """Sum by minute and API. Minutes are in UTC, like days.

    A summary counts for the minute of its first request.
    """
    counted = bases.minutes.groupBy("dt", *TRAFFIC_PARTIAL.keys).agg(
        F.sum("count").alias("requests"),
        F.sum("errors").alias("errors"),
        F.sum("request_bytes").alias("request_bytes"),
        F.sum("response_bytes").alias("response_bytes"),
    )
    return TRAFFIC_PARTIAL.select(counted)


def traffic_combine(partials: DataFrame) -> DataFrame:
    """Sum the minutes, one row per hour and API."""
    by_hour = partials.groupBy("cluster", F.date_trunc("hour", "minute").alias("hour"), "api")
    summed = by_hour.agg(*[F.sum(name).alias(name) for name in TRAFFIC_PARTIAL.measures])
    return summed.fillna(0, ["errors", "request_bytes", "response_bytes"])


TRAFFIC = AnswerTransforms(TRAFFIC_PARTIAL, traffic_daily, traffic_combine)


WHO_WRITES_PARTIAL = Partial(
    keys=("cluster", "topic", "broker_topic", *WHO[1:]),
    measures={
        "first_seen": FIRST,
        "last_seen": LAST,
        "requests": TOTAL,
        "records": TOTAL,
        "bytes": TOTAL,
        "unconfirmed_records": TOTAL,
        "errors": TOTAL,
    },
)


def who_writes_daily(bases: Bases) -> DataFrame:
    """Sum the writes that a broker stored; a refused partition is one error."""
    written = bases.writes.groupBy("dt", *WHO_WRITES_PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("requests"),
        F.sum(stored("records")).alias("records"),
        F.sum(stored("bytes")).alias("bytes"),
        F.sum(unconfirmed("records")).alias("unconfirmed_records"),
        F.sum(failed("count")).alias("errors"),
    )
    return WHO_WRITES_PARTIAL.select(written)


def who_writes_combine(partials: DataFrame) -> DataFrame:
    """Merge the days, one row per topic and client."""
    return WHO_WRITES_PARTIAL.merged(partials).fillna(0, ["records", "bytes", "unconfirmed_records", "errors"])


WHO_WRITES = AnswerTransforms(WHO_WRITES_PARTIAL, who_writes_daily, who_writes_combine)


WHO_READS_PARTIAL = Partial(
    keys=("cluster", "topic", "broker_topic", *WHO[1:]),
    measures={
        "first_seen": FIRST,
        "last_seen": LAST,
        "requests": TOTAL,
        "empty": TOTAL,
        "records": TOTAL,
        "bytes": TOTAL,
        "errors": TOTAL,
    },
)


def who_reads_daily(bases: Bases) -> DataFrame:
    """Sum reads. A partition with an error counts as one error without data."""
    read = bases.reads.groupBy("dt", *WHO_READS_PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("requests"),
        F.sum("empty").alias("empty"),
        F.sum(went_well("records")).alias("records"),
        F.sum(went_well("bytes")).alias("bytes"),
        F.sum(failed("count")).alias("errors"),
    )
    return WHO_READS_PARTIAL.select(read)


def who_reads_combine(partials: DataFrame) -> DataFrame:
    """Merge the days, one row per topic and client."""
    return WHO_READS_PARTIAL.merged(partials).fillna(0, ["empty", "records", "bytes", "errors"])


WHO_READS = AnswerTransforms(WHO_READS_PARTIAL, who_reads_daily, who_reads_combine)


DORMANT_DAYS = 7
"""Minimum idle days of a dormant client; weekly jobs are not dormant."""
GREETINGS = ("ApiVersions", "SaslHandshake", "SaslAuthenticate")
"""Sent before authentication, so without a principal, and also by port scans."""

DORMANT_CLIENTS_PARTIAL = Partial(
    keys=("cluster", "client_id", "principal"),
    measures={
        "first_seen": FIRST,
        "last_seen": LAST,
        "requests": TOTAL,
        "addresses": SKETCH,
        "latest_address": LATEST_TEXT,
        "latest_software": LATEST_TEXT,
    },
)


def dormant_clients_daily(bases: Bases) -> DataFrame:
    """Sum by client id and principal, with a sketch of addresses, since clients in containers change theirs."""
    software = F.concat_ws("/", "software_name", "software_version")
    at_work = bases.requests.where(~F.col("api").isin(*GREETINGS))
    named = at_work.select("*", F.when(software != "", software).alias("software"))
    clients = named.groupBy("dt", *DORMANT_CLIENTS_PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("requests"),
        sketch_of("client_address").alias("addresses"),
        latest("last_seen", "client_address").alias("latest_address"),
        latest("last_seen", "software").alias("latest_software"),
    )
    return DORMANT_CLIENTS_PARTIAL.select(clients)


def dormant_clients_combine(partials: DataFrame) -> DataFrame:
    """Rate each client relative to the last request of all clients, not to the clock.

    So the answer does not depend on when it is made. That row is broadcast.
    """
    clients = DORMANT_CLIENTS_PARTIAL.merged(partials)
    now = clients.agg(F.max("last_seen").alias("now"))
    beside = clients.crossJoin(F.broadcast(now))
    return beside.select(
        *DORMANT_CLIENTS_PARTIAL.keys,
        F.col("latest_software.value").alias("software"),
        F.col("latest_address.value").alias("client_address"),
        F.hll_sketch_estimate("addresses").alias("addresses"),
        "first_seen",
        "last_seen",
        "requests",
        _days_idle().alias("days_idle"),
        (_days_idle() >= DORMANT_DAYS).alias("dormant"),
    )


def _days_idle() -> Column:
    return F.floor((F.unix_timestamp("now") - F.unix_timestamp("last_seen")) / 86400)


DORMANT_CLIENTS = AnswerTransforms(DORMANT_CLIENTS_PARTIAL, dormant_clients_daily, dormant_clients_combine)
