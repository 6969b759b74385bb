"""What clients say of themselves, and what kproxy saw of them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from kproxy.lake.gold_lake import ANSWER_TRANSFORMS
from kproxy.lake.tables import TELEMETRY
from kproxy.lake.transforms.gold.aggregates import bases
from kproxy.lake.transforms.gold.client_telemetry import MADE, SAID
from kproxy.record.events.schema import LATENCY_BOUNDS_MS

SHOP = {"client_id": "shop", "principal": "User:shop", "software_name": "librdkafka", "software_version": "2.16"}
HOSTILE = "<script>x</script>\u202e\x00'\"*"
EVENTS = Path(__file__).parents[3] / "docs" / "events.md"
SLOW = "slow before kproxy"


def push(instance: int | None = 1, day: int = 20, **more: Any) -> dict[str, Any]:
    name = None if instance is None else f"00000000-0000-0000-0000-{instance:012}"
    return {**SHOP, "client_instance_id": name, "time": f"2026-11-{day} 10:00:00", **more}


def recorded() -> dict[str, Any]:
    """The push of a real client that the page of events shows, as a row of silver."""
    [line] = re.findall(r'^\{.*"type":"kproxy.telemetry.v1".*\}$', EVENTS.read_text(), re.MULTILINE)
    data: dict[str, Any] = json.loads(line)["data"]
    return {**data, "client_id": "recorded"}


def seen(*latencies: float, day: int = 20, **more: Any) -> dict[str, Any]:
    """Requests of the client with these latencies."""
    bounds = (*LATENCY_BOUNDS_MS, float("inf"))
    buckets = [sum(next(at for at in bounds if one <= at) == bound for one in latencies) for bound in bounds]
    return {**SHOP, "api": "Produce", "time": f"2026-11-{day} 10:00:00", "count": len(latencies),
            "latency_ms": float(sum(latencies)), "latency_max_ms": float(max(latencies)), "latency_buckets": buckets,
            **more}  # fmt: skip


def test_what_instances_say_is_beside_what_was_seen_of_them(answer: Callable[..., Any]) -> None:
    """One row, with all instances and days; means are over the pushes that told one, each once; the largest is the
    largest. Another principal, or another version of the library, is another client."""
    pushes = [
        push(1, producer_node_request_latency_avg=2.0, producer_node_request_latency_max=9.0,
             producer_connection_creation_total=3.0, producer_record_queue_time_avg=5.0),
        push(1, day=19, producer_node_request_latency_avg=4.0, producer_node_request_latency_max=8.0),
        push(2, day=22, producer_node_request_latency_avg=6.0, producer_connection_creation_total=1.0,
             consumer_connection_creation_total=2.0, consumer_coordinator_commit_latency_max=7.0),
        push(3, terminating=True),
        push(4, principal="User:other", producer_node_request_latency_avg=1000.0),
        push(5, software_version="2.5", producer_node_request_latency_avg=2000.0),
    ]  # fmt: skip
    requests = [
        seen(1.0, 3.0),
        seen(8.0, day=25, throttle_ms=40, error="NOT_LEADER_OR_FOLLOWER"),
        seen(100.0, api="Fetch", throttle_ms=0),
        seen(5.0, api="OffsetCommit", error="TOPIC_AUTHORIZATION_FAILED"),
        seen(30.0, api="JoinGroup"),
        {**SHOP, "api": "Produce", "outcome": "unanswered"},
        seen(0.01, api="PushTelemetry"),
        seen(7.0, client_id="silent"),
    ]
    closes = [{**SHOP, "action": what} for what in ("open", "close", "close")]
    rows = {
        (row["principal"], row["software_version"]): row
        for row in answer("client_metrics", telemetry=pushes, requests=requests, connections=closes)
    }
    shop = rows["User:shop", "2.16"]

    assert set(rows) == {("User:shop", "2.16"), ("User:other", "2.16"), ("User:shop", "2.5")}
    assert {
        "instances": 3, "pushes": 4, "producer_request_ms": 4.0, "producer_request_max_ms": 9.0, "queue_ms": 5.0,
        "connections": 6, "commit_max_ms": 7.0, "findings": [],
    }.items() <= shop.items()  # fmt: skip
    assert {
        "seen_connections": 2, "seen_requests": 7, "seen_mean_ms": 147 / 6, "seen_p50_ms": 5.0, "seen_p99_ms": 100.0,
        "seen_max_ms": 100.0, "seen_produce_ms": 4.0, "seen_produce_max_ms": 8.0, "seen_fetch_ms": 100.0,
        "seen_commit_max_ms": 5.0, "seen_join_ms": 30.0, "seen_throttled": 1, "seen_throttle_ms": 40.0,
        "seen_errors": 2, "seen_retriable": 1, "seen_cut_off": 1,
    }.items() <= shop.items()  # fmt: skip
    assert {"queue_max_ms", "commit_ms", "rebalance_ms", "consumer_request_ms", "throttle_ms"}.isdisjoint(shop)
    assert ("2026-11-19 10:00:00", "2026-11-22 10:00:00") == (str(shop["first_seen"]), str(shop["last_seen"]))
    other = rows["User:other", "2.16"]
    assert (other["seen_requests"], other["findings"], "seen_mean_ms" in other) == (0, [], False)


def test_slow_before_kproxy(answer: Callable[..., Any]) -> None:
    """Where a client's own latency is both far and several times above what kproxy saw of the same requests."""
    cases = {
        "far": ({"producer_node_request_latency_avg": 80.0}, "Produce", 5.0, [SLOW]),
        "twice": ({"producer_node_request_latency_avg": 80.0}, "Produce", 41.0, []),
        "near": ({"producer_node_request_latency_avg": 9.0}, "Produce", 1.0, []),
        "reads": ({"consumer_fetch_manager_fetch_latency_avg": 600.0}, "Fetch", 250.0, [SLOW]),
        "waits": ({"consumer_fetch_manager_fetch_latency_avg": 502.0}, "Fetch", 500.0, []),
        "unlike": ({"consumer_node_request_latency_avg": 600.0}, "Produce", 5.0, []),
        "unseen": ({"producer_node_request_latency_avg": 80.0}, "Metadata", 5.0, []),
    }
    told = [push(client_id=name, **case[0]) for name, case in cases.items()]
    requests = [seen(case[2], client_id=name, api=case[1]) for name, case in cases.items()]
    rows = answer("client_metrics", telemetry=told, requests=requests)

    assert {row["client_id"]: row["findings"] for row in rows} == {name: case[3] for name, case in cases.items()}


