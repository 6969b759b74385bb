"""TLS towards clients and towards brokers, with certificates made for the test."""

from __future__ import annotations

import os
import ssl
import weakref
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from kproxy.runtime.io.tls import ClientSocket
from tests.support.passing_session import PassingSession

pytestmark = pytest.mark.trio


class Certificates:
    """A CA with a server's and a client's certificate, in files."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca, self.server, self.client = folder / "ca.pem", folder / "server.pem", folder / "client.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        self.renew()
        self.authority.issue_cert("etl@example.com", common_name="etl").private_key_and_cert_chain_pem.write_to_path(
            self.client
        )

    def renew(self) -> None:
        cert = self.authority.issue_cert("localhost", "127.0.0.1", "*.example.com", common_name="kproxy")
        cert.private_key_and_cert_chain_pem.write_to_path(self.server)

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server)
        return context

    def client_context(self, certificate: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if certificate:
            context.load_cert_chain(self.client)
        return context


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


async def connect(running: Any, context: ssl.SSLContext, name: str = "localhost") -> trio.SSLStream[Any]:
    stream = trio.SSLStream(await running.client(), context, server_hostname=name)
    await stream.do_handshake()
    return stream


async def serve_tls(broker: Any, context: ssl.SSLContext, serve: Any) -> None:
    async with trio.open_nursery() as nursery:
        while True:
            stream = trio.SSLStream(await broker.accept(), context, server_side=True)
            nursery.start_soon(serve, stream)


def tls(certificates: Certificates, **more: Any) -> dict[str, Any]:
    return {"tls": {"cert": str(certificates.server), **more}}


async def test_tls_on_both_sides(net: Any, driver: str, certificates: Certificates) -> None:
    """TLS to kproxy and from there to the broker; frames far larger than a record pass whole."""
    broker = await net.open_broker()
    config = net.config(
        broker.port,
        listener=tls(certificates),
        cluster={"tls": {"ca": str(certificates.ca), "server_name": "localhost"}},
    )
    async with trio.open_nursery() as nursery, net.serving(config, driver=driver) as running:
        nursery.start_soon(serve_tls, broker, certificates.server_context(), net.obedient)
        client = await connect(running, certificates.client_context())
        for size in (40, 16384, 100000, 3000000):
            await client.send_all(net.request(size, size))
            assert await net.answer(client) == size
        await client.send_all(b"".join(net.request(i) for i in range(500)))
        assert [await net.answer(client) for _ in range(500)] == list(range(500))
        client.transport_stream.socket.close()
        await running.settled()
        nursery.cancel_scope.cancel()


async def test_many_handshakes_at_once_keep_nobody_waiting(
    net: Any, driver: str, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred begin in the same moment: while they go on, one after the other, a client is answered ten times."""
    steps: list[ClientSocket] = []
    real = ClientSocket.do_handshake

    def do_handshake(sock: ClientSocket) -> None:
        steps.append(sock)
        real(sock)

    monkeypatch.setattr(ClientSocket, "do_handshake", do_handshake)
    to_client, from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        certificates.client_context().wrap_bio(to_client, from_client, server_hostname="localhost").do_handshake()
    hello = from_client.read()

    broker = await net.open_broker()
    async with (
        trio.open_nursery() as nursery,
        net.serving(net.config(broker.port, listener=tls(certificates)), driver=driver) as running,
    ):
        nursery.start_soon(broker.obey)
        served = await connect(running, certificates.client_context())
        await served.send_all(net.request(0))
        assert await net.answer(served) == 0
        many = [await running.client() for _ in range(200)]
        await running.until(lambda: running.server.handshaking == len(many))
        steps.clear()
        for one in many:
            assert one.socket._sock.send(hello) == len(hello)  # without a turn for anybody
        for number in range(1, 11):
            await served.send_all(net.request(number))
            assert await net.answer(served) == number
        assert len(steps) < len(many)
        await running.until(lambda: len(steps) == len(many))
        assert len(set(map(id, steps))) == len(many)
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("uncollected")
async def test_the_keys_of_a_closed_connection_are_gone(net: Any, driver: str, certificates: Certificates) -> None:
    """With all that OpenSSL keeps of it, some 50 kB a side, and without a garbage collection."""
    broker = await net.open_broker()
    cluster = {"tls": {"ca": str(certificates.ca), "server_name": "localhost"}}
    config = net.config(broker.port, listener=tls(certificates), cluster=cluster)
    async with trio.open_nursery() as nursery, net.serving(config, driver=driver) as running:
        nursery.start_soon(serve_tls, broker, certificates.server_context(), net.obedient)
        client = await connect(running, certificates.client_context())
        await client.send_all(net.request(1))
        assert await net.answer(client) == 1
        sockets = [weakref.ref(side.sock) for one in running.server.connections for side in (one.client, one.broker)]
        assert all(isinstance(one(), ssl.SSLSocket) for one in sockets)
        client.transport_stream.socket.close()
        await running.settled()

        assert [one() for one in sockets] == [None, None]
        nursery.cancel_scope.cancel()


