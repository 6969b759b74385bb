"""Answers on topics: traffic, producers, consumers, dormant clients, unused topics, and partition skew.

The last two merge by the broker's name, which identifies a topic, and keep the names that clients use. An answer has a
row for each of these names, with the same numbers.

`unused_topics` joins the topics of topology events with the writes and reads through kproxy. Traffic of clients that
connect to brokers directly is missing, so their topics look unused. Topology events have no names of clients. A topic
without traffic therefore has the broker's name in `topic`, unless clients use that name for another topic.

`partition_skew` keeps sums per partition, and computes the mean, the largest and the spread per topic. Partitions
without writes count: their number is that of the topology, otherwise one more than the highest number seen.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F

from .aggregates import (
    EVER,
    FIRST,
    LARGEST,
    LAST,
    LATEST,
    LATEST_TEXT,
    NAMES,
    SKETCH,
    TOTAL,
    WHO,
    AnswerTransforms,
    Bases,
    Partial,
    failed,
    first_names,
    latest,
    names_of,
    sketch_of,
    stored,
    unconfirmed,
    went_well,
)

TOLD_WITHIN = "5 minutes"
"""The topics of one state of a cluster may be in several events, of several proxies, within this time."""

UNUSED_TOPICS_PARTIAL = Partial(
    keys=("cluster", "broker_topic"),
    measures={
        "names": NAMES,
        "last_told": LAST,
        "latest_id": LATEST_TEXT,
        "latest_partitions": LATEST,
        "internal": EVER,
        "first_told": FIRST,
        "last_written": LAST,
        "last_read": LAST,
        "records_written": TOTAL,
        "records_read": TOTAL,
    },
)


def unused_topics_daily(bases: Bases) -> DataFrame:
    """Merge each topic's topology events with its writes and reads."""
    written = bases.writes.where(F.col("error").isNull()).select(
        "dt",
        "cluster",
        "topic",
        "broker_topic",
        F.col("last_seen").alias("last_written"),
        F.col("records").alias("records_written"),
    )
    read = bases.reads.where(F.col("error").isNull()).select(
        "dt",
        "cluster",
        "topic",
        "broker_topic",
        F.col("last_seen").alias("last_read"),
        F.col("records").alias("records_read"),
    )
    everything = (
        topology_topics(bases.topology)
        .unionByName(written, allowMissingColumns=True)
        .unionByName(read, allowMissingColumns=True)
    )
    summed = (
        everything.where(F.col("broker_topic").isNotNull())
        .groupBy("dt", "cluster", "broker_topic")
        .agg(
            names_of("topic").alias("names"),
            F.max("time").alias("last_told"),
            latest("time", "topic_id").alias("latest_id"),
            latest("time", "partitions").alias("latest_partitions"),
            F.max("internal").alias("internal"),
            F.min("time").alias("first_told"),
            F.max("last_written").alias("last_written"),
            F.max("last_read").alias("last_read"),
            F.sum("records_written").alias("records_written"),
            F.sum("records_read").alias("records_read"),
        )
    )
    return UNUSED_TOPICS_PARTIAL.select(summed)


def topology_topics(topology: DataFrame) -> DataFrame:
    """Return one row per topic and event: dt, cluster, time, broker_topic, topic_id, partitions, internal."""
    exploded = topology.select("dt", "cluster", "time", F.explode("topics").alias("one"))
    name = F.col("one.topic").alias("broker_topic")
    return exploded.select("dt", "cluster", "time", name, "one.topic_id", "one.partitions", "one.internal")


