"""Answer: which clients would break on Kafka 4, which no longer speaks what was older than 2.1 (KIP-896).

Strategy: what a client sends is the surest witness. A client takes the highest version that it and the broker have, so
on brokers of 2.1 or later a version below Kafka 4's first one means that it has no better. Its name and version, if it
says them, come second.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kproxy.pipeline.transforms.gold.bases import Bases
from kproxy.pipeline.transforms.gold.partial import FIRST, LAST, NAMES, TOTAL, Partial, names_of
from kproxy.wire.releases import RELEASES, supported
from kproxy.wire.schema import apis

SOFTWARE = {
    "apache-kafka-java": "2.1",
    "librdkafka": "1.8.2",
    "kafka-python": "2.0.2",
    "kafkajs": "1.15.0",
    "sarama": "1.30.1",
}
"""The releases whose versions of the protocol KIP-896 took as its measure; older ones may work, or not."""

PARTIAL = Partial(
    keys=("cluster", "client_id", "software_name", "software_version", "api", "version"),
    measures={"first_seen": FIRST, "last_seen": LAST, "requests": TOTAL, "principals": NAMES, "addresses": NAMES},
)


def daily(bases: Bases) -> DataFrame:
    """Sum by client, software, API and version; principals and addresses by their first names."""
    used = bases.requests.groupBy("dt", *PARTIAL.keys).agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("requests"),
        names_of("principal").alias("principals"),
        names_of("client_address").alias("addresses"),
    )
    return PARTIAL.select(used)


def combine(partials: DataFrame) -> DataFrame:
    """Add `minimum`, the first version that Kafka 4 has, and a verdict."""
    used = PARTIAL.merged(partials)
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
    """Return the first version of the API in Kafka 4; null for APIs that it, or the table, lacks.

    Some eighty entries, which go with the plan: a join would cost more than the look-up.
    """
    entries = [F.lit(part) for name, first in first_versions().items() if first is not None for part in (name, first)]
    return F.try_element_at(F.create_map(*entries), F.col(api))


def first_versions() -> dict[str, int | None]:
    """Return by API the first version that brokers of the first release 4.x with it take; None: none has it."""
    first: dict[int, int] = {}
    for release in RELEASES:
        if release.startswith("4."):
            first = {key: versions[0] for key, versions in supported(release).items()} | first
    return {api.name: first.get(api.key) for api in apis()}


def too_old(name: Column, version: Column) -> Column:
    """Return true where the software is one of `SOFTWARE`, and of an earlier version; false where either is absent."""
    old = F.lit(False)
    for software, first in SOFTWARE.items():
        minimum = F.array(*[F.lit(int(number)) for number in first.split(".")])
        old = old | ((F.lower(name) == software) & (numbers(version) < minimum))
    return F.coalesce(old, F.lit(False))


def numbers(version: Column) -> Column:
    """Return the leading numbers of a version as an array, which Spark compares as versions are: 3.10.1-rc2 is [3, 10,
    1].
    """
    plain = F.regexp_extract(version, r"^[vV]?(\d{1,9}(?:\.\d{1,9})*)", 1)
    return F.when(plain != "", F.split(plain, r"\.").cast("array<int>"))
