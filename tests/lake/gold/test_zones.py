"""Which networks' bytes come from, and go to, which zones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kproxy.lake.gold_lake import ANSWER_TRANSFORMS
from kproxy.lake.transforms.gold.aggregates import bases
from kproxy.lake.transforms.gold.clients import IPV4_BITS, IPV6_BITS, network_of

A, B = "10.0.1.7", "10.0.2.7"
"""Addresses of two clients, in two networks."""
BYTES = ("request_bytes", "response_bytes")
DIGITS = "0123456789abcdef:.%"


def asked(node: int | None, address: str | None, request: int, response: int, **more: Any) -> dict[str, Any]:
    return {"api": "Produce", "client_id": "shop", "node": node, "client_address": address,
            "request_bytes": request, "response_bytes": response, **more}  # fmt: skip


def topology(day: int, hour: int = 10, **racks: str | None) -> dict[str, Any]:
    """What the cluster tells: n1="a" is node 1 in rack a."""
    nodes = [{"node": int(name[1:]), "host": "h", "port": 9092, "rack": rack} for name, rack in racks.items()]
    return {"time": f"2026-11-{day} {hour:02}:00:00", "nodes": nodes, "part": 0, "parts": 1}


def by_pair(rows: Iterable[dict[str, Any]], *names: str) -> dict[Any, tuple[Any, ...]]:
    return {(row.get("client_network"), row.get("rack")): tuple(row[name] for name in names) for row in rows}


def test_bytes_are_told_by_network_and_rack(answer: Callable[..., Any]) -> None:
    """In both directions, Produce and Fetch apart from the rest. Nodes whose rack nobody told, and bootstrap
    connections, have none; nodes of one rack are together; summaries count as what they sum up."""
    requests = [
        asked(1, A, 1000, 10),
        asked(2, A, 300, 3, count=5, detail="summary"),
        asked(2, A, 40, 4000, api="Fetch", client_id="reader"),
        asked(3, A, 50, 5000, api="ShareFetch", client_address="10.0.1.200"),
        asked(3, A, 7, 70, api="Metadata"),
        asked(None, A, 20, 200, api="Metadata"),
        asked(9, A, 1, 2, api="Heartbeat"),
        asked(1, B, 500, 5, cluster="other"),
    ]
    rows = answer("zones", requests=requests, topology=[topology(20, n1="a", n2="b", n3="b", n4=None)])
    found = {(row["cluster"], row["client_network"], row.get("rack")): row for row in rows}

    names = ("nodes", "requests", *BYTES, "produce_request_bytes", "produce_response_bytes", "fetch_request_bytes",
             "fetch_response_bytes", "other_request_bytes", "other_response_bytes")  # fmt: skip
    assert {
        ("main", "10.0.1.0/24", "a"): (1, 1, 1000, 10, 1000, 10, 0, 0, 0, 0),
        ("main", "10.0.1.0/24", "b"): (2, 8, 397, 9073, 300, 3, 90, 9000, 7, 70),
        ("main", "10.0.1.0/24", None): (1, 2, 21, 202, 0, 0, 0, 0, 21, 202),
        ("other", "10.0.2.0/24", None): (1, 1, 500, 5, 500, 5, 0, 0, 0, 0),
    } == {key: tuple(row[name] for name in names) for key, row in found.items()}
    parts = [row["network_part"] for key, row in found.items() if key[0] == "main"]
    assert (sum(parts), max(parts)) == (pytest.approx(1), pytest.approx(9470 / 10703))


def test_a_node_has_the_rack_that_it_had_then(answer: Callable[..., Any]) -> None:
    """As told last by the end of the day; before anything was told, as told first; in a gap, as before it. One that is
    told without a rack has none from then on."""
    requests = [asked(node, A, 1 << day, 0, time=f"2026-11-{day} 09:00:00") for day in range(10, 20) for node in (1, 2)]
    told = [topology(12, 23, n1="b"), topology(12, 1, n1="wrong"), topology(14, n1="b"), topology(16, n1="c", n2="z"),
            topology(18, n1=None)]  # fmt: skip
    rows = by_pair(answer("zones", requests=requests, topology=told), "request_bytes", "nodes")

    def sizes(*days: int) -> int:
        return sum(1 << day for day in days)

    assert rows == {
        ("10.0.1.0/24", "b"): (sizes(*range(10, 16)), 1),
        ("10.0.1.0/24", "c"): (sizes(16, 17), 1),
        ("10.0.1.0/24", None): (sizes(18, 19), 1),
        ("10.0.1.0/24", "z"): (sizes(*range(10, 20)), 1),
    }


def test_the_first_part_of_a_large_cluster_tells_its_nodes(answer: Callable[..., Any]) -> None:
    """All parts have the same nodes. What is no list, and nodes without a number, tell nothing."""
    whole = topology(20, n1="a")
    parts = [whole | {"nodes": [*whole["nodes"], {"node": None, "rack": "x"}], "parts": 3}, whole | {"part": 2},
             whole | {"nodes": None}]  # fmt: skip
    rows = by_pair(answer("zones", requests=[asked(1, A, 5, 6), asked(None, A, 1, 1)], topology=parts), *BYTES)

    assert rows == {("10.0.1.0/24", "a"): (5, 6), ("10.0.1.0/24", None): (1, 1)}


def test_days_merge_in_any_order(silver: Callable[..., Any]) -> None:
    """Partials that were made day by day, the oldest last, are those that all days in one go give."""
    chance = random.Random(5)
    requests = [
        asked(chance.choice((1, 2, None)), chance.choice((A, B, None)), chance.randrange(99), chance.randrange(99),
              time=f"2026-11-{chance.randrange(17, 21)} 10:00:00", api=chance.choice(("Fetch", "Produce", "Metadata")))
        for _ in range(60)
    ]  # fmt: skip
    tables = silver(requests=requests, topology=[topology(18, n1="a", n2="b"), topology(20, n1="b")])
    how = ANSWER_TRANSFORMS["zones"]
    at_once = how.daily(bases(tables))
    days = [at_once.where(F.col("dt") == day) for day in ("2026-11-20", "2026-11-18", "2026-11-19", "2026-11-17")]
    late = days[0].unionByName(days[1]).unionByName(days[2]).unionByName(days[3])

    assert sorted(map(str, how.combine(late).collect())) == sorted(map(str, how.combine(at_once).collect()))


@pytest.mark.deep
def test_they_add_up_to_the_traffic(silver: Callable[..., Any]) -> None:
    """Of each day: requests, and bytes in both directions, whatever addresses, nodes and sizes are not known."""
    chance = random.Random(6)
    requests = [
        asked(chance.choice((1, 2, 3, None)), chance.choice((A, B, None, "", "?", "::1", "::ffff:10.0.1.9")),
              chance.choice((None, chance.randrange(1 << 40))), chance.choice((None, chance.randrange(1 << 40))),
              time=f"2026-11-{chance.randrange(18, 21)} {chance.randrange(24):02}:59:59", count=chance.randrange(1, 9),
              api=chance.choice(("Fetch", "Produce", "ShareFetch", "Metadata", None)))
        for _ in range(80)
    ]  # fmt: skip
    made = bases(silver(requests=requests, topology=[topology(18, n1="a", n2="b"), topology(19, n1="b")]))
    partials = {name: ANSWER_TRANSFORMS[name].daily(made).persist() for name in ("zones", "traffic")}

    for day in ("2026-11-18", "2026-11-19", "2026-11-20"):
        sums: dict[str, Counter[str]] = {name: Counter() for name in partials}
        for name, of_days in partials.items():
            for row in ANSWER_TRANSFORMS[name].combine(of_days.where(F.col("dt") == day)).collect():
                sums[name].update({column: row[column] for column in ("requests", *BYTES)})
        assert sums["zones"] == sums["traffic"]
        assert sums["zones"]["request_bytes"] > 0
    for of_days in partials.values():
        of_days.unpersist()


ADDRESSES = (
    "10.1.2.3", "0.0.0.0", "255.255.255.255", "256.1.1.1", "10.1.2", "10.1.2.3.4", "010.1.2.3", "10.1.2.3\n",
    " 10.1.2.3", "10.1.2.3/24", "10.1.2.3%eth0", "1e1.0.0.1", "１０.1.2.3", "", "localhost", "unix:/run/kproxy.sock",
    "::", "::1", "2001:db8::1", "2001:DB8:0:0:1::5", "2001:db8:0:1::", "0:0:0:5::", "0:1::", "1:2:3:4:5:6:7:8",
    "1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:8::", "::2:3:4:5:6:7:8", "1::3::5", ":::", "1:::2", ":1", "1:", "1:2:3:4:5:6:7",
    "12345::", "::g", "fe80::1%eth0", "fe80::1%", "fe80::1%a%b", "%eth0", "::ffff:10.1.2.3", "::FFFF:a01:203",
    "0:0:0:0:0:ffff:10.1.2.3", "::ffff:300.1.2.3", "::fffe:10.1.2.3", "::10.1.2.3", "64:ff9b::10.1.2.3",
    "1:2:3:4:5:6:10.1.2.3", "1:2:3:4:5:6:7:1.2.3.4", "::10.1.2.3:1", "1.2.3.4::", "[::1]", "::1\n", "0000::0001",
    "00000::1", "<script>", "'; DROP TABLE x", "\x00", "::\u0661", "9" * 5000, "1:" * 5000, ":" * 5000,
    "1.2.3.4 " * 5000, "::ffff:" + "1." * 5000,
)  # fmt: skip


def network_by_python(text: str) -> str | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or IPv6Address(int(address))
    return str(ip_network((address, IPV4_BITS if address.version == 4 else IPV6_BITS), strict=False))


def test_a_network_is_that_of_the_address(spark: SparkSession) -> None:
    """Of addresses in any spelling, and of none where it is none: as Python reads them, for hostile and for chance
    texts."""
    chance = random.Random(7)
    groups = [
        [f"{chance.choice((0, 0, 1, 0xFFFF, chance.randrange(1 << 16))):x}" for _ in range(8)] for _ in range(150)
    ]
    spelled = [":".join(one) for one in groups]
    spelled += [str(IPv6Address(one)) for one in spelled] + [one.replace(":0:0:", "::", 1) for one in spelled]
    spelled += ["".join(chance.choice(DIGITS) for _ in range(chance.randrange(2, 20))) for _ in range(300)]
    texts = [*ADDRESSES, *spelled]
    rows = spark.createDataFrame([(text,) for text in (*texts, None)], "address string")
    found = {
        row.address: row.network
        for row in rows.select("address", network_of(F.col("address")).alias("network")).collect()
    }

    assert found == {text: network_by_python(text) for text in texts} | {None: None}