def with_client_names(topics: DataFrame) -> DataFrame:
    """Return a row for each client's name of a topic, as `topic`, in place of `names`.

    A topic without names has the broker's name, or null if clients of the cluster use that name for another topic.
    """
    named = topics.withColumn("topic", F.explode_outer("names")).drop("names")
    taken = named.where(F.col("topic") != F.col("broker_topic")).select(
        F.col("cluster").alias("of_cluster"), F.col("topic").alias("taken")
    )
    own = named["cluster"].eqNullSafe(taken["of_cluster"]) & (named["broker_topic"] == taken["taken"])
    beside = named.join(F.broadcast(taken.distinct()), own, how="left")
    unused_name = F.when(F.col("taken").isNull(), F.col("broker_topic"))
    return beside.withColumn("topic", F.coalesce("topic", unused_name)).drop("of_cluster", "taken")


def unused_topics_combine(partials: DataFrame) -> DataFrame:
    """Return the verdict on each topic that was reported or used. The last state of a cluster is small, so it is
    broadcast."""
    topics = with_client_names(UNUSED_TOPICS_PARTIAL.merged(partials))
    states = topics.groupBy("cluster").agg(F.max("last_told").alias("state"))
    state = states.select(F.col("cluster").alias("of_cluster"), "state")
    known = F.coalesce(F.col("last_told") >= F.col("state") - F.expr(f"INTERVAL {TOLD_WITHIN}"), F.lit(False))
    verdict = (
        F.when(F.col("internal"), "internal")
        .when(F.col("last_told").isNotNull() & ~known, "gone")
        .when(F.col("last_written").isNull() & F.col("last_read").isNull(), "unused")
        .when(F.col("last_read").isNull(), "never read")
        .when(F.col("last_written").isNull(), "never written")
        .otherwise("in use")
    )
    beside = topics.join(F.broadcast(state), topics["cluster"].eqNullSafe(state["of_cluster"]), how="left")
    return beside.select(
        "cluster",
        "topic",
        "broker_topic",
        F.col("latest_id.value").alias("topic_id"),
        F.col("latest_partitions.value").alias("partitions"),
        F.coalesce("internal", F.lit(False)).alias("internal"),
        known.alias("known"),
        "last_written",
        "last_read",
        F.coalesce("records_written", F.lit(0)).alias("records_written"),
        F.coalesce("records_read", F.lit(0)).alias("records_read"),
        verdict.alias("verdict"),
    )


UNUSED_TOPICS = AnswerTransforms(UNUSED_TOPICS_PARTIAL, unused_topics_daily, unused_topics_combine)


PARTITION_SKEW_PARTIAL = Partial(
    keys=("cluster", "broker_topic", "partition"),
    measures={
        "names": NAMES,
        "records": TOTAL,
        "bytes": TOTAL,
        "records_read": TOTAL,
        "bytes_read": TOTAL,
        "partitions": LARGEST,
    },
)
_SKEW_AMOUNTS = ("records", "bytes", "records_read", "bytes_read")


def partition_skew_daily(bases: Bases) -> DataFrame:
    """Sum by partition, under the broker's names. Rows without a partition have the number of a topic's partitions."""
    names = names_of("topic").alias("names")
    written = _by_partition(bases.writes).agg(
        names, F.sum(went_well("records")).alias("records"), F.sum(went_well("bytes")).alias("bytes")
    )
    read = _by_partition(bases.reads).agg(
        names, F.sum(went_well("records")).alias("records_read"), F.sum(went_well("bytes")).alias("bytes_read")
    )
    topology = topology_topics(bases.topology)
    sizes = topology.groupBy("dt", "cluster", "broker_topic").agg(F.max("partitions").alias("partitions"))
    return PARTITION_SKEW_PARTIAL.gathered(written, read, sizes)


def _by_partition(totals: DataFrame) -> GroupedData:
    known = totals.where(F.col("broker_topic").isNotNull() & F.col("partition").isNotNull())
    return known.groupBy("dt", "cluster", "broker_topic", "partition")


