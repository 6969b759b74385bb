"""Throttled clients: by rule, or by the broker's quota."""


def test_throttled_sums_events_and_summaries(answer):
    """Single requests and lines of summaries count alike; a line without a rule counts its throttled responses only."""
    asked = [
        {"api": "Produce", "client_id": "a", "throttle_rule": "slow", "throttle_ms": 300, "mute_ms": 900.0,
         "rule_ms": 40.0, "count": 1},
        {"api": "Produce", "client_id": "a", "throttle_rule": "slow", "throttled": 2, "throttle_ms": 100,
         "mute_ms": 100.0, "rule_ms": 10.0, "count": 3},
        {"api": "Fetch", "client_id": "b", "throttled": 2, "throttle_ms": 50, "rule_ms": 7.0, "count": 500},
        {"api": "Fetch", "client_id": "b", "count": 70, "rule_ms": 5.0},
        {"api": "Fetch", "client_id": "b", "count": 1, "throttle_ms": 0},
    ]  # fmt: skip
    rows = answer("throttled", requests=asked)

    names = ("client_id", "api", "throttle_rule", "requests", "throttled", "throttle_ms", "mean_throttle_ms",
             "mute_ms", "held_ms")  # fmt: skip
    assert {tuple(row.get(name) for name in names) for row in rows} == {
        ("a", "Produce", "slow", 4, 3, 400.0, 400 / 3, 1000.0, 50.0),
        ("b", "Fetch", None, 2, 2, 50.0, 25.0, None, None),
    }
