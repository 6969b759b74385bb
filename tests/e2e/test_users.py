"""Clients that log in to kproxy in front of a cluster that knows nothing of SASL, while its users change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from kproxy.sasl.users import make_line
from kproxy.testing.client import EndOfStream, RawClient
from kproxy.testing.cluster import MockCluster
from kproxy.testing.wait import until


def line(name: str, password: str) -> str:
    return make_line(name, "SCRAM-SHA-256", password, b"salt", 4096)


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
        until(
            lambda: (
                client.list_topics(timeout=10).brokers
                and proxy.metric("kproxy_events_total", event="client_logins") >= 4
            )
        )
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

    def log_in(client: RawClient, name: str) -> int:
        assert client.call(17, 1, {"mechanism": "PLAIN"})["error_code"] == 0
        return int(client.call(36, 2, {"auth_bytes": f"\0{name}\0secret".encode()})["error_code"])

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
    assert proxy.metric("kproxy_events_total", event="client_logins_refused") == 3
    assert proxy.metric("kproxy_connections_closed_total", cause="authentication") == 3
    (first,) = proxy.said("connection closed", cause="authentication")  # the others are in its throttle
    assert first["reason"] == "authentication failed: an unknown user (PLAIN)"
    assert first["seconds"] >= 0.2
    assert "secret" not in proxy.logs(1000)
