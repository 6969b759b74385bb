"""Storms of connections and of requests."""


def test_the_worst_minute_is_mentioned(answer):
    """Per address and kind, over all its clients; minutes of silence do not count in the mean."""
    opened = [
        {"action": "open", "client_address": "10.0.0.1", "time": f"2026-11-20 10:00:{n:02}"} for n in range(59)
    ] + [{"action": what, "client_address": "10.0.0.1", "time": "2026-11-20 12:00:00"} for what in ("open", "close")]
    asked = [
        {"api": "Metadata", "client_address": "10.0.0.2", "client_id": "a", "count": 200},
        {"api": "Metadata", "client_address": "10.0.0.2", "client_id": "b", "count": 100},
        {"api": "Metadata", "client_address": "10.0.0.2", "count": 5, "time": "2026-11-21 10:00:00"},
        {"api": "Fetch", "client_address": "10.0.0.2", "count": 5000},
    ]
    rows = answer("storms", connections=opened, requests=asked)

    names = ("client_address", "activity", "storm", "peak_per_minute", "mean_per_minute", "total", "minutes")
    assert {
        ("10.0.0.1", "connections", False, 59, 30.0, 60, 2),
        ("10.0.0.2", "Metadata", True, 300, 152.5, 305, 2),
    } == {tuple(row[name] for name in names) for row in rows}
    assert {"2026-11-20 10:00:00"} == {str(row["peak_at"]) for row in rows}
