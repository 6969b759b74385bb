"""SASL that ends at kproxy, before a real broker: it logs in there itself over SASL_SSL, by every mechanism, for
clients that know nothing of SASL; and clients log in to kproxy, over SASL_SSL, too."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaProducer

from kproxy.protocol import decode_response
from kproxy.protocol.sasl.scram import make_line
from kproxy.testing import one_request
from kproxy.testing.kafka import Kafka, KafkaListener
from kproxy.testing.plugin import Proxies
from kproxy.testing.process import Proxy, free_port
from tests.support.certificates import Authority
from tests.support.raw_client import EndOfStream, RawClient
from tests.support.wait import until

pytestmark = pytest.mark.usefixtures("kafka_python")
USER, PASSWORD = "kproxy", "own-Pa55word,=of-kproxy"
SCRAM_PASSWORD, WRONG = "scram-Pa55word", "not-the-password"
SESSION_MS = 2000
SECONDS = 30
METADATA = {"topics": [], "allow_auto_topic_creation": False}
ALICES = "Alice5-own,=password"
DENY = {"name": "alice writes no secrets", "kind": "deny", "match": {"principal": "alice", "topic": "secrets"}}
MODULES = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def sasl_ssl(authority: Authority) -> Iterator[Kafka]:
    """A broker that takes nothing but SASL over TLS from others; on SHORT, a login holds for two seconds (KIP-368)."""
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("127.0.0.1", file="broker.pem")),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "plain.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        "scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
        "scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
        "oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
        f'unsecuredLoginStringClaim_sub="{USER}";',
    }
    short = settings | {"connections.max.reauth.ms": str(SESSION_MS)}
    listeners = [KafkaListener("SECURE", "SASL_SSL", settings), KafkaListener("SHORT", "SASL_SSL", short)]
    with Kafka(1, listeners=listeners, scram={USER: SCRAM_PASSWORD}) as cluster:
        yield cluster


def clusters(kafka: Kafka, authority: Authority, folder: Path) -> dict[str, dict[str, Any]]:
    """A cluster for each mechanism, and two whose sessions are short: all the same broker."""
    made = {
        mechanism.lower(): (settings_of(mechanism, folder), "SECURE")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    }
    made["short"] = (made["scram-sha-256"][0], "SHORT")
    made["short-token"] = (made["oauthbearer"][0], "SHORT")
    tls = {"ca": str(authority.file)}
    return {name: {"bootstrap": [kafka.bootstrap(at)], "tls": tls, "sasl": sasl} for name, (sasl, at) in made.items()}


@pytest.fixture(scope="module")
def proxy(sasl_ssl: Kafka, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("proxy")
    there = clusters(sasl_ssl, authority, folder)
    users = folder / "users"
    lines = [make_line("alice", one, ALICES, b"salt-of-alice", 4096) for one in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
    users.write_text("\n".join(lines))
    asks = {"users": str(users), "mechanisms": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]}
    tls = {"cert": str(authority.issue("127.0.0.1", "localhost", file="proxy.pem"))}
    rule = {"name": "r", "kind": "rename_topic", "topics": {"ren-*": "prod.ren-*"}}
    listeners = [{"name": name, "bind": f"127.0.0.1:{free_port()}", "cluster": name} for name in there]
    over_tls = {"bind": f"127.0.0.1:{free_port()}", "cluster": "scram-sha-512", "tls": tls, "sasl": asks}
    plainly = {"bind": f"127.0.0.1:{free_port()}", "cluster": "short", "sasl": {**asks, "max_session": "2s"}}
    listeners += [{"name": "ended", **over_tls}, {"name": "ended-short", **plainly}]
    config = {"clusters": there, "listeners": listeners, "audit": {"dir": str(folder / "audit"), "flush": "50ms"}}
    with Proxy(config=config, rules=[rule, DENY]) as running:
        running.audit = folder / "audit"  # type: ignore[attr-defined]
        running.listeners = {one["name"]: one["bind"] for one in listeners}  # type: ignore[attr-defined]
        yield running


def at(proxy: Proxy, cluster: str) -> str:
    """Where clients of that cluster connect."""
    found: str = proxy.listeners[cluster]  # type: ignore[attr-defined]
    return found


def jwt(lifetime: float) -> str:
    """A token without a signature, which the broker takes in its default setting."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": USER, "iat": now, "exp": now + lifetime})
    return ".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in parts) + "."


