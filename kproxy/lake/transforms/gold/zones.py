"""Answer on zones: bytes between networks of clients and racks of brokers.

Strategy: a day keeps bytes by network and node, and beside them the rack of each node as the cluster told it last. They
meet when the answer is made: so a day of which no topology is on record, or whose topology comes late, gets the rack
that was told last before it, or else first after it, and a broker that moves takes no old bytes along.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kproxy.lake.tables import READ_APIS, WRITE_APIS

from .bases import AnswerTransforms, Bases
from .networks import network_of
from .partial import FIRST, LAST, LATEST_TEXT, TOTAL, Partial, ratio

DIRECTIONS = ("request_bytes", "response_bytes")
APART = {"produce": WRITE_APIS, "fetch": READ_APIS}
"""APIs whose bytes are told apart from the rest."""
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
    """Return the rack of each node as it was told last; of one that was told without a rack, a null one.

    A large cluster is told in parts, which all have all nodes: the first is enough.
    """
    first = topology.where(F.coalesce("part", F.lit(0)) == 0)
    nodes = first.select("dt", "cluster", "time", F.explode("nodes").alias("one"))
    known = nodes.where(F.col("one.node").isNotNull())
    told = F.struct(F.col("time"), F.col("one.rack").alias("value"))
    return known.groupBy("dt", "cluster", F.col("one.node").alias("node")).agg(F.max(told).alias("rack"))


def zones_combine(partials: DataFrame) -> DataFrame:
    """Give each day's nodes their racks, and sum the days, one row per network and rack."""
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
    """Return a node's rack as it was told last by the end of the day, or else first after it.

    Both windows begin at one end and grow with the days, so the work is linear in them.
    """
    node = Window.partitionBy("cluster", "node")
    told_by_then = F.max("rack").over(node.orderBy("dt"))
    told_from_then_on = F.min("rack").over(node.orderBy(F.desc("dt")))
    return F.coalesce(told_by_then, told_from_then_on)["value"]


def rest(name: str) -> Column:
    """Return the bytes in one direction that are of none of the APIs in `APART`."""
    others = F.col(name)
    for kind in APART:
        others = others - F.col(f"{kind}_{name}")
    return others.alias(f"other_{name}")


ZONES = AnswerTransforms(ZONES_PARTIAL, zones_daily, zones_combine)