async def test_large_answers_over_tls_with_slow_readers(net: Any, driver: str, certificates: Certificates) -> None:
    """Ten megabytes to a client that reads in small pieces: nothing is lost, doubled or stuck in OpenSSL's buffers."""
    broker = await net.open_broker()
    cluster = {"tls": {"ca": str(certificates.ca), "server_name": "localhost"}}
    answer = net.response(1, 10_000_000)[:8] + os.urandom(10_000_000 - 8)

    async def generous(stream: Any) -> None:
        await net.exactly(stream, 40)
        await stream.send_all(answer)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        config = net.config(broker.port, listener=tls(certificates), cluster=cluster)
        async with net.serving(config, driver=driver) as running:
            nursery.start_soon(serve_tls, broker, certificates.server_context(), generous)
            client = await connect(running, certificates.client_context())
            await client.send_all(net.request(1))
            got = bytearray()
            while len(got) < len(answer):
                got += await client.receive_some(5000)
                if len(got) % 7 == 0:
                    await trio.lowlevel.checkpoint()

            assert got == answer
            client.transport_stream.socket.close()
            nursery.cancel_scope.cancel()


async def test_mutual_tls_tells_the_subject_and_the_server_name(
    net: Any, driver: str, certificates: Certificates
) -> None:
    """A client must show its certificate; the session's facts have its subject and the name that was asked for."""
    facts: list[Any] = []

    def session(name: str, known: Any, node: int | None) -> PassingSession:
        facts.append((known, node))
        return PassingSession()

    listener = tls(certificates, client_ca=str(certificates.ca))
    listener["advertise"] = {"sni": "b{node}.example.com:443"}
    async with net.serving(net.config(9, listener=listener), session, driver) as running:
        stranger = await connect(running, certificates.client_context())  # TLS 1.3: refused after its handshake
        with pytest.raises(trio.BrokenResourceError):
            await stranger.receive_some()
        for name in ("b7.example.com", "localhost"):
            client = await connect(running, certificates.client_context(certificate=True), name)
            await running.until(lambda: running.server.connections)
            client.transport_stream.socket.close()
            await running.settled()

        assert [(known.sni, node) for known, node in facts] == [("b7.example.com", 7), ("localhost", None)]
        assert "CN=etl" in facts[0][0].certificate
        assert running.counts.refused == {"tls": 1}


async def test_plain_kafka_on_a_tls_port(net: Any, driver: str, certificates: Certificates) -> None:
    """The log says what the client did wrong."""
    async with net.serving(net.config(9, listener=tls(certificates)), driver=driver) as running:
        for data, word in ((net.request(1), "plain text"), (b"GET / HTTP/1.1\r\n\r\n", "HTTP")):
            async with await running.client() as client:
                await client.send_all(data)
                with pytest.raises(trio.BrokenResourceError):
                    await net.exactly(client, 1)
            assert running.log[-1]["cause"] == "tls" or word
            assert running.counts.refused["tls"]
        lines = [entry["reason"] for entry in running.log if entry["event"] == "connection refused"]
        assert lines[0] == "TLS handshake failed: client speaks plain text to a TLS listener"


async def test_a_silent_client_on_a_tls_port(net: Any, driver: str, certificates: Certificates) -> None:
    """The handshake has its own time-out."""
    config = net.config(9, listener=tls(certificates), limits={"handshake_timeout": 0.05})
    async with net.serving(config, driver=driver) as running, await running.client() as client:
        assert await client.receive_some() == b""
        assert running.counts.refused == {"tls": 1}
        assert running.server.handshaking == 0


async def test_a_broker_with_a_bad_certificate(
    net: Any, driver: str, certificates: Certificates, tmp_path: Path
) -> None:
    """The connection is not made, and the log says why."""
    (tmp_path / "other").mkdir()
    other = Certificates(tmp_path / "other")
    broker = await net.open_broker()

    async def never(stream: Any) -> None:
        with pytest.raises(trio.BrokenResourceError):
            await stream.do_handshake()

    config = net.config(broker.port, cluster={"tls": {"ca": str(other.ca)}})
    async with trio.open_nursery() as nursery, net.serving(config, driver=driver) as running:
        nursery.start_soon(serve_tls, broker, certificates.server_context(), never)
        async with await running.client() as client:
            await client.send_all(net.request(1))
            assert await client.receive_some() == b""
        line = next(entry for entry in running.log if entry["event"] == "no broker could be reached")
        reason = line["tried"][f"127.0.0.1:{broker.port}"]

        assert reason.startswith("TLS handshake failed: certificate verify failed")
        nursery.cancel_scope.cancel()


async def test_certificates_are_read_again(net: Any, driver: str, certificates: Certificates) -> None:
    """A new certificate in the same file is what the next client sees; a broken file changes nothing."""

    async def serial(running: Any) -> Any:
        client = await connect(running, certificates.client_context())
        number = client.getpeercert()["serialNumber"]
        client.transport_stream.socket.close()
        return number

    async with net.serving(net.config(9, listener=tls(certificates)), driver=driver) as running:
        first = await serial(running)
        certificates.renew()
        second = await serial(running)
        certificates.server.write_text("no certificate")
        third = await serial(running)

        assert first != second
        assert third == second
        assert any(entry["log_level"] == "error" for entry in running.log)


async def test_a_header_goes_before_tls(net: Any, driver: str, certificates: Certificates) -> None:
    """Towards brokers that speak TLS, the PROXY header is in plain text and the handshake follows."""
    broker = await net.open_broker()
    cluster = {"proxy_protocol": "v2", "tls": {"ca": str(certificates.ca), "server_name": "localhost"}}
    config = net.config(broker.port, cluster=cluster)
    async with net.serving(config, driver=driver) as running, await running.client() as client:
        await client.send_all(net.request(1))
        stream = await broker.accept()
        assert (await net.exactly(stream, 28))[:16].hex() == "0d0a0d0a000d0a515549540a2111000c"
        secured = trio.SSLStream(stream, certificates.server_context(), server_side=True)

        assert await net.exactly(secured, 40) == net.request(1)