def settings_of(mechanism: str, folder: Path) -> dict[str, Any]:
    """How kproxy is told its credentials."""
    if mechanism == "OAUTHBEARER":
        (folder / "token").write_text(jwt(3600) + "\n")
        return {"mechanism": mechanism, "token_file": str(folder / "token")}
    file = folder / f"password-{mechanism}"
    file.write_text((PASSWORD if mechanism == "PLAIN" else SCRAM_PASSWORD) + "\n")
    return {"mechanism": mechanism, "username": USER, "password": f"file:{file}"}


def written(bootstrap: str, topic: str) -> bool:
    """Whether confluent-kafka can write there, over a plain connection."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": "20000"})
    producer.produce(topic, "one")
    return producer.flush(SECONDS) == 0


@pytest.mark.parametrize("mechanism", ["plain", "scram-sha-256", "scram-sha-512", "oauthbearer"])
def test_clients_without_sasl(proxy: Proxy, mechanism: str) -> None:
    """Whatever the mechanism, clients write; names are rewritten as ever; every login is counted."""
    assert written(at(proxy, mechanism), "ren-logins")

    assert "ren-logins" in one_request.topics(at(proxy, mechanism))
    assert proxy.metric("kproxy_broker_logins_total", cluster=mechanism) >= 2
    assert proxy.metric("kproxy_broker_logins_failed_total") == 0
    assert not any(secret in proxy.logs(10_000) for secret in (PASSWORD, SCRAM_PASSWORD))


@pytest.mark.deep
def test_with_workers(sasl_ssl: Kafka, authority: Authority, kproxy_process: Proxies, tmp_path: Path) -> None:
    """Each worker logs in for its own clients, and lets them log in: kafka-python writes, confluent-kafka reads."""
    there = clusters(sasl_ssl, authority, tmp_path)["scram-sha-512"]
    (tmp_path / "users").write_text(make_line("alice", "SCRAM-SHA-256", ALICES, b"salt-of-alice", 4096))
    asks = {"users": str(tmp_path / "users"), "mechanisms": ["PLAIN", "SCRAM-SHA-256"]}
    listener = {"name": "main", "bind": f"127.0.0.1:{free_port()}", "cluster": "main", "sasl": asks}
    proxy = kproxy_process(config={"clusters": {"main": there}, "listeners": [listener], "workers": 2})
    producer = KafkaProducer(
        bootstrap_servers=proxy.bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="alice", sasl_plain_password=ALICES,
    )  # fmt: skip
    with closing(producer):
        producer.send("by-workers", b"two").get(SECONDS)
    consumer = Consumer(
        {
            "bootstrap.servers": proxy.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
            "sasl.username": "alice", "sasl.password": ALICES, "group.id": "g", "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    consumer.assign([TopicPartition("by-workers", 0, 0)])
    (message,) = consumer.consume(1, SECONDS)
    consumer.close()
    assert message.value() == b"two"
    assert proxy.metric("kproxy_broker_logins_total", cluster="main") >= 3
    assert proxy.metric("kproxy_client_logins_total") >= 3


def test_a_clients_own_sasl_goes_nowhere(proxy: Proxy) -> None:
    """It is answered as on a listener without SASL, and the connection stays what it was."""
    with RawClient(at(proxy, "plain")) as client:
        assert client.call(17, 1, {"mechanism": "PLAIN"})["error_code"] == 34
        assert client.call(36, 2, {"auth_bytes": b"\0mallory\0guess"})["error_code"] == 34
        assert len(client.brokers()) == 1


def test_sessions_are_renewed_under_load(proxy: Proxy) -> None:
    """Two clients that have requests in flight without a pause, and one that is idle, all with sessions of two
    seconds: two of each pass by unseen, every answer comes, in order, and no connection has ended. By SCRAM, and with a
    token that is read anew each time."""
    before = proxy.metric("kproxy_broker_sessions_renewed_total")
    opened = proxy.metric("kproxy_connections_opened_total")
    with (
        RawClient(at(proxy, "short")) as scram,
        RawClient(at(proxy, "short-token")) as token,
        RawClient(at(proxy, "short")) as idle,
    ):
        assert len(idle.brokers()) == 1
        asked = 0
        limit = time.monotonic() + SECONDS
        while proxy.metric("kproxy_broker_sessions_renewed_total") < before + 6:
            assert time.monotonic() < limit
            for client in (scram, token):
                client.send(b"".join(client.request(3, 4, METADATA, asked + one) for one in range(50)))
            for number in range(max(0, asked - 10), asked + 40):  # ten are always in flight
                for client in (scram, token):
                    frame = client.frame()
                    assert int.from_bytes(frame[:4], "big") == number
                    assert len(decode_response(frame, 3, 4).body["brokers"]) == 1
            asked += 50
        assert len(idle.brokers()) == 1
    assert proxy.metric("kproxy_connections_opened_total") == opened + 3
    assert proxy.metric("kproxy_connections_closed_total", cause="broker_closed") == 0


def once(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What was logged once, by each worker if there are several."""
    assert len({line.get("worker") for line in lines}) == len(lines) > 0
    return lines[0]


