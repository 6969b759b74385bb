"""A test of librdkafka with containers of Kafka and kproxy. It needs a container engine and an image of kproxy."""

import os

import pytest
from confluent_kafka import Producer
from kproxy_testcontainers import Kproxy, KproxyContainer
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

IMAGE = os.environ.get("KPROXY_IMAGE", "kproxy")
pytestmark = pytest.mark.skipif("KPROXY_IMAGE" not in os.environ, reason="KPROXY_IMAGE names no image")
KAFKA = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka:9093",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
}


@pytest.fixture(scope="module")
def kafka():
    with Network() as network:
        container = DockerContainer("apache/kafka:4.1.0", env=KAFKA).with_network(network).with_network_aliases("kafka")
        with container.waiting_for(LogMessageWaitStrategy("Kafka Server started")):
            yield network


# snippet: retries
@pytest.fixture(scope="module")
def container(kafka):
    with KproxyContainer(IMAGE, "kafka:9092").with_network(kafka) as container:
        yield container


@pytest.fixture
def kproxy(container):
    with Kproxy(container) as kproxy:
        yield kproxy


def test_third_write_is_sent_again(kproxy):
    rule = kproxy.inject(
        {"kind": "error", "match": {"api": "Produce"}, "when": {"nth": 3}, "error": "NOT_LEADER_OR_FOLLOWER"}
    )
    producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers})
    for value in ("one", "two", "three", "four"):
        producer.produce("orders", value)
        assert producer.flush(30) == 0
    kproxy.assert_applied()
    assert rule.counters().matched == 5  # the fourth request is the second attempt of "three"


# end
