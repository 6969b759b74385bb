"""Brokers' addresses that lead to kproxy itself, at once or by way of others: no connection makes another one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kproxy.cli import main
from kproxy.runtime.upstreams.resolve import OwnPorts
from kproxy.testing.process import free_port, free_ports
from tests.selection import WORKERS
from tests.support.raw_client import RawClient
from tests.support.wait import until


def descriptors(proxy: Any) -> int:
    """How many its process has, workers included."""
    found = [proxy.pid, *children(proxy.pid)]
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in found)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def circle_config(port: int, *upstream: str, **parts: Any) -> dict[str, Any]:
    """One listener in front of these."""
    return {
        "clusters": {"main": {"bootstrap": list(upstream)}},
        "listeners": [{"name": "main", "bind": f"127.0.0.1:{port}", "cluster": "main"}],
        **parts,
    }


def refused(bootstrap: str) -> bool:
    """Whether a client is sent away without an answer."""
    with RawClient(bootstrap) as client:
        client.send(client.request(3, 4, {"topics": [], "allow_auto_topic_creation": False}))
        return client.rest() == b""


ITSELF = [
    ("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.2"), ("[::]", "127.0.0.1"), ("[::1]", "[::1]"),
    ("127.0.0.1", "[::ffff:127.0.0.1]"), ("127.0.0.1", "0.0.0.0"), ("127.0.0.1", "localhost"), ("0.0.0.0", "LOCALHOST"),
]  # fmt: skip
"""All as one process; with workers, who find it in the same way, one address and one name unless KPROXY_TEST_ALL=1."""


@pytest.mark.parametrize(
    ("listen", "upstream", "workers"),
    [(*pair, 1) for pair in ITSELF]
    + [(*pair, 2) for pair in (ITSELF if os.environ.get("KPROXY_TEST_ALL") else [ITSELF[0], ITSELF[-1]])],
)
def test_a_bootstrap_server_that_is_kproxy_itself(listen: str, upstream: str, workers: int) -> None:
    """It does not start, and says so in one line."""
    port = free_port()
    listen, upstream = f"{listen}:{port}", f"{upstream}:{port}"
    words = ["run", "--listen", listen, "--upstream", upstream, "--workers", str(workers)]
    done = subprocess.run(
        [sys.executable, "-m", "kproxy", *words], check=False, stderr=subprocess.PIPE, text=True, timeout=60
    )

    assert done.returncode == 1
    assert "got kproxy itself" in done.stderr.splitlines()[-1]


def test_a_name_that_leads_to_kproxy_itself(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> None:
    """A broker advertises one: clients that go there are refused with a line that says why."""
    port = free_port()
    proxy = kproxy_process(config=circle_config(port, fake(nodes={1: ("localhost", port)}).address))
    with RawClient(proxy.bootstrap) as client:
        place = client.brokers()[1]

    assert refused(place)
    tried = proxy.said("no broker could be reached", node=1)[0]["tried"]
    assert "kproxy itself" in tried[f"localhost:{port}"]


@pytest.mark.parametrize(
    ("listener", "upstream", "wrong"),
    [
        ({"bind": "127.0.0.1:9092"}, "127.0.0.1:9092", True),
        ({"bind": "0.0.0.0:9092"}, "localhost:9092", True),
        ({"bind": "[::]:9092"}, "127.0.0.1:9092", True),
        ({"bind": "[::1]:9092"}, "localhost:9092", True),
        ({"bind": "kafka.local:9092"}, "KAFKA.local:9092", True),
        ({"bind": "127.0.0.1:9092", "advertise": {"ports": "9100-9200"}}, "127.0.0.1:9150", True),
        ({"bind": "127.0.0.1:9092"}, "127.0.0.1:9093", False),
        ({"bind": "0.0.0.0:9092"}, "b1:9092", False),
        ({"bind": "127.0.0.1:9092"}, "[::1]:9092", False),
        ({"bind": "0.0.0.0:9092"}, "[::1]:9092", False),
    ],
)
@pytest.mark.parametrize("where", ["bootstrap", "dial"])
def test_check_finds_it(tmp_path: Path, listener: dict[str, Any], upstream: str, wrong: bool, where: str) -> None:
    """At the address that leads to the listener, before anything runs."""
    cluster = {"bootstrap": [upstream]} if where == "bootstrap" else {"bootstrap": ["b:1"], "dial": {"b:1": upstream}}
    config = {"clusters": {"main": cluster}, "listeners": [{"name": "main", "cluster": "main", **listener}]}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    found = CliRunner().invoke(main, ["check", str(tmp_path / "config.yaml")])

    assert found.exit_code == wrong
    assert ('of listener "main": connections would loop' in found.output) is wrong


@pytest.mark.parametrize("workers", WORKERS)
def test_a_broker_that_advertises_kproxys_own_address(
    fake: Callable[..., Any], kproxy_process: Callable[..., Any], workers: int
) -> None:
    """Of a listener, or of a node's port: the connection to it ends with one line that says so, and makes no other."""
    port, broker_port = free_ports(2)
    nodes = {1: ("127.0.0.1", port), 2: ("127.0.0.1", port + 2), 3: ("127.0.0.1", broker_port)}
    broker = fake(nodes=nodes, port=broker_port)
    proxy = kproxy_process(config=circle_config(port, broker.address, workers=workers))
    with RawClient(proxy.bootstrap) as client:
        places = client.brokers()
        before = descriptors(proxy)
        for node in (1, 2):
            assert refused(places[node])
        assert descriptors(proxy) <= before + 4
        with RawClient(places[3]) as other:
            assert other.brokers() == places

    for node in (1, 2):
        tried = proxy.said("no broker could be reached", node=node)[0]["tried"]
        assert "kproxy itself" in next(iter(tried.values()))