def test_what_the_broker_does_not_take(
    sasl_ssl: Kafka, authority: Authority, kproxy_process: Proxies, tmp_path: Path
) -> None:
    """Not ready; a client that asks for versions is told SASL_AUTHENTICATION_FAILED, which librdkafka logs; one line
    says which broker and what it said; counted. So for clusters whose TLS or SASL is not what their brokers have. The
    clients of the one that is right go on."""
    good = clusters(sasl_ssl, authority, tmp_path)["scram-sha-256"]
    bad = {**good, "sasl": {**good["sasl"], "password": WRONG}}
    direct = [sasl_ssl.bootstrap()]
    wrong = {
        "no-tls": {**good, "tls": None},
        "neither": {**good, "tls": None, "sasl": None},
        "no-sasl-there": {**good, "bootstrap": direct, "tls": None},
        "no-tls-there": {**good, "bootstrap": direct},
        "foreign": {**good, "tls": {}},
    }
    there = {"bad": bad, "good": good, **wrong}
    listeners = [{"name": name, "bind": f"127.0.0.1:{free_port()}", "cluster": name} for name in there]
    config = {"clusters": there, "listeners": listeners}
    proxy = kproxy_process(config=config, brokers_answer=False)
    with RawClient(proxy.bootstrap) as client:
        assert client.call(18, 3, {"client_software_name": "t", "client_software_version": "1"})["error_code"] == 58
        with pytest.raises(EndOfStream):
            client.frame()
    lines: list[str] = []
    log = logging.getLogger("test_own_login")
    log.addHandler(Collect(lines))
    producer = Producer({"bootstrap.servers": proxy.bootstrap}, logger=log)
    until(lambda: producer.poll(0.1) is not None and lines)
    assert "SASL Authentication failed" in lines[0]
    with RawClient(listeners[1]["bind"]) as client:
        assert len(client.brokers()) == 1

    for one in listeners[2:]:
        with RawClient(one["bind"]) as client:
            client.send(client.request(18, 0, {}))
            client.rest()
    lines_of = ("no broker could be reached", "kproxy's login at a broker failed", "broker refuses kproxy's login")
    reasons = {
        line["cluster"]: str(line.get("reason") or line["tried"]) for one in lines_of for line in proxy.said(one)
    }
    reasons |= {line["listener"]: line["reason"] for line in proxy.said("connection closed", cause="not_kafka")}
    expected = {
        "no-tls": "the broker requires TLS, and its cluster has no tls in the config",
        "neither": "broker requires TLS, and its cluster has no tls in the config",
        "no-sasl-there": "error 34 to SaslHandshake for SCRAM-SHA-256: this listener of the broker has no SASL",
        "no-tls-there": "TLS handshake failed: ",
        "foreign": "certificate verify failed: unable to get local issuer certificate",
    }
    assert {name: words for name, words in expected.items() if words not in reasons.get(name, "")} == {}
    line = once(proxy.said("broker refuses kproxy's login", cluster="bad"))
    assert (line["cluster"], line["mechanism"]) == ("bad", "SCRAM-SHA-256")
    assert "Authentication failed" in line["reason"]
    assert proxy.metric("kproxy_broker_logins_failed_total", cluster="bad") >= 2
    assert proxy.metric("kproxy_connections_closed_total", cause="broker_login") >= 1
    assert (proxy.get("/readyz/bad")[0], proxy.get("/readyz/good")[0]) == (503, 200)
    assert proxy.get("/readyz")[0] == 200
    line = once(proxy.said("connection closed", cause="broker_login", listener="bad"))
    assert line["blame"] == "broker"
    assert WRONG not in proxy.logs(10_000)


