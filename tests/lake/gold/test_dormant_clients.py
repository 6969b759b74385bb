"""Which clients there are, and which have gone silent."""


def test_clients_are_dormant_after_seven_days_without_a_request(answer):
    """Counted back from the last request of all; greetings do not make a client; the last address and software are
    told, and how many addresses there were."""
    rows = [
        {"client_id": "old", "principal": "u", "api": "Fetch", "time": "2026-11-01 10:00:00", "client_address": "a",
         "software_name": "librdkafka", "software_version": "1.8.2"},
        {"client_id": "old", "principal": "u", "api": "Fetch", "time": "2026-11-02 10:00:00", "client_address": "b",
         "count": 4, "software_name": "librdkafka", "software_version": "2.0"},
        {"client_id": "old", "api": "ApiVersions", "time": "2026-11-20 10:00:00"},
        {"client_id": "new", "api": "Fetch", "time": "2026-11-09 10:00:00"},
        {"client_id": "week", "api": "Fetch", "time": "2026-11-02 10:00:01"},
    ]  # fmt: skip
    found = {row["client_id"]: row for row in answer("dormant_clients", requests=rows)}

    assert {"old": (True, 7), "new": (False, 0), "week": (False, 6)} == {
        client: (row["dormant"], row["days_idle"]) for client, row in found.items()
    }
    old = found["old"]
    assert ("librdkafka/2.0", "b", 2, 5) == (old["software"], old["client_address"], old["addresses"], old["requests"])
    assert "software" not in found["new"]
