"""Who writes to each topic."""

WRITE = {"topic": "orders", "partition": 0, "client_id": "shop", "client_address": "10.0.0.1", "api": "Produce"}


def test_writes_are_summed_by_topic_and_client(answer):
    """Rows count for as many requests as they stand for; what was refused counts as errors and brings no records,
    what was sent with acks=0 stands apart; a
    topic that is renamed stands beside its name at the broker."""
    rows = [
        {**WRITE, "time": "2026-11-20 10:00:00", "records": 5, "bytes": 500},
        {**WRITE, "time": "2026-11-21 10:00:00", "detail": "summary", "count": 7, "records": 70, "bytes": 7000,
         "last": "2026-11-21 10:00:59", "partition": 1},
        {**WRITE, "time": "2026-11-20 11:00:00", "count": 2, "records": 9, "bytes": 900, "error": "MESSAGE_TOO_LARGE"},
        {**WRITE, "acks": 0, "records": 4, "bytes": 400},
        {**WRITE, "client_id": "till", "broker_topic": "eu.orders", "records": 1, "bytes": 10, "principal": "User:t"},
    ]  # fmt: skip
    found = {row["client_id"]: row for row in answer("topic_producers", produce_partitions=rows)}

    shop, till = found["shop"], found["till"]
    assert (11, 75, 7500, 2) == (shop["requests"], shop["records"], shop["bytes"], shop["errors"])
    assert (4, 0) == (shop["unconfirmed_records"], till["unconfirmed_records"])
    assert ("2026-11-20 10:00:00", "2026-11-21 10:00:59") == (str(shop["first_seen"]), str(shop["last_seen"]))
    assert ("orders", "orders") == (shop["topic"], shop["broker_topic"])
    assert ("orders", "eu.orders", "User:t", 0) == (
        till["topic"], till["broker_topic"], till["principal"], till["errors"],
    )  # fmt: skip
