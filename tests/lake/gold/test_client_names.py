"""Names in gold tables are those of clients under rename and prefix rules; columns broker_… have the brokers'."""

import pytest

from kproxy.lake.gold_tables import ANSWERS, VIOLATIONS

TOPICS = {"orders": "prod.orders", "clicks": "tenant.clicks", "plain": "plain"}
GROUPS = {"readers": "tenant.readers", "own": "own"}
NAMED = [
    answer
    for answer in ANSWERS
    if {"topic", "group", "broker_topic", "broker_group"} & {c.name for c in answer.columns}
]


def renamed(name, names, column):
    """Return the columns of a name as events have them: the broker's is absent where it is the same."""
    other = names[name]
    return {column: name} | ({f"broker_{column}": other} if other != name else {})


@pytest.fixture(scope="module")
def traffic():
    """Rows of silver tables about the same topics and groups."""
    who = {"client_id": "app", "principal": "User:a", "client_address": "10.0.0.1"}
    topics = [renamed(name, TOPICS, "topic") for name in TOPICS]
    groups = [renamed(name, GROUPS, "group") for name in GROUPS]
    write = {
        **who,
        "api": "Produce",
        "partition": 0,
        "records": 5,
        "bytes": 50,
        "batches": 1,
        "acks": 1,
        "detail": "summary",
        "codec": "none",
    }
    read = {**who, "api": "Fetch", "partition": 0, "records": 5, "bytes": 50, "high_watermark": 9}
    refused = {**write, "error": "TOPIC_AUTHORIZATION_FAILED", "records": None, "bytes": None}
    return {
        "requests": [
            {**who, "api": api, "count": 3, **group}
            for group in groups
            for api in ("OffsetCommit", "Heartbeat", "Fetch")
        ],
        "produce_partitions": [{**one, **topic} for topic in topics for one in (write, refused)],
        "fetch_partitions": [{**read, **topic} for topic in topics],
        "commits": [
            {**who, "api": "OffsetCommit", "committed_offset": offset, "partition": 0, **topic, **group}
            for topic in topics
            for group in groups
            for offset in (9, 3)
        ],
        "groups": [
            {**who, "api": "JoinGroup", "member": f"m{number}", "generation": number, **group}
            for group in groups
            for number in range(9)
        ],
        "topology": [{"topics": [{"topic": name, "partitions": 1} for name in (*TOPICS.values(), "orders", "idle")]}],
        "rules": [{"rule": "r", "kind": "deny", "matched": 3, "fired": 3, "applied": 3}],
    }


def right_side(row, column, names):
    """Return True if the columns of a name have the client's name and the broker's name for it."""
    name, other = row.get(column), row.get(f"broker_{column}")
    return (
        (name is None or name in names)
        and (other is None or other in names.values())
        and (name is None or other is None or names[name] == other)
    )


@pytest.mark.parametrize(
    "table",
    [pytest.param(one.name, marks=pytest.mark.deep if one is VIOLATIONS else ()) for one in NAMED],
)
def test_gold_table_has_names_of_clients(answer, traffic, table):
    """`topic` and `group` hold the client's name, and `broker_topic` and `broker_group` the broker's for it."""
    rows = answer(table, **{name: [dict(row) for row in rows] for name, rows in traffic.items()})
    unused = [row for row in rows if row.get("verdict") in ("unused", "gone")]

    assert rows
    for row in (row for row in rows if row not in unused):
        assert right_side(row, "topic", TOPICS), row
        assert right_side(row, "group", GROUPS), row
    assert {(row.get("topic"), row["broker_topic"]) for row in unused} <= {(None, "orders"), ("idle", "idle")}
    if table == "unused_topics":
        assert {row["topic"]: row["verdict"] for row in rows if "topic" in row} == {
            **dict.fromkeys(TOPICS, "in use"), "idle": "unused",
        }  # fmt: skip
