"""Answer: which clients there are, and which of them have gone silent."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import Bases
from kproxy.pipeline.transforms.gold.partial import (
    FIRST,
    LAST,
    LATEST_TEXT,
    SKETCH,
    TOTAL,
    Partial,
    latest,
    sketch_of,
)

DORMANT_DAYS = 7
"""A client that was silent for so long is called dormant: what runs once a week is not."""
GREETINGS = ("ApiVersions", "SaslHandshake", "SaslAuthenticate")
"""Sent before a client is authenticated, so without its principal, and by whatever only tries the port."""

PARTIAL = Partial(
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


def daily(bases: Bases) -> DataFrame:
    """Sum by client id and principal; of addresses a sketch, since clients in containers have a new one each time."""
    software = F.concat_ws("/", "software_name", "software_version")
    at_work = bases.requests.where(~F.col("api").isin(*GREETINGS))
    named = at_work.select("*", F.when(software != "", software).alias("software"))
    clients = named.groupBy("dt", *PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("requests"),
        sketch_of("client_address").alias("addresses"),
        latest("last_seen", "client_address").alias("latest_address"),
        latest("last_seen", "software").alias("latest_software"),
    )
    return PARTIAL.select(clients)


def combine(partials: DataFrame) -> DataFrame:
    """Rate each client as of the last request of all, not of the clock.

    So the answer is the same whenever it is made. That one row is broadcast.
    """
    clients = PARTIAL.merged(partials)
    now = clients.agg(F.max("last_seen").alias("now"))
    beside = clients.crossJoin(F.broadcast(now))
    return beside.select(
        *PARTIAL.keys,
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
