"""Which clients would break on Kafka 4."""

import pytest
from pyspark.sql import functions as F

from kproxy.lake.transforms.gold.clients import first_versions, too_old
from kproxy.protocol.table.releases import supported
from kproxy.protocol.table.schema import apis


def test_verdicts(answer):
    """What a client sends decides first, then what it says it is."""
    new = {"software_name": "apache-kafka-java", "software_version": "3.9.1"}
    rows = [
        {"client_id": "a", "api": "Produce", "version": 2, **new},
        {"client_id": "b", "api": "Produce", "version": 3, **new},
        {"client_id": "c", "api": "Produce", "version": 9},
        {"client_id": "d", "api": "Fetch", "version": 11, "software_name": "librdkafka", "software_version": "1.8.0"},
        {"client_id": "e", "api": "LeaderAndIsr", "version": 7, **new},
        {"client_id": "f", "api": "unknown(999)", "version": 0, **new},
        {"client_id": "g", "api": "ShareFetch", "version": 1, **new},
    ]
    found = {row["client_id"]: row for row in answer("kafka4_readiness", requests=rows)}

    assert {
        "a": "breaks", "b": "ready", "c": "unknown software", "d": "old software", "e": "breaks", "f": "unknown api",
        "g": "ready",
    } == {client: row["verdict"] for client, row in found.items()}  # fmt: skip
    assert (3, 4, False) == (found["a"]["minimum"], found["d"]["minimum"], "minimum" in found["e"])


def test_who_it_is_and_where_it_comes_from_is_mentioned_by_the_first_ten_names(answer):
    """More addresses than that do not make the row longer."""
    rows = [
        {
            "client_id": "a",
            "api": "Fetch",
            "version": 4,
            "client_address": f"10.0.0.{n:02}",
            "count": 2,
            "principal": "u",
        }
        for n in range(30)
    ]
    [row] = answer("kafka4_readiness", requests=rows)

    assert ([f"10.0.0.{n:02}" for n in range(10)], ["u"], 60) == (row["addresses"], row["principals"], row["requests"])


def test_first_versions_are_those_that_a_broker_of_kafka_4_takes():
    """For every API of the protocol's table, and none for those that Kafka 4 has dropped."""
    names = {api.key: api.name for api in apis()}
    found = first_versions()

    assert set(names.values()) == set(found)
    assert {name: first for name, first in found.items() if name in {names[key] for key in supported("4.0")}} == {
        names[key]: versions[0] for key, versions in supported("4.0").items()
    }
    assert (None, None) == (found["LeaderAndIsr"], found["ControlledShutdown"])


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("apache-kafka-java", "2.0.1", True),
        ("apache-kafka-java", "2.1", False),
        ("apache-kafka-java", "10.0", False),
        ("librdkafka", "v1.8.2-rc1", False),
        ("LibRdKafka", "1.8", True),
        ("librdkafka", "unknown", False),
        ("franz-go", "0.1", False),
        (None, None, False),
    ],
)
def test_versions_of_software_are_compared_as_numbers(spark, name, version, expected):
    """2.10 is later than 2.9; what is not a version, or of an unknown library, is not called old."""
    rows = spark.createDataFrame([(name, version)], "name string, version string")

    assert [(expected,)] == rows.select(too_old(F.col("name"), F.col("version"))).collect()
