"""From clients to answers: what the pipeline says of real traffic is what the clients themselves counted."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from kproxy.lake import gold_lake as job
from kproxy.lake.gold_lake import GoldLake
from kproxy.lake.gold_tables import answer_named
from kproxy.lake.jobs.ingest import FileSource, bronze, silver
from kproxy.lake.lake import Lake
from kproxy.lake.spark import Run
from kproxy.testing.process import free_port

pytestmark = pytest.mark.deep
RULES = [
    {"name": "names", "kind": "rename_topic", "topics": {"audit-orders": "prod.audit-orders"}},
    {"name": "refused", "kind": "error", "match": {"api": "Produce", "topic": "audit-orders", "client_id": "unlucky"},
     "when": {"first": 3}, "error": "NOT_LEADER_OR_FOLLOWER"},
]  # fmt: skip
SIZE = 100
READ = ("topic_producers", "topic_consumers", "unused_topics", "errors_and_denials", "group_health", "group_lag",
        "producer_hygiene", "rules_effect")  # fmt: skip
"""The answers that are asked for here. test_numbers_agree.py has all of them made, of real traffic, too."""


@dataclass
class Counts:
    """What the clients counted."""

    written: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Records by (client id, topic)."""
    read: Counter[tuple[str, str]] = field(default_factory=Counter)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    """Offsets by (group, partition)."""


def write_confluent(address: str, client: str, topic: str, records: int, counts: Counts, **more: Any) -> None:
    producer = Producer({"bootstrap.servers": address, "client.id": client, "linger.ms": 5, **more})

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        counts.written[client, message.topic()] += 1

    for number in range(records):
        producer.produce(topic, b"v" * SIZE, key=str(number).encode(), on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0


async def write_aiokafka(address: str, client: str, topic: str, records: int, counts: Counts) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=address, client_id=client, compression_type="gzip", linger_ms=5)
    await producer.start()
    try:
        sent = [await producer.send(topic, b"v" * SIZE, key=str(number).encode()) for number in range(records)]
        counts.written[client, topic] += len(await asyncio.gather(*sent))
    finally:
        await producer.stop()


def read_confluent(address: str, client: str, topic: str, records: int, counts: Counts, **more: Any) -> None:
    settings = {"group.id": f"group-{client}", "auto.offset.reset": "earliest", "enable.auto.commit": False, **more}
    consumer = Consumer({"bootstrap.servers": address, "client.id": client, **settings})
    consumer.subscribe([topic])
    try:
        while counts.read[client, topic] < records:
            message = consumer.poll(30)
            assert message is not None and message.error() is None, f"{counts.read[client, topic]} of {records} records"
            counts.read[client, topic] += 1
        for one in consumer.commit(asynchronous=False):
            counts.committed[f"group-{client}", one.partition] = one.offset
    finally:
        consumer.close()


async def read_aiokafka(address: str, client: str, topic: str, records: int, counts: Counts) -> None:
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=address, client_id=client, group_id=f"group-{client}",
        auto_offset_reset="earliest", enable_auto_commit=False,
    )  # fmt: skip
    await consumer.start()
    try:
        async for _ in consumer:
            counts.read[client, topic] += 1
            if counts.read[client, topic] == records:
                break
        await consumer.commit()
        for partition in consumer.assignment():
            counts.committed[f"group-{client}", partition.partition] = await consumer.position(partition)
    finally:
        await consumer.stop()


@pytest.fixture(scope="module")
def lived(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Counts]:
    """Half a minute of several clients through kproxy with rules on; the audit's folder, and what they counted."""
    from kproxy.testing.process import Proxy

    folder, counts = tmp_path_factory.mktemp("audit"), Counts()
    listen = f"127.0.0.1:{free_port()}"
    config = {
        "clusters": {"main": {"bootstrap": [kafka.bootstrap("PROXIED")]}},
        "listeners": [{"name": "outside", "bind": listen, "cluster": "main"}],
        "audit": {"dir": str(folder), "flush": "200ms"},
    }
    with Proxy(config=json.loads(json.dumps(config)), rules=RULES) as proxy:
        address = proxy.bootstrap
        topics = [NewTopic(name, 3, 1) for name in ("audit-orders", "audit-clicks")]
        admin = AdminClient({"bootstrap.servers": address, "client.id": "admin"})
        for created in admin.create_topics(topics).values():
            created.result(60)
        write_confluent(address, "lucky", "audit-orders", 2000, counts)
        write_confluent(address, "unlucky", "audit-orders", 500, counts, **{"enable.idempotence": True})
        write_confluent(address, "careless", "audit-clicks", 300, counts, acks=0)
        asyncio.run(write_aiokafka(address, "slow", "audit-clicks", 700, counts))
        read_confluent(address, "classic", "audit-orders", 2500, counts)
        read_confluent(address, "modern", "audit-clicks", 1000, counts, **{"group.protocol": "consumer"})
        asyncio.run(read_aiokafka(address, "python", "audit-clicks", 1000, counts))
    return folder, counts