def test_claims_are_told_as_they_are(answer: Callable[..., Any]) -> None:
    """The largest numbers that are taken, no name at all, no instance: each spoils its own row, and nothing else.

    A push that was recorded of a real client is beside them.
    """
    largest = dict.fromkeys((f"{name}_{kind}" for name in SAID.values() for kind in ("avg", "max")), 2.0**63)
    names = {column.name for column in TELEMETRY.columns}
    huge = {name: value for name, value in largest.items() if name in names} | dict.fromkeys(MADE, 2.0**63)
    nobody = dict.fromkeys(SHOP)
    pushes = [
        push(client_id=HOSTILE, **huge),
        push(client_id=HOSTILE, **huge),
        push(client_id=HOSTILE, producer_record_queue_time_max=-(2.0**63)),
        push(None, **nobody, producer_record_queue_time_max=-1.0),
        push(1, producer_connection_creation_total=2.0**52 + 1),
        recorded(),
    ]
    rows = {
        row.get("client_id"): row for row in answer("client_metrics", telemetry=pushes, requests=[seen(1.0, **nobody)])
    }

    assert set(rows) == {HOSTILE, None, "shop", "recorded"}
    assert (rows[HOSTILE]["queue_ms"], rows[HOSTILE]["queue_max_ms"]) == (2.0**63, 2.0**63)
    assert "connections" not in rows[HOSTILE], "it is more than a number of 64 bits holds"
    assert rows["shop"]["connections"] == 2**52 + 1
    told = rows["recorded"]
    assert (told["instances"], told["queue_ms"], told["queue_max_ms"], told["producer_request_ms"]) == (
        1, 0.037, 1.0, 157.6985,
    )  # fmt: skip
    assert (rows[None].get("instances"), rows[None]["queue_max_ms"], rows[None]["seen_requests"]) == (0, -1.0, 1)


def test_days_merge_in_any_order(silver: Callable[..., Any]) -> None:
    """What was said and what was seen come on whatever days, the oldest last; and days in one go give the same."""
    chance = random.Random(3)
    pushes = [
        push(chance.randrange(5), chance.randrange(17, 21), client_id=chance.choice("ab"),
             producer_record_queue_time_avg=chance.choice((None, float(chance.randrange(9)))),
             consumer_connection_creation_total=chance.choice((None, float(chance.randrange(9)))))
        for _ in range(40)
    ]  # fmt: skip
    requests = [
        seen(*(float(chance.randrange(1, 99)) for _ in range(3)), day=chance.randrange(17, 21), api=api,
             client_id=chance.choice("abc"))
        for api in ("Produce", "Fetch", "Metadata") * 10
    ]  # fmt: skip
    tables = silver(telemetry=pushes, requests=requests)
    how = ANSWER_TRANSFORMS["client_metrics"]
    daily = how.daily(bases(tables)).persist()
    days = [daily.where(F.col("dt") == f"2026-11-{day}") for day in (20, 18, 19, 17)]
    late = days[0].unionByName(days[1]).unionByName(days[2]).unionByName(days[3])
    one_day = how.partial.gathered(daily.withColumn("dt", F.lit("2026-11-20").cast("date")))

    first, *others = [sorted(map(str, how.combine(part).collect())) for part in (daily, late, one_day)]
    assert others == [first, first]
    assert len(first) == 2
    daily.unpersist()
