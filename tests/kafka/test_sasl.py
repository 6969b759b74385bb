"""SASL against a real broker: every mechanism in every client, old raw tokens, sessions that run out."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError

from kproxy.protocol import decode_response
from kproxy.testing.kafka import Kafka, KafkaListener
from kproxy.testing.plugin import Proxies
from kproxy.testing.process import Proxy
from tests.support.raw_client import RawClient
from tests.support.wait import until

pytestmark = pytest.mark.usefixtures("kafka_python")
USER, PASSWORD = "alice", "alice-secret"
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
ILLEGAL_SASL_STATE = 34
PLAIN_TOKEN = f"\0{USER}\0{PASSWORD}".encode()
SECONDS = 30
SESSION_MS = 2000


@pytest.fixture(scope="module")
def sasl_kafka() -> Iterator[Kafka]:
    """A broker whose clients log in; on SHORT, for two seconds only (KIP-368)."""
    modules = "org.apache.kafka.common.security"
    sasl = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "plain.sasl.jaas.config": f'{modules}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        "scram-sha-256.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
        "oauthbearer.sasl.jaas.config": f"{modules}.oauthbearer.OAuthBearerLoginModule required "
        f'unsecuredLoginStringClaim_sub="{USER}";',
    }
    short = sasl | {"connections.max.reauth.ms": str(SESSION_MS)}
    listeners = [KafkaListener("SASL", "SASL_PLAINTEXT", sasl), KafkaListener("SHORT", "SASL_PLAINTEXT", short)]
    with Kafka(1, listeners=listeners, scram={USER: PASSWORD}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def sasl_proxy(sasl_kafka: Kafka) -> Iterator[Proxy]:
    """kproxy in front of it, with a rule, so that frames are looked at."""
    rename = {"name": "r", "kind": "rename_topic", "topics": {"ren-*": "prod.ren-*"}}
    with Proxy(sasl_kafka.bootstrap("SASL"), rules=[rename]) as proxy:
        yield proxy


# ---- clients


def by_kafka_python(bootstrap: str, mechanism: str, password: str, patience_ms: int = 10_000) -> int:
    """The offset of a record that kafka-python produced."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=USER,
        sasl_plain_password=password,
        bootstrap_timeout_ms=patience_ms,
    )
    with closing(producer):
        return int(producer.send("ren-kafka-python", b"v").get(SECONDS).offset)


def by_aiokafka(bootstrap: str, mechanism: str, password: str, patience_ms: int = 10_000) -> int:
    async def produce() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=USER,
            sasl_plain_password=password,
            request_timeout_ms=patience_ms,
        )
        try:
            await producer.start()
            return int((await producer.send_and_wait("ren-aiokafka", b"v")).offset)
        finally:
            await producer.stop()

    return asyncio.run(asyncio.wait_for(produce(), SECONDS))


@pytest.mark.filterwarnings(  # clients that could not begin leave sockets and coroutines behind
    "ignore::ResourceWarning",
    "ignore::RuntimeWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize(
    ("client", "refusal"),
    [(by_kafka_python, KafkaTimeoutError), (by_aiokafka, KafkaConnectionError)],
)
def test_python_clients_log_in(
    sasl_proxy: Proxy,
    caplog: pytest.LogCaptureFixture,
    client: Callable[..., int],
    refusal: type[Exception],
    mechanism: str,
) -> None:
    """With the right password a record is written; with a wrong one the client logs the broker's own words for that,
    and raises what it raises when it is refused by a broker."""
    assert client(sasl_proxy.bootstrap, mechanism, PASSWORD) >= 0
    caplog.clear()
    with pytest.raises(refusal):
        client(sasl_proxy.bootstrap, mechanism, "wrong", patience_ms=3000)
    gc.collect()

    words = "[Error 58]" in caplog.text and "Authentication failed" in caplog.text
    # kafka-python often sees the broker's close before it reads the answer in front of it, without a proxy, too
    assert words or (client is by_kafka_python and "socket disconnected" in caplog.text)
    assert PASSWORD not in sasl_proxy.logs(10_000)


def test_oauthbearer_logs_in(sasl_proxy: Proxy) -> None:
    """librdkafka's token without a signature, which the broker takes in its default setting."""
    delivered: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": sasl_proxy.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": f"principal={USER}",
        }
    )
    producer.produce("ren-oauth", "v", callback=lambda error, _: delivered.append(error))
    assert producer.flush(SECONDS) == 0
    assert delivered == [None]


# ---- by hand


def handshake(client: RawClient, version: int, mechanism: str = "PLAIN") -> dict[str, Any]:
    """The broker's answer to this mechanism."""
    return client.call(SASL_HANDSHAKE, version, {"mechanism": mechanism})


def send_token(client: RawClient, token: bytes) -> None:
    """A raw token, as after a handshake of version 0."""
    client.send(len(token).to_bytes(4, "big") + token)


