"""Workloads of real clients whose partitions get other leaders meanwhile, in order or since one was killed."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from threading import Event, Thread

from confluent_kafka import KafkaException, Producer

from kproxy.protocol.table import api_keys
from kproxy.testing.kafka import Kafka
from kproxy.testing.one_request import ask
from tests.support.topics import create_topics
from tests.support.wait import until
from tests.tools.verify.site import PATIENCE, Site


@dataclass
class Background:
    """Writer that goes on beside what is done to brokers. `acknowledged`: batches so far."""

    site: Site
    producer: Producer
    acknowledged: int = 0
    failed: int = 0

    def __enter__(self) -> Background:
        self.over = Event()
        self.thread = Thread(target=self.work, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.over.set()
        self.thread.join(PATIENCE)
        assert not self.failed

    def work(self) -> None:
        """Write a batch, wait for its answer, and so on."""
        while not self.over.wait(0.02):
            try:
                self.site.write(self.producer, 1000 + self.acknowledged)
            except (AssertionError, KafkaException):
                self.failed += 1
                return
            self.acknowledged += 1

    def more(self) -> None:
        """Wait until some batches more have been acknowledged."""
        wanted = self.acknowledged + 3
        until(lambda: self.acknowledged >= wanted or self.failed, PATIENCE)


def create_on(site: Site, nodes: list[int]) -> None:
    """Make the topic of a workload with its partition on these brokers, of which the first leads."""
    topic = {
        "name": site.name, "num_partitions": -1, "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": nodes}],
        "configs": [],
    }  # fmt: skip
    made = site.ask(api_keys.CREATE_TOPICS, 4, {"topics": [topic], "timeout_ms": 30_000, "validate_only": False})
    assert not made["topics"][0]["error_code"], made
    create_topics(site.kafka.bootstrap(), site.name)


def lead_by(site: Site, nodes: list[int]) -> None:
    """Have the first of these brokers lead the partition, once all of them are in sync."""
    part = {"partition_index": 0, "replicas": nodes}
    body = {"timeout_ms": 30_000, "topics": [{"name": site.name, "partitions": [part]}]}
    ask(site.kafka.bootstrap().split(",")[nodes[0] - 1], api_keys.ALTER_PARTITION_REASSIGNMENTS, 0, body, timeout=30)
    wanted = {"election_type": 0, "timeout_ms": 30_000, "topic_partitions": [{"topic": site.name, "partitions": [0]}]}

    def leads() -> bool:
        ask(site.kafka.bootstrap().split(",")[nodes[0] - 1], api_keys.ELECT_LEADERS, 2, wanted, timeout=30)
        told = ask(site.kafka.bootstrap().split(",")[nodes[0] - 1], api_keys.METADATA, 4,
                   {"topics": [{"name": site.name}], "allow_auto_topic_creation": False})  # fmt: skip
        (part,) = told["topics"][0]["partitions"]
        return bool(part["leader_id"] == nodes[0])

    until(leads, PATIENCE)


def moved(site: Site) -> None:
    """The partition is led by each broker in turn, while it is written and read."""
    create_on(site, [1, 2, 3])
    with Background(site, site.producer()) as writer:
        writer.more()
        for nodes in ([2, 3, 1], [3, 1, 2], [1, 2, 3])[: 3 if os.environ.get("KPROXY_TEST_ALL") else 2]:
            lead_by(site, nodes)
            writer.more()
            site.read("early")
    site.read("early")
    site.read("late")


def controller(kafka: Kafka) -> int:
    """Return the broker that leads the controllers."""
    body = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
    told = ask(kafka.bootstrap().split(",")[0], api_keys.DESCRIBE_QUORUM, 0, body)
    return int(told["topics"][0]["partitions"][0]["leader_id"])


def killed(every: Site, one: Site) -> None:
    """The leader of two partitions is killed: one is written with acks of all, and loses nothing; the other with acks
    of the leader, and loses what no follower had got, since they stood still."""
    kafka = every.kafka
    victim = next(node for node in (3, 2, 1) if node != controller(kafka))
    others = [node for node in (1, 2, 3) if node != victim]
    for site in (every, one):
        create_on(site, [victim, *others])
    loose = {"acks": 1, "enable_idempotence": False, "retries": 0}
    with Background(every, every.producer()) as writer:
        writer.more()
        producer = one.producer(**loose)
        one.write(producer, 0, 1)
        every.read("early")
        one.read("early")
        pids = [child.pid for node in others if (child := kafka.brokers[node].child) is not None]
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            one.write(producer, 2, 3, 4, 5)
            kafka.stop_broker(victim, kill=True)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        writer.more()
        one.write(one.producer(**loose | {"retries": 100}), 6, 7, 8)
        one.read("early")
        kafka.start_broker(victim)
        for site in (every, one):
            lead_by(site, [victim, *others])
        writer.more()
        one.write(one.producer(**loose | {"retries": 100}), 9, 10)
    for site in (every, one):
        site.read("early")
        site.read("late")
