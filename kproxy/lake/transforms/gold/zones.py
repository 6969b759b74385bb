"""Gold table on zones: bytes between networks of clients and racks of brokers.

A day stores bytes by network and node, and separately the last reported rack of each node. They are joined when the
table is combined. A day without topology gets the last rack reported before it, otherwise the first one after it. Bytes
of a broker that moves stay with its old rack.

`network_of` is a Spark expression, because gold runs no Python on the workers. It accepts the addresses that Python's
`ipaddress` accepts. Its patterns have bounded repetitions, so long texts are matched in bounded time.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kproxy.lake.tables import READ_APIS, WRITE_APIS

from .aggregates import FIRST, LAST, LATEST_TEXT, TOTAL, AnswerTransforms, Bases, Partial, ratio

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