@pytest.mark.parametrize("workers", WORKERS)
def test_two_proxies_in_a_circle(kproxy_process: Callable[..., Any], workers: int) -> None:
    """Neither is the other's own address, and one question goes round: whoever gets it back says so, refuses what
    comes, and both go on living with few descriptors."""
    one, two = free_ports(2)
    first = kproxy_process(config=circle_config(one, f"127.0.0.1:{two}", workers=workers), brokers_answer=False)
    second = kproxy_process(config=circle_config(two, f"127.0.0.1:{one}", workers=workers), brokers_answer=False)
    leads_back = "cluster leads back to kproxy, its connections are refused"
    until(lambda: first.said(leads_back) or second.said(leads_back))

    assert refused(first.bootstrap) and refused(second.bootstrap)
    for proxy in (first, second):
        assert proxy.get("/livez")[0] == 200
        assert proxy.get("/readyz")[0] == 503
        assert descriptors(proxy) < 100 * workers + 100


@pytest.mark.deep
def test_a_circle_that_begins_later(fake: Callable[..., Any], kproxy_process: Callable[..., Any]) -> None:
    """The second proxy starts without a circle; then its broker's port is taken by one that leads back. As connections
    make connections the first one asks again, and is served again when the circle is gone."""
    one, two = free_ports(2)
    broker = fake(port=two)
    proxy = kproxy_process(config=circle_config(one, broker.address))
    with RawClient(proxy.bootstrap) as client:
        assert client.brokers()
    broker.close()
    relay = Relay(two, one)
    try:
        assert refused(proxy.bootstrap)
        assert proxy.said("cluster leads back to kproxy, its connections are refused")
        assert descriptors(proxy) < 600
        assert proxy.get("/livez")[0] == 200
    finally:
        relay.close()
    fake(port=two)
    until(lambda: proxy.said("cluster does not lead back to kproxy any more"), 60)
    with RawClient(proxy.bootstrap) as client:
        assert client.brokers()


class Relay:
    """Passes on whatever comes to one port to another, as a balancer does."""

    def __init__(self, port: int, target: int) -> None:
        code = f"""
import trio
async def pump(a, b):
    try:
        async for data in a:
            await b.send_all(data)
        await b.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
async def relay(client):
    async with await trio.open_tcp_stream("127.0.0.1", {target}) as server, trio.open_nursery() as nursery:
        nursery.start_soon(pump, client, server)
        nursery.start_soon(pump, server, client)
trio.run(trio.serve_tcp, relay, {port})
"""
        self.child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        until(lambda: listens(port))

    def close(self) -> None:
        self.child.kill()
        self.child.wait()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("bound", "target", "own"),
    [
        (("127.0.0.1", 9), ("127.0.0.1", 9), True),
        (("127.0.0.1", 9), ("127.0.0.1", 10), False),
        (("127.0.0.1", 9), ("127.0.0.2", 9), False),
        (("0.0.0.0", 9), ("127.0.0.2", 9), True),
        (("0.0.0.0", 9), ("192.0.2.1", 9), False),
        (("0.0.0.0", 9), ("::1", 9, 0, 0), False),
        (("::", 9), ("::1", 9, 0, 0), True),
        (("::", 9), ("127.0.0.1", 9), True),
        (("127.0.0.1", 9), ("::ffff:127.0.0.1", 9, 0, 0), True),
        (("127.0.0.1", 9), ("0.0.0.0", 9), True),
        (("::1", 9), ("::", 9, 0, 0), True),
        (("fe80::1", 9), ("fe80::1%eth0", 9, 0, 2), True),
        (("127.0.0.1", 9), "/run/kafka.sock", False),
    ],
)
def test_which_addresses_are_kproxys(bound: Any, target: Any, own: bool) -> None:
    """Wildcards are all addresses of this machine, IPv4 may come as IPv6, and no address is loopback to the kernel."""
    assert OwnPorts([bound]).has(target) is own
