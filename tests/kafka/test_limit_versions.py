"""limit_versions before a real broker: what clients are told, and what becomes of those that ignore it."""

from __future__ import annotations

import os
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from kproxy.protocol.table import schema
from kproxy.protocol.table.releases import supported
from kproxy.testing.kafka import Kafka
from kproxy.testing.plugin import Proxies
from kproxy.testing.process import Proxy
from tests.support.java_program import JavaError, JavaProgram
from tests.support.raw_client import RawClient

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
API_VERSIONS, PRODUCE, FETCH, GROUP_HEARTBEAT = 18, 0, 1, 68
ASKED = {"client_software_name": "raw", "client_software_version": "1"}
COUNT = 30


def told(address: str) -> dict[str, Any]:
    """The answer to ApiVersions 3, with the ranges by API."""
    with RawClient(address) as client:
        body = client.call(API_VERSIONS, 3, ASKED)
    assert body["error_code"] == 0
    ranges = {entry["api_key"]: (entry["min_version"], entry["max_version"]) for entry in body["api_keys"]}
    return body | {"ranges": ranges}


def levels(body: dict[str, Any]) -> dict[str, int]:
    return {feature["name"]: feature["max_version_level"] for feature in body["finalized_features"]}


def limited(kafka: Kafka, kproxy_process: Proxies, /, **fields: Any) -> Proxy:
    """A proxy with one such rule."""
    return kproxy_process(
        kafka.bootstrap("PROXIED"), rules=[{"name": "older brokers", "kind": "limit_versions", **fields}]
    )


@pytest.fixture(scope="module")
def own(kafka: Kafka) -> dict[int, tuple[int, int]]:
    """What clients are told without a rule."""
    with Proxy(kafka.bootstrap("PROXIED")) as proxy:
        ranges: dict[int, tuple[int, int]] = told(proxy.bootstrap)["ranges"]
        return ranges


@pytest.mark.parametrize("release", ["0.11.0", "2.8", "3.9"] if EVERYTHING else ["0.11.0", "3.9"])
def test_the_broker_looks_like_an_older_one(
    kafka: Kafka, kproxy_process: Proxies, own: dict[int, tuple[int, int]], release: str
) -> None:
    """Every API has what that release and the broker, seen without a rule, both have; no other is there."""
    proxy = limited(kafka, kproxy_process, kafka=release)
    with RawClient(proxy.bootstrap) as client:  # as version 0, which every release has
        listed = client.call(API_VERSIONS, 0, {})["api_keys"]
    found = {entry["api_key"]: (entry["min_version"], entry["max_version"]) for entry in listed}

    expected = {}
    for key, (first, last) in supported(release).items():
        low, high = own.get(key, (0, -1))
        low, high = max(low, first), min(high, last)
        if low <= high:
            expected[key] = low, high
    assert found == expected
    assert found[PRODUCE][0] == own[PRODUCE][0] == 0


def test_features_go_with_their_versions(kafka: Kafka, kproxy_process: Proxies) -> None:
    """A broker of today has transactions and groups of a kind that 3.9 lacks."""
    own = levels(told(kafka.bootstrap("DIRECT")))
    assert (own["transaction.version"], own["group.version"]) == (2, 1)

    as_39 = levels(told(limited(kafka, kproxy_process, kafka="3.9").bootstrap))
    without = levels(told(limited(kafka, kproxy_process, hide=["ConsumerGroupHeartbeat"]).bootstrap))

    assert as_39["transaction.version"] == 1
    assert as_39["metadata.version"] == own["metadata.version"]
    assert "group.version" not in without
    assert without["transaction.version"] == 2


def test_api_versions_itself(kafka: Kafka, kproxy_process: Proxies) -> None:
    """A version that the rule does not allow is answered with error 35 as version 0; the connection goes on."""
    with RawClient(limited(kafka, kproxy_process, kafka="2.3").bootstrap) as client:
        client.send(client.request(API_VERSIONS, 3, ASKED))
        frame = client.frame()
        assert frame[4:] == bytes.fromhex("0023 00000001 0012 0000 0002")
        assert client.call(API_VERSIONS, 2, {})["error_code"] == 0