@pytest.fixture(scope="module")
def answers(lived: tuple[Path, Counts], spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Gold tables of it, by name; with KPROXY_TEST_ALL=1 all are made."""
    run = Run(spark, Lake(spark, str(tmp_path_factory.mktemp("lake"))), print)
    assert bronze(run, FileSource(str(lived[0]))).corrupt == 0
    silver(run)
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("KPROXY_TEST_ALL"):
            patch.setattr(job, "ANSWERS", [answer_named(name) for name in READ])
        job.gold(run)
    lake = GoldLake(run.lake)
    return lambda name: [row.asDict() for row in lake.read(answer_named(name)).collect()]


def test_who_wrote_and_how_much(answers: Callable[[str], Any], lived: tuple[Path, Counts]) -> None:
    """Each client's acknowledged records, and those of acks=0, by topic; the renamed topic has both names."""
    found: Counter[tuple[str, str]] = Counter()
    for row in answers("topic_producers"):
        assert row["unconfirmed_records" if row["client_id"] != "careless" else "records"] == 0
        found[row["client_id"], row["topic"]] += row["records"] + row["unconfirmed_records"]
        assert row["broker_topic"] == {"audit-orders": "prod.audit-orders"}.get(row["topic"], row["topic"])

    assert found == lived[1].written


def test_who_read_and_how_much(answers: Callable[[str], Any], lived: tuple[Path, Counts]) -> None:
    """Each record that a client got, and no other; librdkafka may fetch a little again after it closes a partition."""
    found: Counter[tuple[str, str]] = Counter()
    for row in answers("topic_consumers"):
        found[row["client_id"], row["topic"]] += row["records"]

    assert found == lived[1].read


def test_groups_and_what_they_committed(answers: Callable[[str], Any], lived: tuple[Path, Counts]) -> None:
    """The last commit of each group and partition; nothing is left to read."""
    committed = {
        (row["group"], row["partition"]): row["committed_offset"]
        for row in answers("group_lag")
        if row["committed_offset"] is not None
    }

    assert committed == {key: offset for key, offset in lived[1].committed.items() if offset >= 0}
    assert {row["group"] for row in answers("group_health")} == {key[0] for key in lived[1].committed}


def test_injected_errors_are_told_with_their_rule(answers: Callable[[str], Any]) -> None:
    """Three writes were refused in the broker's place."""
    (refused,) = [row for row in answers("rules_effect") if row["rule"] == "refused"]
    errors = [row for row in answers("errors_and_denials") if row["error"] == "NOT_LEADER_OR_FOLLOWER"]

    assert (refused["fired"], refused["applied"]) == (3, 3)
    assert {row["client_id"] for row in errors} == {"unlucky"}
    assert sum(row["count"] for row in errors if row["scope"] == "partition") >= 3


def test_how_producers_write(answers: Callable[[str], Any]) -> None:
    """acks, idempotence and compression as they were set."""
    found = {row["client_id"]: row for row in answers("producer_hygiene")}

    assert {client: row["acks_0"] for client, row in found.items()} == {
        "lucky": 0.0, "unlucky": 0.0, "slow": 0.0, "careless": 1.0,
    }  # fmt: skip
    assert found["unlucky"]["idempotent"] == 1.0
    assert found["lucky"]["idempotent"] == 0.0
    assert found["slow"]["codecs"] == ["gzip"]


def test_nothing_is_missing(answers: Callable[[str], Any], lived: tuple[Path, Counts]) -> None:
    """Topics that the cluster has are known, the used ones as used."""
    verdicts = {row["broker_topic"]: row["verdict"] for row in answers("unused_topics")}

    assert verdicts["prod.audit-orders"] == verdicts["audit-clicks"] == "in use"