def partition_skew_combine(partials: DataFrame) -> DataFrame:
    """Compute the skew, one row per topic that was written to or read."""
    merged = PARTITION_SKEW_PARTIAL.merged(partials)
    topics = merged.groupBy("cluster", "broker_topic").agg(
        first_names(F.flatten(F.collect_set("names"))).alias("names"),
        F.greatest(F.max("partitions"), F.max("partition") + 1).alias("partitions"),
        F.count("partition").alias("seen"),
        *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _SKEW_AMOUNTS],
        *[F.max(name).alias(f"{name}_max") for name in _SKEW_AMOUNTS],
        *[F.sum(F.col(name).cast("double") * F.col(name)).alias(f"{name}_squares") for name in _SKEW_AMOUNTS],
        F.max(F.when(F.col("records").isNotNull(), F.struct("records", "partition"))).alias("largest"),
    )
    used = with_client_names(topics.where(F.col("seen") > 0))
    return used.select(
        "cluster",
        "topic",
        "broker_topic",
        "partitions",
        *("records", "bytes"),
        F.col("largest.partition").alias("largest_partition"),
        F.col("largest.records").alias("largest_records"),
        *[max_to_mean(name).alias(f"{name}_max_to_mean") for name in ("records", "bytes")],
        *[variation(name).alias(f"{name}_variation") for name in ("records", "bytes")],
        *("records_read", "bytes_read"),
        max_to_mean("records_read").alias("records_read_max_to_mean"),
    )


def max_to_mean(name: str) -> Column:
    """Return the largest partition's share divided by an even share; 1 if all are equal; null if all are empty."""
    return F.try_divide(F.col(f"{name}_max").cast("double") * F.col("partitions"), F.col(name))


def variation(name: str) -> Column:
    """Return the standard deviation divided by the mean, over all partitions. Rounding cannot make the variance
    negative."""
    mean = F.col(name) / F.col("partitions")
    variance = F.greatest(F.col(f"{name}_squares") / F.col("partitions") - mean * mean, F.lit(0.0))
    return F.try_divide(F.sqrt(variance), mean)


PARTITION_SKEW = AnswerTransforms(PARTITION_SKEW_PARTIAL, partition_skew_daily, partition_skew_combine)


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


TOPIC_PRODUCERS_PARTIAL = Partial(
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


def topic_producers_daily(bases: Bases) -> DataFrame:
    """Sum the writes that a broker stored; a refused partition is one error."""
    written = bases.writes.groupBy("dt", *TOPIC_PRODUCERS_PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("requests"),
        F.sum(stored("records")).alias("records"),
        F.sum(stored("bytes")).alias("bytes"),
        F.sum(unconfirmed("records")).alias("unconfirmed_records"),
        F.sum(failed("count")).alias("errors"),
    )
    return TOPIC_PRODUCERS_PARTIAL.select(written)


def topic_producers_combine(partials: DataFrame) -> DataFrame:
    """Merge the days, one row per topic and client."""
    return TOPIC_PRODUCERS_PARTIAL.merged(partials).fillna(0, ["records", "bytes", "unconfirmed_records", "errors"])


TOPIC_PRODUCERS = AnswerTransforms(TOPIC_PRODUCERS_PARTIAL, topic_producers_daily, topic_producers_combine)


TOPIC_CONSUMERS_PARTIAL = Partial(
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


def topic_consumers_daily(bases: Bases) -> DataFrame:
    """Sum reads. A partition with an error counts as one error without data."""
    read = bases.reads.groupBy("dt", *TOPIC_CONSUMERS_PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("requests"),
        F.sum("empty").alias("empty"),
        F.sum(went_well("records")).alias("records"),
        F.sum(went_well("bytes")).alias("bytes"),
        F.sum(failed("count")).alias("errors"),
    )
    return TOPIC_CONSUMERS_PARTIAL.select(read)


def topic_consumers_combine(partials: DataFrame) -> DataFrame:
    """Merge the days, one row per topic and client."""
    return TOPIC_CONSUMERS_PARTIAL.merged(partials).fillna(0, ["empty", "records", "bytes", "errors"])


TOPIC_CONSUMERS = AnswerTransforms(TOPIC_CONSUMERS_PARTIAL, topic_consumers_daily, topic_consumers_combine)


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
