"""TLS on either side: good handshakes, and every bad one told in one line while the other clients go on."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kproxy.testing.process import free_port, free_ports
from tests.support.certificates import Authority, client_context, server_context
from tests.support.raw_client import RawClient
from tests.support.wait import until

METADATA_FRAME = bytes.fromhex("0000001a00030004000000010003726177000000000000000000000000000000")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that everybody trusts."""
    return Authority(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that nobody knows."""
    return Authority(tmp_path_factory.mktemp("other"), "other")


@pytest.fixture(scope="module")
def server(good: Authority) -> Path:
    """A certificate for servers here."""
    return good.issue("127.0.0.1", "localhost")


def lines_by_cause(proxy: Any, event: str) -> dict[str, str]:
    """The reasons that it gave, by cause."""
    return {line["cause"]: line["reason"] for line in proxy.said(event)}


# ---- clients


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (METADATA_FRAME, "client speaks plain text to a TLS listener"),
        (b"GET / HTTP/1.1\r\n\r\n", "client speaks HTTP to a TLS listener"),
        (b"\x16\x03\x01\x00\x05hello", "TLS handshake failed: "),
        (b"", "TLS handshake failed: "),
    ],
    ids=["Kafka", "HTTP", "garbage", "nothing"],
)
def test_clients_that_speak_no_tls(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], good: Authority, server: Path, said: bytes, reason: str
) -> None:
    """Each is refused with the reason, before anything goes to a broker."""
    broker = fake()
    proxy = proxy_with(broker.address, listener={"tls": {"cert": str(server)}})
    with RawClient(proxy.bootstrap, tls=client_context(good.file)) as client, RawClient(proxy.bootstrap) as stranger:
        client.brokers()
        stranger.send(said)
        with contextlib.suppress(OSError):  # it may have been refused by now
            stranger.shut()
        (line,) = until(lambda: proxy.said("connection refused"))
        assert line["cause"] == "tls"
        assert reason in line["reason"]
        assert proxy.metric("kproxy_connections_refused_total", cause="tls") == 1
        assert len(client.brokers()) == 1
        assert len(broker.connections) <= 2


def test_a_client_that_does_not_shake_hands(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], good: Authority, server: Path
) -> None:
    """Silence, or half a handshake, is cut off after handshake_timeout; others are served meanwhile."""
    proxy = proxy_with(fake().address, listener={"tls": {"cert": str(server)}}, limits={"handshake_timeout": 0.4})
    with RawClient(proxy.bootstrap) as silent, RawClient(proxy.bootstrap) as half:
        half.send(b"\x16\x03\x01\x02")
        with RawClient(proxy.bootstrap, tls=client_context(good.file)) as client:
            client.brokers()
        assert silent.rest() == half.rest() == b""
    assert lines_by_cause(proxy, "connection refused") == {"tls": "TLS handshake failed: no handshake in 0.4 s"}
    assert proxy.metric("kproxy_connections_refused_total", cause="tls") == 2


def test_clients_must_show_a_certificate(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], good: Authority, other: Authority, server: Path
) -> None:
    """None, or one of an unknown authority, is refused; a good one is let in."""
    proxy = proxy_with(fake().address, listener={"tls": {"cert": str(server), "client_ca": str(good.file)}})
    mine, theirs = (authority.issue("client.example", common_name="me") for authority in (good, other))
    with pytest.raises((ssl.SSLError, ConnectionError)), connected(proxy, good, None) as client:
        client.brokers()
    (line,) = until(lambda: proxy.said("connection refused"))
    assert line["reason"] == "TLS handshake failed: peer did not return a certificate"
    with pytest.raises((ssl.SSLError, ConnectionError)), connected(proxy, good, theirs) as client:
        client.brokers()
    until(lambda: proxy.metric("kproxy_connections_refused_total", cause="tls") == 2)
    with connected(proxy, good, mine) as client:
        assert len(client.brokers()) == 1


def connected(proxy: Any, authority: Authority, certificate: Path | None) -> RawClient:
    """A TLS client that trusts this authority and shows this certificate."""
    return RawClient(proxy.bootstrap, tls=client_context(authority.file, certificate))


def test_a_client_that_does_not_trust_us(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], good: Authority, other: Authority, server: Path
) -> None:
    """It ends the handshake with an alert, which is the reason in the log."""
    proxy = proxy_with(fake().address, listener={"tls": {"cert": str(server)}})
    with pytest.raises(ssl.SSLCertVerificationError):
        connected(proxy, other, None)
    (line,) = until(lambda: proxy.said("connection refused") or proxy.said("connection closed"))
    assert "unknown ca" in line["reason"]


def test_certificates_are_renewed_while_running(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], good: Authority
) -> None:
    """A new file is used for the next client, open connections go on; one that cannot be read changes nothing."""
    path = good.issue("127.0.0.1", file="renewed.pem")
    proxy = proxy_with(fake().address, listener={"tls": {"cert": str(path)}})

    def serial() -> str:
        with connected(proxy, good, None) as client:
            assert client.brokers()
            assert isinstance(client.socket, ssl.SSLSocket)
            found = client.socket.getpeercert()
            assert found
            return str(found["serialNumber"])

    with connected(proxy, good, None) as old:
        before = serial()
        assert serial() == before
        good.issue("127.0.0.1", file="renewed.pem")
        after = serial()
        assert after != before
        assert proxy.said("TLS files read again", files=[str(path)])

        path.write_text("no certificate")
        assert serial() == after
        (line,) = proxy.said("TLS files changed and cannot be used, the old ones stay")
        assert line["level"] == "error"
        assert len(old.brokers()) == 1


def test_nodes_are_told_apart_by_name(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], good: Authority
) -> None:
    """One port for all: brokers are advertised by SNI names, each of which leads to its broker, others to bootstrap."""
    ports = dict(zip((1, 2, 30), free_ports(3), strict=True))
    nodes = {node: ("127.0.0.1", port) for node, port in ports.items()}
    brokers = {node: fake(nodes=nodes, port=port) for node, port in ports.items()}
    port = free_port()
    listener = {
        "bind": f"127.0.0.1:{port}",
        "tls": {"cert": str(good.issue("*.example.test"))},
        "advertise": {"sni": f"b{{node}}.example.test:{port}"},
    }
    proxy = proxy_with(brokers[1].address, listener=listener)

    def by_name(name: str) -> dict[int, str]:
        with RawClient(proxy.bootstrap, tls=client_context(good.file), server_name=name) as client:
            return client.brokers()

    expected = {node: f"b{node}.example.test:{port}" for node in nodes}
    assert by_name("kafka.example.test") == expected
    for node in nodes:
        counts = {each: len(broker.requests) for each, broker in brokers.items()}
        assert by_name(f"B{node}.Example.test") == expected
        served = {each: len(broker.requests) - counts[each] for each, broker in brokers.items()}
        assert [each for each, more in served.items() if more] in ([node], sorted({1, node}))
        assert served[node] >= 1
    assert proxy.said("node has a port") == []
    assert by_name("b4.example.test") == expected  # not known yet: any broker says who there is


# ---- brokers


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("wrong authority", "certificate verify failed: unable to get local issuer certificate"),
        ("wrong name", "certificate verify failed: IP address mismatch"),
        ("no certificate", "certificate required"),
        ("no TLS", "TLS handshake failed: "),
    ],
)
def test_brokers_that_cannot_be_trusted(
    fake: Callable[..., Any],
    kproxy_process: Callable[..., Any],
    good: Authority,
    other: Authority,
    server: Path,
    problem: str,
    reason: str,
) -> None:
    """The client is turned away, the line names broker and problem, and another cluster is served as before."""
    context = {
        "wrong authority": lambda: server_context(other.issue("127.0.0.1")),
        "wrong name": lambda: server_context(good.issue("elsewhere.example")),
        "no certificate": lambda: server_context(server, good.file),
        "no TLS": lambda: None,
    }[problem]()
    bad = fake(tls=context)
    ports = free_ports(2)
    config = {
        "clusters": {
            "bad": {"bootstrap": [bad.address], "tls": {"ca": str(good.file)}},
            "fine": {"bootstrap": [fake(tls=server_context(server)).address], "tls": {"ca": str(good.file)}},
        },
        "listeners": [
            {"name": name, "bind": f"127.0.0.1:{port}", "cluster": name}
            for name, port in zip(("bad", "fine"), ports, strict=True)
        ],
        "limits": {"handshake_timeout": 2},
    }
    proxy = kproxy_process(config=config, brokers_answer=False)
    with RawClient(f"127.0.0.1:{ports[1]}") as beside:
        assert len(beside.brokers()) == 1
        with RawClient(f"127.0.0.1:{ports[0]}") as client:
            client.send(client.request(18, 0, {}))
            assert client.rest() == b""
        lines = until(lambda: proxy.said("connection closed", listener="bad"))
        assert reason in lines[0]["reason"]
        assert lines[0]["level"] == "warning"
        assert f"cluster bad: {bad.address}" in proxy.get("/readyz")[1] or problem == "no certificate"
        assert len(beside.brokers()) == 1


@pytest.mark.deep
def test_a_broker_that_does_not_shake_hands(
    fake: Callable[..., Any], kproxy_process: Callable[..., Any], good: Authority, server: Path
) -> None:
    """Its clients wait for handshake_timeout at most, and nobody else waits for them."""
    ports = free_ports(2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        config = {
            "clusters": {
                "silent": {"bootstrap": [address], "tls": {"ca": str(good.file)}},
                "fine": {"bootstrap": [fake(tls=server_context(server)).address], "tls": {"ca": str(good.file)}},
            },
            "listeners": [
                {"name": name, "bind": f"127.0.0.1:{port}", "cluster": name}
                for name, port in zip(("silent", "fine"), ports, strict=True)
            ],
            "limits": {"handshake_timeout": 4},
        }
        proxy = kproxy_process(config=config, brokers_answer=False)
        with RawClient(f"127.0.0.1:{ports[0]}") as client:
            client.send(client.request(18, 0, {}))
            with RawClient(f"127.0.0.1:{ports[1]}", timeout=3.5) as beside:
                for _ in range(5):
                    assert len(beside.brokers()) == 1
            assert client.rest() == b""
        (line,) = until(lambda: proxy.said("connection closed"))
    assert (line["cause"], line["reason"]) == (
        "unreachable",
        f"{address}: TLS handshake failed: no handshake in 4 s",
    )


def test_kproxy_shows_its_certificate(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], good: Authority, server: Path
) -> None:
    """A broker that asks for one gets it, on clients' connections and on kproxy's own."""
    broker = fake(tls=server_context(server, good.file))
    tls = {"ca": str(good.file), "cert": str(good.issue("kproxy.example", common_name="kproxy"))}
    proxy = proxy_with(broker.address, cluster={"tls": tls})
    with RawClient(proxy.bootstrap) as client:
        assert len(client.brokers()) == 1
    named = proxy_with(
        fake(tls=server_context(good.issue("elsewhere.example"))).address,
        cluster={"tls": {"ca": str(good.file), "server_name": "elsewhere.example"}},
    )
    with RawClient(named.bootstrap) as client:
        assert len(client.brokers()) == 1
