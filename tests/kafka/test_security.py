"""A cluster with SASL, TLS and names that cannot be resolved: real clients through kproxy, with the real handshakes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from kproxy.protocol.sasl.scram import make_line
from kproxy.testing import one_request
from kproxy.testing.kafka import HOST, Kafka, KafkaListener
from kproxy.testing.plugin import PROXIED, Proxies
from kproxy.testing.process import free_port
from tests.support.java_program import JavaError, JavaProgram

USER, PASSWORD = "alice", "alice-secret"
KPROXYS = "alices-at-kproxy"
REAUTHENTICATE_MS = 1500  # a client must log in again that often (KIP-368)
HIDDEN = "broker.kproxy.invalid"  # RFC 2606: this name never resolves
RENAME = {"name": "r", "kind": "rename_topic", "topics": {"ren-*": "prod.ren-*"}}


@dataclass(frozen=True)
class Keys:
    """PEM files: an authority, and a certificate with its key for the broker, for kproxy and for a client."""

    folder: Path

    def __post_init__(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.folder / "ca.pem")
        for name in ("broker", "kproxy", "client"):
            made = authority.issue_cert(HOST, "localhost", common_name=name)
            key = load_pem_private_key(made.private_key_pem.bytes(), None)
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # the only form Kafka reads
            (self.folder / f"{name}.key").write_bytes(pem)
            chain = b"".join(part.bytes() for part in made.cert_chain_pems)
            (self.folder / f"{name}.crt").write_bytes(chain)
            (self.folder / f"{name}.pem").write_bytes(pem + chain)

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def secure_kafka(keys: Keys) -> Iterator[Kafka]:
    """One broker with a listener of each sort."""
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    sasl = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "plain.sasl.jaas.config": f'{plain} required user_{USER}="{PASSWORD}";',
        "scram-sha-256.sasl.jaas.config": f"{scram} required;",
        "scram-sha-512.sasl.jaas.config": f"{scram} required;",
        "connections.max.reauth.ms": str(REAUTHENTICATE_MS),
    }
    tls = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keys["broker.pem"],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": keys["ca.pem"],
        "ssl.client.auth": "required",
    }
    listeners = [
        PROXIED,
        KafkaListener("HIDDEN", advertise=HIDDEN),
        KafkaListener("SASL", "SASL_PLAINTEXT", sasl),
        KafkaListener("TLS", "SSL", tls),
    ]
    access = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Kafka(1, listeners=listeners, scram={USER: PASSWORD}, properties=access) as cluster:
        yield cluster


def there_and_back(settings: dict[str, str], topic: str) -> list[str]:
    """What confluent-kafka consumes of three records that it produced."""
    producer = Producer(settings | {"message.timeout.ms": "20000"})
    for number in range(3):
        producer.produce(topic, f"value-{number}")
    assert producer.flush(30) == 0
    consumer = Consumer(settings | {"group.id": f"g-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    received = consumer.consume(3, 30)
    consumer.close()
    return sorted((message.value() or b"").decode() for message in received)


VALUES = ["value-0", "value-1", "value-2"]


def test_brokers_whose_names_do_not_resolve_are_dialled_where_told(
    secure_kafka: Kafka, kproxy_process: Proxies
) -> None:
    """With `dial`, clients work although no machine can resolve the names that the brokers advertise."""
    port = secure_kafka.brokers[1].ports["HIDDEN"]
    listen = f"{HOST}:{free_port()}"
    main = {"bootstrap": [f"{HOST}:{port}"], "dial": {f"{HIDDEN}:{port}": f"{HOST}:{port}"}}
    proxy = kproxy_process(
        config={"clusters": {"main": main}, "listeners": [{"name": "main", "bind": listen, "cluster": "main"}]},
        rules=[RENAME],
    )

    assert one_request.brokers(f"{HOST}:{port}") == {1: f"{HIDDEN}:{port}"}
    assert there_and_back({"bootstrap.servers": proxy.bootstrap}, "ren-dialled") == VALUES
    assert "prod.ren-dialled" in one_request.topics(secure_kafka.bootstrap())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_sasl_logs_in_through_the_proxy(secure_kafka: Kafka, kproxy_process: Proxies, mechanism: str) -> None:
    """librdkafka authenticates through kproxy; the same client with a wrong password is turned away by the broker."""
    proxy = kproxy_process(secure_kafka.bootstrap("SASL"), rules=[RENAME])
    settings = {"bootstrap.servers": proxy.bootstrap, "security.protocol": "SASL_PLAINTEXT"}
    settings |= {"sasl.mechanism": mechanism, "sasl.username": USER, "log_level": "0"}
    topic = f"ren-sasl-{mechanism.lower()}"

    assert there_and_back(settings | {"sasl.password": PASSWORD}, topic) == VALUES
    assert f"prod.{topic}" in one_request.topics(secure_kafka.bootstrap())
    with pytest.raises(KafkaException):
        AdminClient(settings | {"sasl.password": "wrong"}).list_topics(timeout=3)
    assert PASSWORD not in proxy.logs(10_000)


def java_sasl(bootstrap: str, password: str = PASSWORD) -> dict[str, Any]:
    """Settings of a Java client that logs in with SCRAM-SHA-512."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="{USER}" password="{password}";',
    }


