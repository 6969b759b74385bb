"""Answers on client versions and settings: versions that Kafka 4 lacks, producers, fetches.

`kafka4_readiness`: the versions of a client's requests are the best evidence. A client uses the highest version that it
shares with the broker. So on brokers of 2.1 or later, a version below Kafka 4's first one means that the client does
not support a higher one. Software name and version are used second, if the client sends them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kproxy.lake.tables import READ_APIS
from kproxy.protocol.table.releases import RELEASES, supported
from kproxy.protocol.table.schema import apis

from .aggregates import FIRST, LAST, NAMES, TOTAL, AnswerTransforms, Bases, Partial, names_of, ratio, went_well

OLDEST_SOFTWARE = {
    "apache-kafka-java": "2.1",
    "librdkafka": "1.8.2",
    "kafka-python": "2.0.2",
    "kafkajs": "1.15.0",
    "sarama": "1.30.1",
}
"""Releases that KIP-896 takes as its baseline; older ones may or may not work."""

KAFKA4_READINESS_PARTIAL = Partial(
    keys=("cluster", "client_id", "software_name", "software_version", "api", "version"),
    measures={"first_seen": FIRST, "last_seen": LAST, "requests": TOTAL, "principals": NAMES, "addresses": NAMES},
)


def kafka4_readiness_daily(bases: Bases) -> DataFrame:
    """Sum by client, software, API and version, with the first names of principals and addresses."""
    used = bases.requests.groupBy("dt", *KAFKA4_READINESS_PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("requests"),
        names_of("principal").alias("principals"),
        names_of("client_address").alias("addresses"),
    )
    return KAFKA4_READINESS_PARTIAL.select(used)


def kafka4_readiness_combine(partials: DataFrame) -> DataFrame:
    """Add `minimum`, the first version in Kafka 4, and a verdict."""
    used = KAFKA4_READINESS_PARTIAL.merged(partials)
    judged = used.select("*", minimum_of("api").alias("minimum"))
    known = F.col("api").isin(*first_versions())
    verdict = (
        F.when(known & F.col("minimum").isNull(), "breaks")
        .when(F.col("version") < F.col("minimum"), "breaks")
        .when(~known, "unknown api")
        .when(too_old(F.col("software_name"), F.col("software_version")), "old software")
        .when(F.col("software_name").isNull(), "unknown software")
        .otherwise("ready")
    )
    return judged.select("*", verdict.alias("verdict"))


def minimum_of(api: str) -> Column:
    """Return the first version of the API in Kafka 4; null for APIs that Kafka 4, or the table, does not have.

    The map has about eighty entries and is part of the plan: cheaper than a join.
    """
    entries = [F.lit(part) for name, first in first_versions().items() if first is not None for part in (name, first)]
    return F.try_element_at(F.create_map(*entries), F.col(api))


def first_versions() -> dict[str, int | None]:
    """Return by API the first version in brokers of the first 4.x release that has the API; None if no release has
    it."""
    first: dict[int, int] = {}
    for release in RELEASES:
        if release.startswith("4."):
            first = {key: versions[0] for key, versions in supported(release).items()} | first
    return {api.name: first.get(api.key) for api in apis()}


def too_old(name: Column, version: Column) -> Column:
    """Return true if the software is in `SOFTWARE` with an earlier version; false if either is null."""
    old = F.lit(False)
    for software, first in OLDEST_SOFTWARE.items():
        minimum = F.array(*[F.lit(int(number)) for number in first.split(".")])
        old = old | ((F.lower(name) == software) & (version_numbers(version) < minimum))
    return F.coalesce(old, F.lit(False))


def version_numbers(version: Column) -> Column:
    """Return the leading numbers of a version as an array, so Spark compares versions correctly: 3.10.1-rc2 is [3, 10,
    1]."""
    plain = F.regexp_extract(version, r"^[vV]?(\d{1,9}(?:\.\d{1,9})*)", 1)
    return F.when(plain != "", F.split(plain, r"\.").cast("array<int>"))


KAFKA4_READINESS = AnswerTransforms(KAFKA4_READINESS_PARTIAL, kafka4_readiness_daily, kafka4_readiness_combine)


PRODUCER = ("cluster", "client_id", "principal", "software_name", "software_version")
PRODUCER_HYGIENE_PARTIAL = Partial(
    keys=(*PRODUCER, "topic"),
    measures={
        "first_seen": FIRST,
        "last_seen": LAST,
        "writes": TOTAL,
        "acks_0": TOTAL,
        "acks_1": TOTAL,
        "idempotent": TOTAL,
        "told": TOTAL,
        "uncompressed": TOTAL,
        "codecs": NAMES,
        "records": TOTAL,
        "bytes": TOTAL,
        "batches": TOTAL,
        "produce_requests": TOTAL,
    },
)
"""`writes`: requests counted once per partition; `told`: those with decoded batches."""

TINY_BATCH = 1024
"""Mean batch size in bytes that is called tiny: a batch header is 61, and the default target is 16,384."""
HUGE_BATCH = 1_000_000
"""Mean batch size in bytes that is called huge: brokers accept about 1 MB by default (message.max.bytes)."""
ENOUGH_BATCHES = 100
"""Minimum number of batches for a rating of a producer's mean."""


def producer_hygiene_daily(bases: Bases) -> DataFrame:
    """Sum writes by client and topic; and, in rows without a topic, the number of requests by client."""
    return PRODUCER_HYGIENE_PARTIAL.gathered(producer_writes(bases.writes), produce_requests(bases.requests))


