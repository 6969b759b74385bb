"""What clients without a password cost: nothing that a broker would notice, and nothing that others would."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kproxy.protocol.sasl.scram import make_line
from tests.support.fake_broker import FakeBroker, answer_versions, silence
from tests.support.raw_client import EndOfStream, RawClient
from tests.support.wait import until

HANDSHAKE, VERSIONS, AUTHENTICATE, METADATA = 17, 18, 36, 3
PLAIN = {"mechanisms": ["PLAIN", "SCRAM-SHA-256"]}
ROUNDS = 12
QUESTIONS = 3
"""Connections of kproxy's own at most: that of the health check, and one for each form of ApiVersions that is asked."""


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """Alice, whose password is secret."""
    file = tmp_path / "users"
    file.write_text(make_line("alice", "SCRAM-SHA-256", "secret", b"salt", 4096))
    return file


def hello(client: RawClient) -> dict[str, Any]:
    return client.call(VERSIONS, 3, {"client_software_name": "test", "client_software_version": "1"})


def guess(client: RawClient) -> None:
    """A wrong password."""
    hello(client)
    client.call(HANDSHAKE, 1, {"mechanism": "PLAIN"})
    assert client.call(AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0guess"})["error_code"] == 58


def no_login(client: RawClient) -> None:
    """Versions, and nothing more."""
    hello(client)


def half_a_login(client: RawClient) -> None:
    """The first of SCRAM's two tokens."""
    hello(client)
    client.call(HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
    assert client.call(AUTHENTICATE, 2, {"auth_bytes": b"n,,n=alice,r=x"})["error_code"] == 0


def another_mechanism(client: RawClient) -> None:
    """One that kproxy does not have."""
    hello(client)
    assert client.call(HANDSHAKE, 1, {"mechanism": "GSSAPI"})["error_code"] == 33


def no_versions(client: RawClient) -> None:
    """A version of ApiVersions that there is not, which is answered."""
    client.send(b"\0\0\0\x0a\0\x12\0\x63\0\0\0\2\xff\xff")
    assert client.frame()[4:6] == b"\0\x23"


def too_early(client: RawClient) -> None:
    """A request that is not for now."""
    client.send(client.request(METADATA, 4, {"topics": [], "allow_auto_topic_creation": False}))
    with pytest.raises(EndOfStream):
        client.frame()


def flood(client: RawClient) -> None:
    """ApiVersions without end."""
    client.send(client.request(VERSIONS, 0, {}) * 200)
    assert client.rest()


def nonsense(client: RawClient) -> None:
    """Bytes that are no frame."""
    client.send(b"\xff" * 100)
    client.rest()


WAYS = (guess, no_login, half_a_login, another_mechanism, no_versions, too_early, flood, nonsense)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_brokers_hear_nothing_of_who_is_not_known(
    proxy_with: Callable[..., Any], fake: Callable[..., Any], users: Path, way: Callable[[RawClient], None]
) -> None:
    """However often it comes: no connection, no login; and whoever knows the password is served all the while."""
    broker: FakeBroker = fake()
    proxy = proxy_with(broker.address, listener={"sasl": {**PLAIN, "users": str(users), "failure_delay": 0}})
    with ExitStack() as stack:
        for _ in range(ROUNDS):
            way(stack.enter_context(RawClient(proxy.bootstrap)))
        assert broker.accepted <= QUESTIONS
        with RawClient(proxy.bootstrap) as alice:
            assert {one["api_key"] for one in hello(alice)["api_keys"]} >= {HANDSHAKE, VERSIONS, AUTHENTICATE}
            assert alice.call(HANDSHAKE, 1, {"mechanism": "PLAIN"})["error_code"] == 0
            assert alice.call(AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0secret"})["error_code"] == 0
            before = broker.accepted
            assert len(alice.brokers()) == 1
            assert broker.accepted == before + 1
    assert {request.api.key for request in broker.requests} == {VERSIONS, METADATA}


@pytest.mark.deep
def test_versions_of_a_broker_that_hangs(proxy_with: Callable[..., Any], fake: Callable[..., Any], users: Path) -> None:
    """One question waits for all who want to know; they are told that nobody is there, and those who do not ask log in
    meanwhile."""
    broker: FakeBroker = fake(answers={VERSIONS: silence})
    settings: dict[str, Any] = {
        "listener": {"sasl": {**PLAIN, "users": str(users)}},
        "limits": {"connect_timeout": 0.5},
    }
    proxy = proxy_with(broker.address, wait=False, **settings)
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(proxy.bootstrap)) for _ in range(ROUNDS)]
        for client in clients:
            client.send(client.request(VERSIONS, 0, {}))
        with RawClient(proxy.bootstrap) as alice:
            assert alice.call(HANDSHAKE, 1, {"mechanism": "PLAIN"})["error_code"] == 0
            assert alice.call(AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0secret"})["error_code"] == 0
        assert broker.accepted < ROUNDS / 2  # one question, and what the health check tries meanwhile
        for client in clients:
            assert client.rest() == b""
    until(lambda: proxy.said("connection closed", cause="unreachable"))


def test_an_answer_is_forgotten_with_its_broker(
    proxy_with: Callable[..., Any], fake: Callable[..., Any], users: Path
) -> None:
    """A broker that comes back with other versions is asked anew: clients would use what it does not have."""
    listed = [9]

    def versions(broker: FakeBroker, stream: socket.socket, request: Any) -> None:
        if request.header["client_id"] == "kproxy" and request.version:
            keys = [{"api_key": METADATA, "min_version": 0, "max_version": listed[0]}]
            broker.respond(stream, request, {"error_code": 0, "api_keys": keys, "throttle_time_ms": 0})
        else:
            answer_versions(broker, stream, request)

    broker: FakeBroker = fake(answers={VERSIONS: versions})
    proxy = proxy_with(broker.address, listener={"sasl": {**PLAIN, "users": str(users)}})

    def newest(client: RawClient) -> int:
        listed_now = client.call(VERSIONS, 1, {})["api_keys"]
        return int(next(one["max_version"] for one in listed_now if one["api_key"] == METADATA))

    with RawClient(proxy.bootstrap) as alice:
        assert newest(alice) == 9
        assert alice.call(HANDSHAKE, 1, {"mechanism": "PLAIN"})["error_code"] == 0
        assert alice.call(AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0secret"})["error_code"] == 0
        assert len(alice.brokers()) == 1
        listed[0] = 5
        with RawClient(proxy.bootstrap) as other:
            assert newest(other) == 9
        for stream in list(broker.connections):
            stream.shutdown(socket.SHUT_RDWR)
        assert alice.rest() == b""
    with RawClient(proxy.bootstrap) as other:
        assert newest(other) == 5


def test_who_does_not_log_in_is_sent_away(
    proxy_with: Callable[..., Any], fake: Callable[..., Any], users: Path
) -> None:
    """After handshake_timeout: it takes none of the connections that others want for long."""
    limits = {"handshake_timeout": 1.0}
    proxy = proxy_with(fake().address, listener={"sasl": {**PLAIN, "users": str(users)}}, limits=limits)
    with RawClient(proxy.bootstrap) as silent, RawClient(proxy.bootstrap) as half:
        half_a_login(half)
        assert silent.rest() == half.rest() == b""
    until(lambda: proxy.metric("kproxy_connections_closed_total", cause="unauthenticated") == 2)
    until(lambda: proxy.said("connection closed", reason="the client has not authenticated in 1 s"))
