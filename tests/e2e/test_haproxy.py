"""A real HAProxy in front of kproxy and behind it: both read what the other writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kproxy.testing.process import Child, Proxy, free_ports
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import RawClient
from tests.support.wait import until

pytestmark = pytest.mark.tools("haproxy")
LISTEN = """
defaults
    mode tcp
    timeout connect 5s
    timeout client 30s
    timeout server 30s
listen front
    bind 127.0.0.1:{front}
    server kproxy 127.0.0.1:{kproxy} {send}
listen back
    bind 127.0.0.1:{back} accept-proxy
    server broker {broker} check
    log stdout format raw local0
    log-format "client %ci:%cp"
"""


@pytest.mark.parametrize(("send", "version"), [("send-proxy", "v1"), ("send-proxy-v2", "v2")])
def test_haproxy_on_both_sides(tmp_path: Path, send: str, version: str) -> None:
    """The client's own address comes through HAProxy, kproxy and HAProxy again."""
    assert shutil.which("haproxy"), "this test needs what is not here: apt-get install haproxy"
    front, back, port = free_ports(3)
    config = {
        "clusters": {"main": {"bootstrap": [f"127.0.0.1:{back}"], "proxy_protocol": version}},
        "listeners": [
            {"name": "main", "bind": f"127.0.0.1:{port}", "cluster": "main", "proxy_protocol": {"from": "127.0.0.1"}}
        ],
    }
    file = tmp_path / "haproxy.cfg"
    with FakeBroker() as broker:
        file.write_text(LISTEN.format(front=front, back=back, kproxy=port, send=send, broker=broker.address))
        haproxy = Child(["haproxy", "-f", str(file), "-db"], tmp_path / "log")
        try:
            with (
                Proxy(config=config) as proxy,
                RawClient(f"127.0.0.1:{front}", source="127.0.0.3") as client,
            ):
                assert len(client.brokers()) == 1
                (shown,) = json.loads(proxy.get("/api/connections")[1])["connections"]
                host, near = client.socket.getsockname()
                assert shown["client"] == f"{host}:{near}" == f"127.0.0.3:{near}"
                client.close()
                until(lambda: f"client 127.0.0.3:{near}" in (tmp_path / "log").read_text())
                assert proxy.metric("kproxy_connections_refused_total") == 0
        finally:
            haproxy.stop(10)
