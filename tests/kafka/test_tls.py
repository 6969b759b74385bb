"""TLS on one side or both, with the Python clients; brokers told apart by the names in TLS (SNI)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Partition

from kproxy.testing.kafka import Kafka, KafkaListener
from kproxy.testing.plugin import Proxies
from kproxy.testing.process import Proxy, free_port, free_ports
from tests.support.certificates import Authority, client_context
from tests.support.topics import create_topics

pytestmark = pytest.mark.usefixtures("kafka_python")
SIDES = ("plain", "tls", "mtls")
SECONDS = 30


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The one that all trust."""
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Path:
    """The client's certificate."""
    return authority.issue("client.example", common_name="client")


@pytest.fixture(scope="module")
def tls_kafka(authority: Authority) -> Iterator[Kafka]:
    """A broker with a listener of each sort."""
    stores = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.issue("127.0.0.1"))}
    stores |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.file)}
    listeners = [
        KafkaListener("PLAIN"),
        KafkaListener("TLS", "SSL", stores | {"ssl.client.auth": "none"}),
        KafkaListener("MTLS", "SSL", stores | {"ssl.client.auth": "required"}),
    ]
    with Kafka(1, listeners=listeners) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ways(tls_kafka: Kafka, authority: Authority) -> Iterator[dict[tuple[str, str], str]]:
    """One kproxy with a listener for each pair (towards clients, towards the broker): where to connect."""
    cert = str(authority.issue("127.0.0.1", common_name="kproxy", file="kproxy.pem"))
    upstream = {"plain": None, "tls": {"ca": str(authority.file)}, "mtls": {"ca": str(authority.file), "cert": cert}}
    towards = {"plain": None, "tls": {"cert": cert}, "mtls": {"cert": cert, "client_ca": str(authority.file)}}
    pairs = [(near, far) for near in SIDES for far in SIDES]
    ports = dict(zip(pairs, free_ports(len(pairs)), strict=True))
    places = {pair: f"127.0.0.1:{port}" for pair, port in ports.items()}
    config = {
        "clusters": {far: {"bootstrap": [tls_kafka.bootstrap(far.upper())], "tls": upstream[far]} for far in SIDES},
        "listeners": [
            {"name": f"{near}-{far}", "bind": places[near, far], "cluster": far, "tls": towards[near],
             "advertise": {"ports": f"{ports[near, far] + 1}-{ports[near, far] + 10}"}}
            for near, far in pairs
        ],
    }  # fmt: skip
    with Proxy(config=config):
        yield places


def by_kafka_python(bootstrap: str, context: ssl.SSLContext | None, topic: str) -> list[bytes]:
    """What kafka-python reads of the three records that it wrote to three partitions."""
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap}
    if context is not None:
        settings |= {"security_protocol": "SSL", "ssl_context": context}
    with closing(KafkaProducer(**settings)) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number, partition=number).get(SECONDS)
    with closing(KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=SECONDS * 1000, **settings)) as reader:
        reader.assign([Partition(topic, number) for number in range(3)])
        return sorted(record.value for record in islice(reader, 3))


def by_aiokafka(bootstrap: str, context: ssl.SSLContext | None, topic: str) -> list[bytes]:
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap}
    if context is not None:
        settings |= {"security_protocol": "SSL", "ssl_context": context}

    async def scenario() -> list[bytes]:
        async with AIOKafkaProducer(**settings) as producer:
            for number in range(3):
                await producer.send_and_wait(topic, b"%d" % number, partition=number)
        async with AIOKafkaConsumer(auto_offset_reset="earliest", **settings) as reader:
            reader.assign([TopicPartition(topic, number) for number in range(3)])
            return sorted([(await reader.getone()).value for _ in range(3)])

    return asyncio.run(asyncio.wait_for(scenario(), SECONDS))


@pytest.mark.parametrize("far", SIDES)
@pytest.mark.parametrize("near", SIDES)
@pytest.mark.parametrize("client", [by_kafka_python, by_aiokafka])
def test_tls_on_each_side(
    ways: dict[tuple[str, str], str],
    tls_kafka: Kafka,
    authority: Authority,
    own: Path,
    client: Callable[..., list[bytes]],
    near: str,
    far: str,
) -> None:
    """Plain, TLS and TLS with certificates of both ends, in all pairs: what is produced is what is consumed."""
    context = None if near == "plain" else client_context(authority.file, own if near == "mtls" else None)
    topic = f"{client.__name__}-{near}-{far}"
    create_topics(tls_kafka.bootstrap(), topic, partitions=3)

    assert client(ways[near, far], context, topic) == [b"0", b"1", b"2"]


def test_brokers_are_told_apart_by_name(
    kafka3: Kafka,
    kproxy_process: Proxies,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three brokers behind one port: kafka-python goes to each by the name that Metadata gave it."""
    port = free_port()
    proxy = kproxy_process(
        config={
            "clusters": {"main": {"bootstrap": kafka3.bootstrap("PROXIED").split(",")}},
            "listeners": [
                {
                    "name": "main",
                    "bind": f"127.0.0.1:{port}",
                    "cluster": "main",
                    "tls": {"cert": str(authority.issue("*.example.test"))},
                    "advertise": {"sni": f"b{{node}}.example.test:{port}"},
                }
            ],
        }
    )
    asked: set[str] = set()
    resolve = socket.getaddrinfo

    def resolve_here(host: Any, *others: Any, **more: Any) -> Any:
        if str(host).endswith(".example.test"):
            asked.add(host)
            host = "127.0.0.1"
        return resolve(host, *others, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_here)
    create_topics(kafka3.bootstrap(), "by-name", partitions=3)

    found = by_kafka_python(f"kafka.example.test:{port}", client_context(authority.file), "by-name")

    assert found == [b"0", b"1", b"2"]
    assert asked == {"kafka.example.test", *(f"b{node}.example.test" for node in kafka3.brokers)}
    assert proxy.said("node has a port") == []
