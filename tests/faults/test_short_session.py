"""Sessions that end soon, as librdkafka does it: it authenticates again on the open connection (KIP-368)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from kproxy.testing.kafka import Kafka, KafkaListener
from kproxy.testing.process import Proxy
from tests.support.wait import until

USER, PASSWORD = "alice", "alice-secret"
PATIENCE = 30


@pytest.fixture(scope="module")
def sasl_proxy() -> Iterator[Proxy]:
    """A broker whose clients log in for an hour, behind a proxy that says two seconds."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    sasl = {
        "sasl.enabled.mechanisms": "PLAIN",
        "connections.max.reauth.ms": "3600000",
        "plain.sasl.jaas.config": f'{module} required user_{USER}="{PASSWORD}";',
    }
    rule = {"name": "two seconds", "kind": "short_session", "lifetime": "2s"}
    with (
        Kafka(1, listeners=[KafkaListener("SASL", "SASL_PLAINTEXT", sasl)]) as kafka,
        Proxy(kafka.bootstrap("SASL"), rules=[rule]) as proxy,
    ):
        yield proxy


@pytest.mark.deep
def test_the_client_authenticates_again_and_goes_on(sasl_proxy: Proxy) -> None:
    """More often than it has connections, and its records are stored meanwhile."""
    producer = Producer({
        "bootstrap.servers": sasl_proxy.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": USER, "sasl.password": PASSWORD, "log_level": 0,
    })  # fmt: skip
    told: list[str | None] = []

    def write_and_count() -> bool:
        producer.produce("sessions", "value", callback=lambda error, _: told.append(error and error.name()))
        assert producer.flush(PATIENCE) == 0
        again = sasl_proxy.metric("kproxy_requests_total", api="SaslAuthenticate")
        return again >= sasl_proxy.metric("kproxy_connections_opened_total") + 2

    assert until(write_and_count, PATIENCE)
    assert set(told) == {None}
    assert sasl_proxy.metric("kproxy_rule_applied_total", rule="two seconds") >= 3