def test_a_frame_that_ignores_it_closes(kafka: Kafka, kproxy_process: Proxies) -> None:
    """Counted by API, and the log names the rule."""
    proxy = limited(kafka, kproxy_process, apis={"Fetch": "4-11"})
    body = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1, "topics": []}
    for version in (3, 12):
        with RawClient(proxy.bootstrap) as client:
            client.send(client.request(FETCH, version, body))
            assert client.rest() == b""

    assert proxy.metric("kproxy_requests_blocked_total", api="Fetch") == 2
    assert proxy.metric("kproxy_addresses_withheld_total", action="blocked") == 0
    assert 'Fetch 3: the rule \\"older brokers\\" allows 4-11' in proxy.logs(1000)


@pytest.mark.deep
@pytest.mark.parametrize("release", ["2.8", "3.9"] if EVERYTHING else ["2.8"])
def test_java_clients_live_with_an_older_broker(
    kafka: Kafka, kproxy_process: Proxies, java: JavaProgram, release: str
) -> None:
    """Transactions copy exactly once and groups consume, in frames of that release alone: nothing is stopped."""
    proxy = limited(kafka, kproxy_process, kafka=release)
    source, target = f"limit-{release}-source", f"limit-{release}-target"
    config = {"bootstrap.servers": proxy.bootstrap}
    java("produce", config=config, topic=source, tag="v", count=COUNT, padding=10)
    reader = config | {"group.id": source, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}

    done = java(
        "copy", consumer=reader | {"enable.auto.commit": False}, producer=config | {"transactional.id": source},
        **{"from": source, "to": target}, count=COUNT,
    )  # fmt: skip
    rows = java("consume", config=reader | {"group.id": target}, topics=[target], count=COUNT, seconds=30)

    assert done["copied"] == COUNT
    assert sorted(row[2] for row in rows) == sorted({row[2] for row in rows})
    assert len(rows) == COUNT
    assert proxy.samples("kproxy_requests_blocked_total") == []
    seen = {
        (labels["api"], int(labels["version"])) for labels, value in proxy.samples("kproxy_requests_total") if value
    }
    names, have = schema.names(), supported(release)
    assert ("Produce", have[PRODUCE][1]) in seen
    assert all(have[names[api]][0] <= version <= have[names[api]][1] for api, version in seen if api != "ApiVersions")


@pytest.mark.parametrize("release", ["0.11.0", "1.1", "2.4"] if EVERYTHING else ["0.11.0", "2.4"])
def test_librdkafka_lives_with_an_older_broker(kafka: Kafka, kproxy_process: Proxies, release: str) -> None:
    """Records go in and come out, and nothing is stopped."""
    proxy = limited(kafka, kproxy_process, kafka=release)
    topic, delivered = f"limit-rd-{release}", list[Any]()
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(topic, f"v{number}", callback=lambda error, _: delivered.append(error))
    assert producer.flush(30) == 0
    assert delivered == [None] * COUNT
    consumer = Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        found = [message.value().decode() for message in consumer.consume(COUNT, 30) if not message.error()]
    finally:
        consumer.close()

    assert sorted(found) == sorted(f"v{number}" for number in range(COUNT))
    assert proxy.samples("kproxy_requests_blocked_total") == []


@pytest.mark.deep
def test_a_java_consumer_is_told_that_the_new_protocol_is_not_there(
    kafka: Kafka, kproxy_process: Proxies, java: JavaProgram
) -> None:
    """group.protocol=consumer ends with UnsupportedVersionException; the classic protocol is not touched."""
    proxy = limited(kafka, kproxy_process, hide=["ConsumerGroupHeartbeat"])
    config = {"bootstrap.servers": proxy.bootstrap, "group.id": "limit-hidden", "auto.offset.reset": "earliest"}
    java("produce", config={"bootstrap.servers": proxy.bootstrap}, topic="limit-hidden", tag="v", count=1, padding=1)

    with pytest.raises(JavaError, match="UnsupportedVersionException"):
        java("consume", config=config | {"group.protocol": "consumer"}, topics=["limit-hidden"], count=1, seconds=30)
    assert len(java("consume", config=config, topics=["limit-hidden"], count=1, seconds=30)) == 1
