"""Answers on clients: versions that Kafka 4 lacks, producers, fetches, and bytes between networks and racks.

`kafka4_readiness`: the versions of a client's requests are the best evidence. A client uses the highest version that it
shares with the broker. So on brokers of 2.1 or later, a version below Kafka 4's first one means that the client does
not support a higher one. Software name and version are used second, if the client sends them.

`zones`: a day stores bytes by network and node, and separately the last reported rack of each node. They are joined
when the table is combined. A day without topology gets the last rack reported before it, otherwise the first one after
it. Bytes of a broker that moves stay with its old rack. `network_of` is a Spark expression, because gold runs no Python
on the workers. It accepts the addresses that Python's `ipaddress` accepts; its repetitions are bounded, and so its
time.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kproxy.lake.tables import READ_APIS, WRITE_APIS
from kproxy.protocol.table.releases import RELEASES, supported
from kproxy.protocol.table.schema import apis

from .aggregates import (
    FIRST,
    LAST,
    LATEST_TEXT,
    NAMES,
    TOTAL,
    AnswerTransforms,
    Bases,
    Partial,
    names_of,
    ratio,
    went_well,
)

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
    in_vain = (F.col("empty_part") >= MOSTLY_EMPTY) & (F.col("fetches_per_minute") > OFTEN_FETCHED)
    return F.array_compact(F.array(F.when(in_vain, F.lit("polls in vain"))))


EMPTY_FETCHES = AnswerTransforms(EMPTY_FETCHES_PARTIAL, empty_fetches_daily, empty_fetches_combine)


IPV4_BITS, IPV6_BITS = 24, 64
"""Prefix lengths of a network, at the border of an octet or a group.

