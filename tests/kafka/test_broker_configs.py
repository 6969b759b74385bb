"""Configs of a real broker tell clients no address of it, and what is hidden cannot be written back."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from kproxy.testing.kafka import Kafka
from kproxy.testing.plugin import Proxies

BROKER = ConfigResource.Type.BROKER
HIDDEN = {"listeners", "advertised.listeners", "controller.quorum.voters", "controller.quorum.bootstrap.servers"}


def configs(bootstrap: str) -> dict[str, ConfigEntry]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (node,) = admin.list_topics(timeout=60).brokers
    (future,) = admin.describe_configs([ConfigResource(BROKER, str(node))]).values()
    found: dict[str, ConfigEntry] = future.result(60)
    return found


def test_configs_of_a_broker_show_no_address(kafka: Kafka, kproxy_process: Proxies) -> None:
    """Those with addresses are hidden as passwords are, all others are as the broker has them."""
    proxy = kproxy_process(kafka.bootstrap("PROXIED"))
    shown, real = configs(proxy.bootstrap), configs(kafka.bootstrap("DIRECT"))
    ports = {str(port) for name in ("PROXIED", "DIRECT") for port in kafka.ports(name)}

    assert shown.keys() == real.keys()
    hidden = {name for name, one in shown.items() if one.value != real[name].value}
    assert {"listeners", "advertised.listeners"} <= hidden <= HIDDEN
    assert all(shown[name].value is None and shown[name].is_sensitive for name in hidden)
    told = [one.value for entry in shown.values() for one in (entry, *entry.synonyms.values()) if one.value]
    assert not [value for value in told if any(f":{port}" in value for port in ports)]
    assert any(port in (real["advertised.listeners"].value or "") for port in ports)


def test_what_is_hidden_is_not_written_back(kafka: Kafka, kproxy_process: Proxies) -> None:
    """A client that sends the null that it has read is refused by the broker, whose listeners stay."""
    proxy = kproxy_process(kafka.bootstrap("PROXIED"))
    before = configs(kafka.bootstrap("DIRECT"))["advertised.listeners"].value
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    (node,) = admin.list_topics(timeout=60).brokers
    entry = ConfigEntry("advertised.listeners", "", incremental_operation=AlterConfigOpType.SET)
    (future,) = admin.incremental_alter_configs(
        [ConfigResource(BROKER, str(node), incremental_configs=[entry])]
    ).values()
    with pytest.raises(KafkaException):
        future.result(60)

    assert configs(kafka.bootstrap("DIRECT"))["advertised.listeners"].value == before