@pytest.mark.deep
def test_live_connections_log_in_again(secure_kafka: Kafka, kproxy_process: Proxies, java: JavaProgram) -> None:
    """While records flow, Java clients re-authenticate on their open connections (KIP-368); nothing is lost."""
    proxy = kproxy_process(secure_kafka.bootstrap("SASL"), rules=[RENAME])
    base = java_sasl(proxy.bootstrap)
    consumer = base | {"group.id": "g-again", "auto.offset.reset": "earliest"}
    logins = {"api": "SaslAuthenticate"}

    java("traffic_start", name="again", topic="ren-again", producer=base | {"acks": "all"}, consumer=consumer)
    first = proxy.metric("kproxy_requests_total", **logins)
    for _ in range(200):
        java("traffic_wait", name="again")
        if proxy.metric("kproxy_requests_total", **logins) >= first + 8:  # two connections or more, twice, in two steps
            break
    report = java("traffic_stop", name="again")

    assert proxy.metric("kproxy_requests_total", **logins) >= first + 8
    assert (report["errors"], report["missing"]) == ([], [])
    assert "prod.ren-again" in one_request.topics(secure_kafka.bootstrap())


@pytest.mark.deep
def test_java_clients_log_in_to_kproxy_again_and_again(
    secure_kafka: Kafka, kproxy_process: Proxies, java: JavaProgram, tmp_path: Path
) -> None:
    """The same where kproxy itself is who they log in to, and logs in to the broker: both sessions are renewed while
    records flow, none is lost, and no connection is cut off. A wrong password is told as by a broker."""
    (tmp_path / "users").write_text(make_line(USER, "SCRAM-SHA-512", KPROXYS, b"salt-of-alice", 4096))
    sasl = {"mechanism": "SCRAM-SHA-256", "username": USER, "password": PASSWORD}
    asks = {"users": str(tmp_path / "users"), "max_session": REAUTHENTICATE_MS / 1000}
    listener = {"name": "main", "bind": f"{HOST}:{free_port()}", "cluster": "main", "sasl": asks}
    main = {"bootstrap": [secure_kafka.bootstrap("SASL")], "sasl": sasl}
    proxy = kproxy_process(config={"clusters": {"main": main}, "listeners": [listener]}, rules=[RENAME])
    base = java_sasl(proxy.bootstrap, KPROXYS)
    consumer = base | {"group.id": "g-ended", "auto.offset.reset": "earliest"}

    java("traffic_start", name="ended", topic="ren-ended", producer=base | {"acks": "all"}, consumer=consumer)
    for _ in range(200):
        java("traffic_wait", name="ended")
        if proxy.metric("kproxy_client_logins_total") >= 10:
            break
    report = java("traffic_stop", name="ended")

    assert (report["errors"], report["missing"]) == ([], [])
    assert proxy.metric("kproxy_client_logins_total") >= 10
    assert proxy.metric("kproxy_broker_sessions_renewed_total") >= 2
    assert proxy.metric("kproxy_connections_closed_total", cause="unauthenticated") == 0
    with pytest.raises(JavaError, match="SaslAuthenticationException: Authentication failed"):
        java("admin", config=java_sasl(proxy.bootstrap, "wrong"), steps=[["list"]])


