"""What may be asked of TLS: versions, ciphers, names from certificates; and certificates that are not good."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.certificates import Authority, client_context, self_signed, server_context
from tests.support.fake_broker import FakeBroker
from tests.support.passing_session import PassingSession

pytestmark = pytest.mark.trio
GCM, CBC = "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES256-SHA384"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Path:
    return authority.issue("127.0.0.1", "localhost", file="server.pem")


async def shaken(running: Any, context: ssl.SSLContext) -> trio.SSLStream[Any]:
    """A client whose handshake is through, as far as it can tell."""
    stream = trio.SSLStream(await running.client(), context, server_hostname="localhost")
    await stream.do_handshake()
    return stream


async def test_clients_of_old_versions_and_weak_ciphers(net: Any, authority: Authority, server: Path) -> None:
    """A listener of 1.3 does not talk 1.2; one with a cipher list takes no other for 1.2, and all of 1.3."""
    old = client_context(authority.file)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    weak = client_context(authority.file)
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers(CBC)
    settings = ({"min_version": "1.3"}, [old]), ({"ciphers": "ECDHE+AESGCM"}, [weak])
    for setting, refused in settings:
        config = net.config(9, listener={"tls": {"cert": str(server), **setting}})
        async with net.serving(config) as running:
            for context in refused:
                with pytest.raises(trio.BrokenResourceError):
                    await shaken(running, context)
            lines = [entry["reason"] for entry in running.log if entry["event"] == "connection refused"]
            expected = "unsupported protocol" if "min_version" in setting else "no shared cipher"
            assert lines == [f"TLS handshake failed: {expected}"]
            good = await shaken(running, client_context(authority.file))
            assert good.version() == "TLSv1.3"
            good.transport_stream.socket.close()
            if "ciphers" in setting:
                good = await shaken(running, old)
                assert good.cipher()[0] == GCM
                good.transport_stream.socket.close()
            await running.settled()


@pytest.mark.parametrize("problem", ["expired", "self-signed", "foreign"])
async def test_client_certificates_that_are_not_good(
    net: Any, authority: Authority, server: Path, tmp_path: Path, problem: str
) -> None:
    """Each is refused with OpenSSL's reason, and counted; a good client beside it is served."""
    certificate, reason = {
        "expired": (lambda: authority.issue("c.example", file="expired.pem", expired=True), "certificate has expired"),
        "self-signed": (lambda: self_signed(tmp_path, "c.example"), "self-signed certificate"),
        "foreign": (lambda: Authority(tmp_path, "other").issue("c.example"), "unable to get local issuer certificate"),
    }[problem]
    config = net.config(9, listener={"tls": {"cert": str(server), "client_ca": str(authority.file)}})
    async with net.serving(config) as running:
        stream = await shaken(running, client_context(authority.file, certificate()))
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        (line,) = [entry["reason"] for entry in running.log if entry["event"] == "connection refused"]
        assert line == f"TLS handshake failed: certificate verify failed: {reason}"
        assert running.counts.refused == {"tls": 1}
        good = await shaken(running, client_context(authority.file, authority.issue("good.example")))
        await running.until(lambda: running.server.connections)
        good.transport_stream.socket.close()
        await running.settled()


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("expired", "certificate verify failed: certificate has expired"),
        ("self-signed", "certificate verify failed: self-signed certificate"),
        ("wrong name", "certificate verify failed: IP address mismatch"),
        ("old", "tlsv1 alert protocol version"),
        ("weak", "handshake failure"),
    ],
)
async def test_brokers_that_are_not_good(
    net: Any, authority: Authority, server: Path, tmp_path: Path, problem: str, reason: str
) -> None:
    """The client's connection ends, the line names the broker and what is wrong with it, and it is counted."""
    context: ssl.SSLContext = {
        "expired": lambda: server_context(authority.issue("127.0.0.1", file="expired.pem", expired=True)),
        "self-signed": lambda: server_context(self_signed(tmp_path, "127.0.0.1")),
        "wrong name": lambda: server_context(authority.issue("elsewhere.example")),
        "old": lambda: server_context(server),
        "weak": lambda: server_context(server),
    }[problem]()
    settings: dict[str, Any] = {"ca": str(authority.file)}
    if problem in ("old", "weak"):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        settings |= {"min_version": "1.3"} if problem == "old" else {"ciphers": GCM}
    if problem == "weak":
        context.set_ciphers(CBC)
    with FakeBroker(tls=context) as broker:
        async with net.serving(net.config(broker.port, cluster={"tls": settings})) as running:
            async with await running.client() as client:
                await client.send_all(net.request(1))
                assert await client.receive_some() == b""
            (line,) = [entry for entry in running.log if entry["event"] == "no broker could be reached"]
            assert reason in line["tried"][f"127.0.0.1:{broker.port}"]
            assert running.counts.unreachable == {"main": 1}


async def test_names_from_certificates(net: Any, authority: Authority, server: Path) -> None:
    """A listener's rules make the name by which rules, quotas and the audit know the client; a subject that none of
    them fits is refused, with the subject."""
    names: list[Any] = []

    def session(name: str, facts: Any, node: int | None) -> PassingSession:
        names.append(facts.certificate)
        return PassingSession()

    principals = {"principals": ["RULE:.*CN=([^,]+)-service,.*/$1/L", "RULE:CN=([^,]+)-service,.*/$1/L"]}
    listener = {"tls": {"cert": str(server), "client_ca": str(authority.file), **principals}}
    async with net.serving(net.config(9, listener=listener), session) as running:
        for common_name in ("ETL-service", "somebody"):
            certificate = authority.issue("c.example", common_name=common_name, file="named.pem")
            stream = await shaken(running, client_context(authority.file, certificate))
            await running.until(lambda: running.server.connections or running.counts.refused)
            stream.transport_stream.socket.close()
            await running.settled()
        assert names == ["etl"]
        (line,) = [entry["reason"] for entry in running.log if entry["event"] == "connection refused"]
        assert line.startswith("none of the rules of principals matches CN=somebody")