def producer_writes(totals: DataFrame) -> DataFrame:
    return totals.groupBy("dt", *PRODUCER_HYGIENE_PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("writes"),
        F.sum(F.when(F.col("acks") == 0, F.col("count"))).alias("acks_0"),
        F.sum(F.when(F.col("acks") == 1, F.col("count"))).alias("acks_1"),
        F.sum(F.when(F.col("idempotent"), F.col("count"))).alias("idempotent"),
        F.sum(F.when(F.col("codec").isNotNull(), F.col("count"))).alias("told"),
        F.sum(F.when(F.col("codec") == "none", F.col("count"))).alias("uncompressed"),
        names_of("codec").alias("codecs"),
        F.sum("records").alias("records"),
        F.sum("bytes").alias("bytes"),
        F.sum("batches").alias("batches"),
    )


def produce_requests(totals: DataFrame) -> DataFrame:
    """Count the Produce requests of each client."""
    produce = totals.where(F.col("api") == "Produce")
    return produce.groupBy("dt", *PRODUCER).agg(F.sum("count").alias("produce_requests"))


def producer_hygiene_combine(partials: DataFrame) -> DataFrame:
    """Rate producers, one row per client and topic. Records per request are per client, over all its topics."""
    client = Window.partitionBy(*PRODUCER)
    merged = PRODUCER_HYGIENE_PARTIAL.merged(partials)
    of_client = merged.select(
        "*",
        F.sum("records").over(client).alias("client_records"),
        F.sum("produce_requests").over(client).alias("client_requests"),
    )
    topics = of_client.where(F.col("writes").isNotNull()).fillna(0, ["acks_0", "acks_1", "idempotent", "uncompressed"])
    rated = topics.select(
        *PRODUCER_HYGIENE_PARTIAL.keys,
        *("first_seen", "last_seen", "writes", "records", "bytes", "batches", "codecs"),
        ratio("acks_0", "writes").alias("acks_0"),
        ratio("acks_1", "writes").alias("acks_1"),
        ratio("idempotent", "told").alias("idempotent"),
        ratio("uncompressed", "told").alias("uncompressed"),
        ratio("records", "batches").alias("batch_records"),
        ratio("bytes", "batches").alias("batch_bytes"),
        ratio("client_records", "client_requests").alias("records_per_request"),
    )
    return rated.select("*", producer_findings().alias("findings"))


def producer_findings() -> Column:
    """Return the findings for a producer as an array of words."""
    enough = F.col("batches") >= ENOUGH_BATCHES
    words = {
        "acks=0": F.col("acks_0") > 0,
        "acks=1": F.col("acks_1") > 0,
        "not idempotent": F.col("idempotent") < 1,
        "uncompressed": F.col("uncompressed") > 0.5,
        "tiny batches": enough & (F.col("batch_bytes") < TINY_BATCH),
        "huge batches": enough & (F.col("batch_bytes") > HUGE_BATCH),
    }
    return F.array_compact(F.array(*[F.when(found, F.lit(word)) for word, found in words.items()]))


PRODUCER_HYGIENE = AnswerTransforms(PRODUCER_HYGIENE_PARTIAL, producer_hygiene_daily, producer_hygiene_combine)


EMPTY_FETCHES_PARTIAL = Partial(
    keys=("cluster", "client_id", "principal", "software_name", "software_version"),
    measures={
        "first_seen": FIRST,
        "last_seen": LAST,
        "fetches": TOTAL,
        "empty": TOTAL,
        "records": TOTAL,
        "bytes": TOTAL,
    },
)

MOSTLY_EMPTY = 0.9
"""Minimum ratio of empty fetches for a finding."""
OFTEN_FETCHED = 120.0
"""Fetches a minute above which empty ones are wasteful: the default wait of 500 ms makes 120 per broker."""


def empty_fetches_daily(bases: Bases) -> DataFrame:
    """Sum fetches from the requests, and records from the partitions."""
    fetches = bases.requests.where(F.col("api").isin(*READ_APIS))
    requests = fetches.groupBy("dt", *EMPTY_FETCHES_PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("fetches"),
        F.sum("empty").alias("empty"),
    )
    brought = bases.reads.groupBy("dt", *EMPTY_FETCHES_PARTIAL.keys).agg(
        F.sum(went_well("records")).alias("records"), F.sum(went_well("bytes")).alias("bytes")
    )
    return EMPTY_FETCHES_PARTIAL.gathered(requests, brought)


def empty_fetches_combine(partials: DataFrame) -> DataFrame:
    """Rate each client's fetches, one row per client."""
    merged = EMPTY_FETCHES_PARTIAL.merged(partials).fillna(0, ["fetches", "empty", "records", "bytes"])
    seconds = F.unix_timestamp("last_seen") - F.unix_timestamp("first_seen")
    rated = merged.where(F.col("fetches") > 0).select(
        "*",
        ratio("empty", "fetches").alias("empty_part"),
        (F.col("fetches") / F.greatest(seconds / 60, F.lit(1.0))).alias("fetches_per_minute"),
        ratio("records", "fetches").alias("records_per_fetch"),
        ratio("bytes", "fetches").alias("bytes_per_fetch"),
    )
    return rated.select("*", fetch_findings().alias("findings"))


def fetch_findings() -> Column:
    """Return the findings for a client as an array of words."""
    in_vain = (F.col("empty_part") >= MOSTLY_EMPTY) & (F.col("fetches_per_minute") > OFTEN_FETCHED)
    return F.array_compact(F.array(F.when(in_vain, F.lit("polls in vain"))))


EMPTY_FETCHES = AnswerTransforms(EMPTY_FETCHES_PARTIAL, empty_fetches_daily, empty_fetches_combine)