@pytest.mark.deep
def test_a_wrong_password_is_the_brokers_answer(
    secure_kafka: Kafka, kproxy_process: Proxies, java: JavaProgram
) -> None:
    """The Java client is told of a failed login as by the broker itself."""
    proxy = kproxy_process(secure_kafka.bootstrap("SASL"))

    with pytest.raises(JavaError, match="SaslAuthenticationException"):
        java("admin", config=java_sasl(proxy.bootstrap, "wrong"), steps=[["list"]])


@pytest.mark.deep
def test_acls_are_about_the_clients_names(secure_kafka: Kafka, kproxy_process: Proxies, java: JavaProgram) -> None:
    """An ACL on a client-side name, exact or by prefix, guards the broker's topic, and is shown as it was given."""
    direct = {"bootstrap.servers": secure_kafka.bootstrap()}
    admin = {"bootstrap.servers": kproxy_process(secure_kafka.bootstrap("PROXIED"), rules=[RENAME]).bootstrap}
    alice = java_sasl(kproxy_process(secure_kafka.bootstrap("SASL"), rules=[RENAME]).bootstrap)
    java("produce", config=alice, topic="ren-acl", tag="before", count=1, padding=0)

    given = [["allow", "LITERAL", "ren-acl", "bob"], ["allow", "PREFIXED", "ren-ac", "bob"], ["acls", "ren-acl"]]
    (*_, seen), (at_broker,) = (
        java("admin", config=admin, steps=given),
        java("admin", config=direct, steps=[["acls", "prod.ren-acl"]]),
    )
    refused = java.start("produce", config=alice, topic="ren-acl", tag="refused", count=1, padding=0).exception(60)
    (revoked,) = java("admin", config=admin, steps=[["revoke", "ren-acl"]])
    for _ in range(100):  # the broker learns of it from the controller, a little later
        if java("admin", config=direct, steps=[["acls", "prod.ren-acl"]]) == [[]]:
            break

    assert seen == revoked == ["LITERAL ren-acl", "PREFIXED ren-ac"]
    assert at_broker == ["LITERAL prod.ren-acl", "PREFIXED prod.ren-ac"]
    assert "TopicAuthorizationException: Not authorized to access topics: [ren-acl]" in str(refused)
    assert java("produce", config=alice, topic="ren-acl", tag="after", count=1, padding=0) == {"ren-acl": 1}


@pytest.mark.deep
def test_tls_with_certificates_on_both_sides(
    secure_kafka: Kafka, kproxy_process: Proxies, keys: Keys, java: JavaProgram
) -> None:
    """Clients show kproxy their certificate, kproxy shows the broker its own; without one a client is refused."""
    listen = f"{HOST}:{free_port()}"
    upstream = {"ca": keys["ca.pem"], "cert": keys["kproxy.crt"], "key": keys["kproxy.key"]}
    towards = {"cert": keys["kproxy.crt"], "key": keys["kproxy.key"], "client_ca": keys["ca.pem"]}
    proxy = kproxy_process(
        config={
            "clusters": {"main": {"bootstrap": [secure_kafka.bootstrap("TLS")], "tls": upstream}},
            "listeners": [{"name": "main", "bind": listen, "cluster": "main", "tls": towards}],
        },
        rules=[RENAME],
    )
    settings = {"bootstrap.servers": proxy.bootstrap, "security.protocol": "SSL", "ssl.ca.location": keys["ca.pem"]}
    own = {"ssl.certificate.location": keys["client.crt"], "ssl.key.location": keys["client.key"]}
    stores = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": keys["ca.pem"],
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keys["client.pem"],
    }

    assert there_and_back(settings | own, "ren-tls") == VALUES
    java_settings = {"bootstrap.servers": proxy.bootstrap, "security.protocol": "SSL"} | stores
    (names,) = java("admin", config=java_settings, steps=[["list"]])
    assert "ren-tls" in names
    assert not any(name.startswith("prod.") for name in names)
    assert "prod.ren-tls" in one_request.topics(secure_kafka.bootstrap())
    with pytest.raises(KafkaException):
        AdminClient(settings | {"log_level": "0"}).list_topics(timeout=3)