# ---- clients that log in to kproxy


def sasl_ssl_settings(proxy: Proxy, authority: Authority, mechanism: str, password: str) -> dict[str, Any]:
    """Of confluent-kafka."""
    return {
        "bootstrap.servers": at(proxy, "ended"), "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism,
        "ssl.ca.location": str(authority.file), "sasl.username": "alice", "sasl.password": password,
        "message.timeout.ms": "20000",
    }  # fmt: skip


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_confluent_kafka_logs_in_to_kproxy(proxy: Proxy, authority: Authority, mechanism: str) -> None:
    """It writes as alice, whom rules know by that name; the broker knows kproxy only. With a wrong password it is told
    so, in words that it logs."""
    good = Producer(sasl_ssl_settings(proxy, authority, mechanism, ALICES))
    errors: list[Any] = []
    for topic in ("ren-logins", "secrets"):
        good.produce(topic, "v", callback=lambda error, _: errors.append(error and error.name()))
        assert good.flush(SECONDS) == 0
    assert errors == [None, "TOPIC_AUTHORIZATION_FAILED"]

    lines: list[str] = []
    log = logging.getLogger("test_own_login")
    log.addHandler(handler := Collect(lines))
    bad = Producer(sasl_ssl_settings(proxy, authority, mechanism, WRONG), logger=log)
    until(lambda: bad.poll(0.1) is not None and lines)
    log.removeHandler(handler)
    assert "SASL authentication error: Authentication failed" in lines[0]
    assert not any(secret in proxy.logs(10_000) for secret in (ALICES, WRONG))


def test_kafka_python_logs_in_to_kproxy(proxy: Proxy, authority: Authority) -> None:
    """By SCRAM-SHA-512 over TLS; who wrote is in the audit."""
    producer = KafkaProducer(
        bootstrap_servers=at(proxy, "ended"), security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512",
        ssl_cafile=str(authority.file), sasl_plain_username="alice", sasl_plain_password=ALICES, client_id="snake",
    )  # fmt: skip
    with closing(producer):
        assert producer.send("ren-logins", b"v").get(SECONDS).offset >= 0
    folder: Path = proxy.audit  # type: ignore[attr-defined]

    def events() -> list[dict[str, Any]]:
        lines = [line for file in folder.rglob("*.ndjson*") for line in file.read_text().splitlines()]
        return [one for one in map(json.loads, lines) if "Sasl" in str(one.get("data", {}).get("api"))]

    until(lambda: [one for one in events() if one["data"].get("client_id") == "snake"])
    text = "".join(file.read_text() for file in folder.rglob("*.ndjson*"))
    assert '"principal":"alice"' in text
    assert ALICES not in text


def test_a_clients_session_is_renewed_or_ends(proxy: Proxy) -> None:
    """kproxy's session at the broker and the client's at kproxy both last two seconds, on one connection: a client that
    logs in again keeps it, one that does not is cut off at its next request."""
    token = f"\0alice\0{ALICES}".encode()

    def log_in(client: RawClient) -> None:
        assert client.call(17, 1, {"mechanism": "PLAIN"})["error_code"] == 0
        answer = client.call(36, 1, {"auth_bytes": token})
        assert (answer["error_code"], answer["session_lifetime_ms"]) == (0, SESSION_MS)

    before = proxy.metric("kproxy_broker_sessions_renewed_total")
    with RawClient(at(proxy, "ended-short")) as client, RawClient(at(proxy, "ended-short")) as lazy:
        log_in(client)
        log_in(lazy)
        places, last = client.brokers(), time.monotonic()
        assert lazy.brokers() == places
        while proxy.metric("kproxy_broker_sessions_renewed_total") < before + 4:
            if time.monotonic() - last > 1.1:
                log_in(client)
                last = time.monotonic()
            assert client.brokers() == places
        lazy.send(lazy.request(3, 4, METADATA))
        assert lazy.rest() == b""
        assert client.brokers() == places
    (line,) = until(lambda: proxy.said("connection closed", cause="unauthenticated"))
    assert line["reason"] == 'the session of user "alice" has ended after 2 s, and Metadata came, not SaslHandshake'


class Collect(logging.Handler):
    """Puts what is logged into a list."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
