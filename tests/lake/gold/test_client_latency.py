"""Latency by client: which clients are slow, and why."""

from tests.lake.gold.test_latency import row


def test_client_latency_has_a_row_per_client_and_api(answer):
    """Clients differ by client id, principal or software; days, nodes and addresses are added up."""
    who = {"client_id": "app", "principal": "User:a", "software_name": "librdkafka", "software_version": "2.6"}
    rows = [
        row(10.0, 30.0, broker_ms=36.0, rule_ms=3.0, wait_ms=1.0, **who),
        row(700.0, broker_ms=690.0, rule_ms=0.0, wait_ms=10.0, time="2026-11-21 10:00:00", node=2, **who),
        row(5.0, **{**who, "software_version": "2.7"}),
        row(6.0, **{**who, "principal": "User:b"}),
        row(7.0, **{**who, "client_id": "other"}),
        row(8.0, **{**who, "api": "Produce"}),
    ]
    found = answer("client_latency", requests=rows)

    assert len(found) == 5
    slow = max(found, key=lambda one: one["max_ms"])
    assert (3, 740 / 3, 50.0, 700.0, 700.0, 700.0) == tuple(
        slow[name] for name in ("requests", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")
    )
    assert (242.0, 1.0, 11 / 3) == tuple(slow[name] for name in ("broker_ms", "rule_ms", "wait_ms"))
    assert {"librdkafka"} == {one["software_name"] for one in found}


def test_client_latency_of_unanswered_requests_is_absent(answer):
    """A client that sends with acks=0 has a row without times."""
    [found] = answer("client_latency", requests=[{"api": "Produce", "acks": 0, "client_id": "quick"}])

    assert (found["requests"], found["client_id"], "p99_ms" in found) == (1, "quick", False)
