"""Clients that log in to kproxy in front of a cluster that knows nothing of SASL, while its users change."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from kproxy.protocol.sasl.scram import make_line
from kproxy.testing.cluster import MockCluster
from tests.support.raw_client import EndOfStream, RawClient
from tests.support.wait import until

GUESSES = 60


def line(name: str, password: str, mechanism: str = "SCRAM-SHA-256", iterations: int = 4096) -> str:
    return make_line(name, mechanism, password, b"salt", iterations)


def log_in(client: RawClient, name: str, password: str = "secret") -> int:
    """The error code of a login by PLAIN."""
    assert client.call(17, 1, {"mechanism": "PLAIN"})["error_code"] == 0
    return int(client.call(36, 2, {"auth_bytes": f"\0{name}\0{password}".encode()})["error_code"])


def test_librdkafka_logs_in_again_and_is_known(proxy_with: Callable[..., Any], tmp_path: Path) -> None:
    """Its mock cluster lists no SASL among its APIs, and kproxy does. On connections of which each session lasts a
    second and a half, none is cut off; the admin address shows whose they are."""
    (tmp_path / "users").write_text(line("alice", "secret"))
    sasl = {"users": str(tmp_path / "users"), "max_session": 1.5}
    with MockCluster(1) as cluster:
        proxy = proxy_with(cluster.bootstrap, listener={"sasl": sasl})
        client = AdminClient(
            {
                "bootstrap.servers": proxy.bootstrap, "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": "secret",
            }
        )  # fmt: skip
        until(lambda: client.list_topics(timeout=60).brokers and proxy.metric("kproxy_client_logins_total") >= 4)
        listed = json.loads(proxy.get("/api/connections")[1])["connections"]
        assert {one["principal"] for one in listed} == {"alice"}
        assert proxy.metric("kproxy_connections_opened_total") == 2
        assert proxy.metric("kproxy_connections_closed_total", cause="unauthenticated") == 0


def test_users_come_and_go(proxy_with: Callable[..., Any], fake: Callable[..., Any], tmp_path: Path) -> None:
    """Who is written into the file may log in from then on, who is taken out may not; connections that are open stay;
    a file with a mistake changes nothing. A wrong password takes its time, and harms nobody else."""
    file = tmp_path / "users"
    file.write_text(line("alice", "secret"))
    sasl = {"users": str(file), "mechanisms": ["PLAIN"], "failure_delay": 0.2}
    proxy = proxy_with(fake().address, listener={"sasl": sasl})

    def comes_in(name: str) -> bool:
        with RawClient(proxy.bootstrap) as client:
            if log_in(client, name) == 0:
                return len(client.brokers()) == 1
            try:
                client.frame()
            except EndOfStream:
                return False
            raise AssertionError("the connection is still open")

    with RawClient(proxy.bootstrap) as stays:
        assert log_in(stays, "alice") == 0
        assert [comes_in(name) for name in ("alice", "bob")] == [True, False]
        file.write_text(line("bob", "secret") + "\n")
        assert [comes_in(name) for name in ("alice", "bob")] == [False, True]
        file.write_text("what is this\n")
        assert [comes_in(name) for name in ("alice", "bob")] == [False, True]
        assert len(stays.brokers()) == 1
    assert len(proxy.said("users changed and cannot be used, the old ones stay")) == 1
    assert proxy.metric("kproxy_client_logins_refused_total") == 3
    assert proxy.metric("kproxy_connections_closed_total", cause="authentication") == 3
    (first,) = proxy.said("connection closed", cause="authentication")  # the others are in its throttle
    assert first["reason"] == "authentication failed: an unknown user (PLAIN)"
    assert first["seconds"] >= 0.2
    assert "secret" not in proxy.logs(1000)


def test_who_guesses_passwords_keeps_nobody_waiting(
    proxy_with: Callable[..., Any], fake: Callable[..., Any], tmp_path: Path
) -> None:
    """Sixty guesses at once take seconds to hash. Meanwhile a client that has logged in is answered as ever, as is
    one whose password is known; one that logs in from another address waits for one guess, not for all of them."""
    (tmp_path / "users").write_text(
        "\n".join(line(name, "secret", "SCRAM-SHA-512", 100_000) for name in ("alice", "bob"))
    )
    sasl = {"users": str(tmp_path / "users"), "mechanisms": ["PLAIN"], "failure_delay": 0}
    proxy = proxy_with(fake().address, listener={"sasl": sasl})

    def refused() -> float:
        return float(proxy.metric("kproxy_client_logins_refused_total"))

    with ExitStack() as stack:
        good = stack.enter_context(RawClient(proxy.bootstrap))
        assert log_in(good, "alice") == 0
        guessing = [stack.enter_context(RawClient(proxy.bootstrap, source="127.0.0.2")) for _ in range(GUESSES)]
        for number, one in enumerate(guessing):
            assert one.call(17, 1, {"mechanism": "PLAIN"})["error_code"] == 0
            one.send(one.request(36, 2, {"auth_bytes": f"\0alice\0guess {number}".encode()}))
        for _ in range(20):
            assert len(good.brokers()) == 1
        for name in ("alice", "bob"):
            assert log_in(stack.enter_context(RawClient(proxy.bootstrap)), name) == 0
        assert refused() < GUESSES - 1
        *gone, last = guessing
        for one in gone:
            one.reset()
        assert last.frame()
        assert refused() < GUESSES, "what those have guessed who have gone is not hashed"
