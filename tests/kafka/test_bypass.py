"""Nothing goes past the proxy: what the kernel's socket table says while real clients work."""

from __future__ import annotations

import socket
from contextlib import closing

from confluent_kafka import Producer

from kproxy.testing.kafka import HOST, Kafka
from kproxy.testing.process import Proxy
from tests.support.connection_watch import ConnectionWatch


def test_only_the_proxy_connects_to_brokers(kafka3: Kafka, plain_proxy: Proxy, watch: ConnectionWatch) -> None:
    """A producer that reaches all three brokers opens no connection to any broker's own port; kproxy does."""
    seen = watch.seen
    producer = Producer({"bootstrap.servers": plain_proxy.bootstrap})
    for partition in range(30):
        producer.produce("past", f"value-{partition}")
    assert producer.flush(30) == 0
    brokers = producer.list_topics(timeout=60).brokers.values()
    watch.look()

    assert len(brokers) == 3
    assert not {broker.port for broker in brokers} & kafka3.ports("PROXIED")
    assert watch.seen > seen
    assert watch.strangers == set()


def test_a_client_that_goes_past_is_noticed(kafka: Kafka) -> None:
    """A connection to a broker that is not the proxy's is seen (here on a cluster that no other test watches)."""
    port = kafka.brokers[1].ports["PROXIED"]
    own = ConnectionWatch(kafka.ports("PROXIED"), [])
    with closing(socket.create_connection((HOST, port))):
        own.look()

    assert own.strangers == {port}
