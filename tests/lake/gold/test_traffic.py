"""How much went through, hour by hour."""


def test_requests_are_counted_by_hour_and_api(answer):
    """Hours are UTC; summaries count for their requests; requests with an error are counted apart, too."""
    rows = [
        {"time": "2026-11-20 10:59:59", "api": "Fetch", "count": 40, "request_bytes": 400, "response_bytes": 4000},
        {"time": "2026-11-20 10:00:00", "api": "Fetch", "request_bytes": 10, "response_bytes": 20},
        {"time": "2026-11-20 11:00:00", "api": "Fetch", "error": "NOT_LEADER_OR_FOLLOWER", "count": 2},
        {"time": "2026-11-20 11:00:00", "api": "Metadata", "request_bytes": 1, "response_bytes": 2},
    ]
    found = answer("traffic", requests=rows)

    columns = ("hour", "api", "requests", "errors", "request_bytes", "response_bytes")
    assert {
        ("2026-11-20 10:00:00", "Fetch", 41, 0, 410, 4020),
        ("2026-11-20 11:00:00", "Fetch", 2, 2, 0, 0),
        ("2026-11-20 11:00:00", "Metadata", 1, 0, 1, 2),
    } == {(str(row["hour"]), *(row[name] for name in columns[1:])) for row in found}