A subnet of one zone is usually larger than a /24, or an IPv6 /64, while a /16 or a /48 is often a whole virtual network
with all its zones. Networks that are too small can be summed; a network that is too large contains several zones.
"""

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"\A({_OCTET}\.{_OCTET}\.{_OCTET})\.{_OCTET}\z"
_TAIL = rf":({_OCTET})\.({_OCTET})\.({_OCTET})\.({_OCTET})\z"
_GROUP = "[0-9a-f]{1,4}"
_SOME = f"{_GROUP}(?::{_GROUP}){{0,6}}"
_WHOLE = rf"\A{_GROUP}(?::{_GROUP}){{7}}\z"
_SHORT = rf"\A(?:{_SOME})?::(?:{_SOME})?\z"
_ZONE = r"%[^%]+\z"
_LONGEST = 100
"""Maximum length of a parsed address: an IPv6 address has at most 45 characters, and a zone may follow."""
GROUPS = 8


def network_of(address: Column) -> Column:
    """Return the network of an address as text, `10.1.2.0/24` or `2001:db8::/64`; null for other texts.

    IPv4-mapped IPv6 (`::ffff:10.1.2.3`) is IPv4. The zone of an IPv6 address (`%eth0`) is ignored.
    """
    short = F.when(F.length(address) <= _LONGEST, address)
    front = F.regexp_extract(short, _IPV4, 1)
    ipv4 = F.when(front != "", F.concat(front, F.lit(".0/24")))
    return F.when(short.contains(":"), _ipv6_network(short)).otherwise(ipv4)


def _ipv6_network(address: Column) -> Column:
    text = F.lower(F.regexp_replace(address, _ZONE, ""))
    return _let(_without_dots(text), lambda plain: _let(_groups(plain), _network_of_groups))


def _let(value: Column, use: Callable[[Column], Column]) -> Column:
    """Apply `use` to a value that is evaluated once for several uses."""
    return F.get(F.transform(F.array(value), use), 0)


def _without_dots(text: Column) -> Column:
    """Return the text with a trailing IPv4 address converted to two groups."""

    def octet(number: int) -> Column:
        return F.regexp_extract(text, _TAIL, number).try_cast("int")

    def pair(number: int) -> Column:
        return F.lower(F.hex(octet(number) * 256 + octet(number + 1)))

    front = F.regexp_replace(text, _TAIL, ":")
    return F.when(text.contains("."), F.concat(front, pair(1), F.lit(":"), pair(3))).otherwise(text)


def _groups(text: Column) -> Column:
    """Return the eight groups of an IPv6 address without leading zeros; null for other texts."""
    halves = F.split(text, "::")
    left, right = _parts(F.get(halves, 0)), _parts(F.get(halves, 1))
    missing = F.lit(GROUPS) - F.size(left) - F.size(right)
    filled = F.concat(left, F.array_repeat(F.lit("0"), F.greatest(missing, F.lit(0))), right)
    written = F.when(text.rlike(_WHOLE), F.split(text, ":")).when(text.rlike(_SHORT) & (missing > 0), filled)
    return F.transform(written, lambda group: F.regexp_replace(group, r"\A0{1,3}(?=.)", ""))


def _parts(half: Column) -> Column:
    return F.when(half == "", F.array().cast("array<string>")).otherwise(F.split(half, ":"))


def _network_of_groups(groups: Column) -> Column:
    front = F.regexp_replace(F.array_join(F.slice(groups, 1, IPV6_BITS // 16), ":"), r"(?::0){1,3}\z", "")
    ipv6 = F.concat(F.when(front == "0", "").otherwise(front), F.lit("::/64"))
    high, low = _number(F.get(groups, 6)), _number(F.get(groups, 7))
    octets = (F.shiftright(high, 8), high % 256, F.shiftright(low, 8))
    ipv4 = F.concat(F.concat_ws(".", *[octet.cast("string") for octet in octets]), F.lit(".0/24"))
    mapped = F.array_join(F.slice(groups, 1, 6), ":") == "0:0:0:0:0:ffff"
    return F.when(mapped, ipv4).otherwise(ipv6)


def _number(group: Column) -> Column:
    return F.conv(group, 16, 10).try_cast("int")


DIRECTIONS = ("request_bytes", "response_bytes")
APART = {"produce": WRITE_APIS, "fetch": READ_APIS}
"""APIs with separate sums of bytes."""
AMOUNTS = ("requests", *DIRECTIONS, *(f"{kind}_{name}" for kind in APART for name in DIRECTIONS))

ZONES_PARTIAL = Partial(
    keys=("cluster", "client_network", "node"),
    measures={"first_seen": FIRST, "last_seen": LAST, **dict.fromkeys(AMOUNTS, TOTAL), "rack": LATEST_TEXT},
)
"""`rack` is in rows without a network, one for each node."""


def zones_daily(bases: Bases) -> DataFrame:
    """Sum bytes by network and node, and take the racks of nodes."""
    return ZONES_PARTIAL.gathered(network_totals(bases.requests), node_racks(bases.topology))


def network_totals(requests: DataFrame) -> DataFrame:
    """Sum bytes by network and node."""
    apart = [
        F.sum(F.when(F.col("api").isin(*apis), F.col(name))).alias(f"{kind}_{name}")
        for kind, apis in APART.items()
        for name in DIRECTIONS
    ]
    by_address = requests.groupBy("dt", "cluster", "client_address", "node").agg(
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.sum("count").alias("requests"),
        *[F.sum(name).alias(name) for name in DIRECTIONS],
        *apart,
    )
    return by_address.select(
        *("dt", "cluster", "node", "first_seen", "last_seen", *AMOUNTS),
        network_of(F.col("client_address")).alias("client_network"),
    )


def node_racks(topology: DataFrame) -> DataFrame:
    """Return the last reported rack of each node; null if the last report has no rack.

    A large cluster is reported in parts, which all have all nodes, so one part is enough.
    """
    first = topology.where(F.coalesce("part", F.lit(0)) == 0)
    nodes = first.select("dt", "cluster", "time", F.explode("nodes").alias("one"))
    known = nodes.where(F.col("one.node").isNotNull())
    told = F.struct(F.col("time"), F.col("one.rack").alias("value"))
    return known.groupBy("dt", "cluster", F.col("one.node").alias("node")).agg(F.max(told).alias("rack"))


def zones_combine(partials: DataFrame) -> DataFrame:
    """Join each day's nodes with their racks, and sum the days, one row per network and rack."""
    racked = partials.select(
        *("cluster", "client_network", "node", "first_seen", "last_seen", *AMOUNTS), rack_then().alias("rack")
    )
    summed = (
        racked.where(F.col("requests").isNotNull())
        .groupBy("cluster", "client_network", "rack")
        .agg(
            F.min("first_seen").alias("first_seen"),
            F.max("last_seen").alias("last_seen"),
            F.size(F.collect_set("node")).alias("nodes"),
            *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in AMOUNTS],
        )
    )
    both = F.col("request_bytes") + F.col("response_bytes")
    network = Window.partitionBy("cluster", "client_network")
    beside = summed.select(
        "*", both.alias("both"), F.sum(both).over(network).alias("of_network"), *map(rest, DIRECTIONS)
    )
    return beside.select("*", ratio("both", "of_network").alias("network_part"))


def rack_then() -> Column:
    """Return a node's last rack reported by the end of the day, otherwise the first one after it.

    Both windows are unbounded at one end, so the work is linear in the days.
    """
    node = Window.partitionBy("cluster", "node")
    told_by_then = F.max("rack").over(node.orderBy("dt"))
    told_from_then_on = F.min("rack").over(node.orderBy(F.desc("dt")))
    return F.coalesce(told_by_then, told_from_then_on)["value"]


def rest(name: str) -> Column:
    """Return the bytes in one direction of all APIs that are not in `APART`."""
    others = F.col(name)
    for kind in APART:
        others = others - F.col(f"{kind}_{name}")
    return others.alias(f"other_{name}")


ZONES = AnswerTransforms(ZONES_PARTIAL, zones_daily, zones_combine)
