"""How much readers get for their fetches."""


def test_fetches_are_rated_by_client(answer):
    """Fetches from the requests, records from their partitions; who polls in vain is found."""
    requests = [
        {"api": "Fetch", "client_id": "a", "count": 200, "empty": 190, "last": "2026-11-20 10:00:59"},
        {"api": "Fetch", "client_id": "b", "count": 100, "empty": 100, "last": "2026-11-20 10:00:59"},
        {"api": "ShareFetch", "client_id": "c", "count": 10, "empty": 0},
        {"api": "Produce", "client_id": "d", "count": 10},
    ]
    reads = [{"api": "Fetch", "client_id": "a", "topic": "t", "partition": 0, "records": 40, "bytes": 4000}]
    found = {row["client_id"]: row for row in answer("empty_fetches", requests=requests, fetch_partitions=reads)}

    assert {"a": ["polls in vain"], "b": [], "c": []} == {client: row["findings"] for client, row in found.items()}
    assert (200, 190, 0.95, 200.0, 0.2, 20.0) == tuple(
        found["a"][name]
        for name in ("fetches", "empty", "empty_part", "fetches_per_minute", "records_per_fetch", "bytes_per_fetch")
    )