@pytest.mark.parametrize("versions_first", [False, True])
def test_raw_tokens_of_a_version_0_handshake(sasl_proxy: Proxy, versions_first: bool) -> None:
    """PLAIN as before KIP-152: a bare token, an empty answer, then Kafka's frames; addresses are rewritten in them."""
    with RawClient(sasl_proxy.bootstrap) as client:
        if versions_first:
            assert client.call(18, 0, {})["error_code"] == 0
        assert handshake(client, 0)["error_code"] == 0
        send_token(client, PLAIN_TOKEN)
        assert client.frame() == b""
        (place,) = client.brokers().values()
        assert place.rpartition(":")[0] == "127.0.0.1"
        assert abs(int(place.rpartition(":")[2]) - sasl_proxy.port) < 1000
        assert client.brokers() == {1: place}


def test_raw_tokens_and_the_next_request_in_one_piece(sasl_proxy: Proxy) -> None:
    """Token and first request may arrive together, and in pieces of one byte; the answers come in order."""
    for size in (1, 1000):
        with RawClient(sasl_proxy.bootstrap) as client:
            assert handshake(client, 0)["error_code"] == 0
            metadata = client.request(3, 4, {"topics": [], "allow_auto_topic_creation": False})
            data = len(PLAIN_TOKEN).to_bytes(4, "big") + PLAIN_TOKEN + metadata
            for start in range(0, len(data), size):
                client.send(data[start : start + size])
            assert client.frame() == b""
            assert len(decode_response(client.frame(), 3, 4).body["brokers"]) == 1


def test_a_wrong_raw_token_ends_the_connection(sasl_proxy: Proxy) -> None:
    """As with the broker itself, which knows no error for that: it closes."""
    before = sasl_proxy.metric("kproxy_connections_closed_total", cause="broker_closed")
    with RawClient(sasl_proxy.bootstrap) as client:
        assert handshake(client, 0)["error_code"] == 0
        send_token(client, PLAIN_TOKEN + b"!")
        assert client.rest() == b""
    until(lambda: sasl_proxy.metric("kproxy_connections_closed_total", cause="broker_closed") == before + 1)


def test_an_unknown_mechanism_is_the_brokers_answer(sasl_proxy: Proxy) -> None:
    """Error 33 with the list of what there is, in both versions of the handshake."""
    for version in (0, 1):
        with RawClient(sasl_proxy.bootstrap) as client:
            answer = handshake(client, version, "NONE-SUCH")
            assert answer["error_code"] == 33
            assert sorted(answer["mechanisms"]) == ["OAUTHBEARER", "PLAIN", "SCRAM-SHA-256"]


def test_no_request_passes_without_a_login(sasl_proxy: Proxy) -> None:
    """A Metadata request instead of a handshake: the broker closes, and so do we."""
    with RawClient(sasl_proxy.bootstrap) as client:
        client.send(client.request(3, 4, {"topics": [], "allow_auto_topic_creation": False}))
        assert client.rest() == b""


def test_a_session_is_renewed_or_runs_out(sasl_kafka: Kafka, kproxy_process: Proxies) -> None:
    """On one connection, among other requests, a client logs in again as often as it likes; when it does not, the
    broker closes at the next request."""
    proxy = kproxy_process(sasl_kafka.bootstrap("SHORT"))
    with RawClient(proxy.bootstrap) as renewing, RawClient(proxy.bootstrap) as lazy:
        for client in (renewing, lazy):
            assert log_in(client) == SESSION_MS
        places = renewing.brokers()
        assert lazy.brokers() == places

        ended, renewed = False, 0
        while not ended:  # the lazy one's session ends by itself, after two seconds
            pipelined = [renewing.request(3, 4, {"topics": [], "allow_auto_topic_creation": False}) for _ in range(5)]
            renewing.send(b"".join(pipelined))
            for _ in pipelined:
                assert len(decode_response(renewing.frame(), 3, 4).body["brokers"]) == 1
            renewed += bool(log_in(renewing))
            lazy.send(lazy.request(18, 0, {}))
            try:
                lazy.frame()
            except ConnectionError:
                ended = True
        assert renewing.brokers() == places
    assert renewed >= 1
    assert proxy.metric("kproxy_connections_opened_total") == 2


def log_in(client: RawClient) -> int:
    """PLAIN in frames; how many milliseconds it holds; 0: the broker finds it too early, which it does for a second."""
    error = handshake(client, 1)["error_code"]
    if error == ILLEGAL_SASL_STATE:
        return 0
    assert error == 0
    answer = client.call(SASL_AUTHENTICATE, 1, {"auth_bytes": PLAIN_TOKEN})
    assert answer["error_code"] == 0, answer
    return int(answer["session_lifetime_ms"])
