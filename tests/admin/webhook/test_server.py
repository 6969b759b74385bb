"""The webhook's HTTPS server: what it answers, what it is bounded by, and certificates that change."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import h11
import pytest
import structlog
import trio
import trio.testing
from structlog.testing import capture_logs

from kproxy.admin import http_server, limits
from kproxy.admin.webhook import server
from kproxy.admin.webhook.annotations import SidecarOptions
from kproxy.admin.webhook.server import answer_review
from kproxy.base.errors import InternalError
from kproxy.rules.values.address import Address
from kproxy.rules.values.tls import ListenerTls
from tests.support.admission import patched, review_of, review_with
from tests.support.certificates import Authority
from tests.support.stretches import BY_COST, Cost

pytestmark = pytest.mark.trio
REVIEW = json.dumps(review_of()).encode()


class Webhook:
    """Webhook that runs, and its clients."""

    def __init__(self, authority: Authority, port: int) -> None:
        self.authority, self.port = authority, port
        self.context = ssl.create_default_context(cafile=str(authority.file))

    async def connect(self, local: str | None = None) -> trio.SSLStream[trio.SocketStream]:
        tcp = await trio.open_tcp_stream("127.0.0.1", self.port, local_address=local)
        stream = trio.SSLStream(tcp, self.context, server_hostname="localhost", https_compatible=True)
        await stream.do_handshake()
        return stream

    async def ask(self, body: bytes, media: str = "application/json", **words: str) -> tuple[int, Any]:
        async with await self.connect() as stream:
            return await exchange(stream, body, media, **words)


async def exchange(
    stream: trio.SSLStream[trio.SocketStream], body: bytes, media: str = "application/json", path: str = "/inject",
    method: str = "POST",
) -> tuple[int, Any]:  # fmt: skip
    """Send one request, and return the status and the body of its response."""
    state = h11.Connection(h11.CLIENT)
    headers = [("Host", "kproxy-webhook.kproxy.svc"), ("Content-Type", media), ("Content-Length", str(len(body)))]
    await stream.send_all(state.send(h11.Request(method=method, target=path, headers=headers)) or b"")
    if body:
        await stream.send_all(state.send(h11.Data(data=body)) or b"")
    state.send(h11.EndOfMessage())
    status, data = 0, b""
    with trio.fail_after(60):
        while True:
            event = state.next_event()
            if event is h11.NEED_DATA:
                state.receive_data(await stream.receive_some())
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                data += event.data
            elif isinstance(event, h11.EndOfMessage):
                return status, json.loads(data) if data[:1] == b"{" else data.decode()


@asynccontextmanager
async def serving(folder: Path, client_ca: Path | None = None, **options: Any) -> AsyncIterator[Webhook]:
    authority = Authority(folder)
    tls = ListenerTls(cert=str(authority.issue("localhost", file="webhook.pem")))
    if client_ca is not None:
        tls = ListenerTls(cert=tls.cert, client_ca=str(client_ca), client_auth="optional")
    defaults = SidecarOptions("kproxy:0.1.0", **options)
    async with trio.open_nursery() as nursery:
        log = structlog.get_logger()
        url = await nursery.start(server.serve_webhook, Address("127.0.0.1", 0), tls, defaults, log)
        assert url.startswith("https://127.0.0.1:")
        yield Webhook(authority, int(url.rpartition(":")[2]))
        nursery.cancel_scope.cancel()


async def test_a_review_is_answered_and_told(tmp_path: Path) -> None:
    """By a connection that stays, for three pods: one gets its sidecar, one is left, one is refused; the log has each
    with its namespace and name."""
    with capture_logs() as logged:
        async with serving(tmp_path, native=True) as webhook, await webhook.connect() as stream:
            status, body = await exchange(stream, REVIEW)
            assert status == 200
            assert patched(REVIEW, body)["spec"]["initContainers"][0]["restartPolicy"] == "Always"
            status, body = await exchange(stream, review_with({}))
            assert (status, body["response"]["allowed"]) == (200, True)
            status, body = await exchange(stream, review_with({"inject": "maybe"}))
            assert (status, body["response"]["allowed"]) == (200, False)
    told = [(one["log_level"], one["event"], one["namespace"], one["pod"]) for one in logged if "pod" in one]
    assert told == [
        ("info", "sidecar put into a pod", "shop", "app-7d9c5b6f4d-*"),
        ("info", "pod left as it is", "shop", "app-7d9c5b6f4d-*"),
        ("warning", "pod refused", "shop", "app-7d9c5b6f4d-*"),
    ]


async def test_a_scrape_tells_what_became_of_pods(tmp_path: Path) -> None:
    """And when the certificate expires that Kubernetes would refuse then; who scrapes needs no certificate."""
    clients = tmp_path / "clients"
    clients.mkdir()
    authority = Authority(clients)
    async with serving(tmp_path, authority.file) as webhook:
        assert (await webhook.ask(REVIEW))[0] == 403
        _, before = await webhook.ask(b"", method="GET", path="/metrics")
    async with serving(tmp_path) as webhook:
        for body in (REVIEW, REVIEW, review_with({}), review_with({"inject": "maybe"}), b"{}"):
            await webhook.ask(body)
        await webhook.ask(REVIEW, "text/plain")
        status, after = await webhook.ask(b"", method="GET", path="/metrics")

    def numbers(text: str) -> dict[str, float]:
        return {name: float(number) for name, number in re.findall(r"^(kproxy_\S+) (\S+)$", text, re.MULTILINE)}

    outcomes = ("injected", "left", "refused", "unreadable", "uncertified")
    first, last = ([numbers(text)[f'kproxy_webhook_reviews_total{{outcome="{one}"}}'] for one in outcomes]
                   for text in (before, after))  # fmt: skip
    assert (status, first, last) == (200, [0, 0, 0, 0, 1], [2, 1, 1, 2, 0])
    assert numbers(after)['kproxy_certificate_not_after_timestamp_seconds{name="webhook",side="client"}'] > 0


@BY_COST
@pytest.mark.parametrize("place", ["namespace", "name"])
async def test_log_line_of_a_pod_with_long_names_is_short(place: str, cost: Cost) -> None:
    """The event loop writes it, and each control character becomes six characters."""
    asked = json.loads(REVIEW)
    asked["request"][place] = "\x7f" * 1_000_000
    answer = answer_review(json.dumps(asked, ensure_ascii=False).encode(), SidecarOptions("kproxy:0.1.0"))
    with capture_logs() as logged:
        cost.check(lambda: server.log_outcome(structlog.get_logger(), answer), lines=2000, seconds=0.05)
    line = logged[0]
    told = line["namespace" if place == "namespace" else "pod"]
    assert told == "\\u007f" * 42 + "\\u00"


async def test_refusals_have_the_form_of_the_admin_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not JSON, too long, too slow or for another path: a status that Kubernetes takes for a failure."""
    monkeypatch.setattr(limits, "LONGEST_READ", 0.2)
    async with serving(tmp_path) as webhook:
        codes = {
            (415, "unsupported_media_type"): await webhook.ask(REVIEW, "text/plain"),
            (422, "invalid_document"): await webhook.ask(b'{"a": 1, "a": 2}'),
            (422, "invalid_body"): await webhook.ask(b"{}"),
            (404, "not_found"): await webhook.ask(REVIEW, path="/elsewhere"),
            (405, "method_not_allowed"): await webhook.ask(b"", method="GET"),
        }
        assert {(status, body["error"]["code"]) for status, body in codes.values()} == set(codes)
        async with await webhook.connect() as stream:
            await stream.send_all(b"POST /inject HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                                  b"Content-Length: 4194305\r\n\r\n{")  # fmt: skip
            with trio.fail_after(60):
                assert b"HTTP/1.1 413 " in await stream.receive_some()
        async with await webhook.connect() as stream:
            await stream.send_all(b"POST /inject HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                                  b"Content-Length: 100\r\n\r\n{")  # fmt: skip
            with trio.fail_after(60):
                assert b"HTTP/1.1 408 " in await stream.receive_some()
        assert await webhook.ask(b"", path="/livez", method="GET") == (200, "ok\n")
        assert await webhook.ask(b"", path="/readyz", method="GET") == (200, "ok\n")


async def test_certificates_are_read_again_when_they_change(tmp_path: Path) -> None:
    """The next handshake shows the new one; a file that is no certificate leaves the old one."""

    async def serial() -> int:
        async with await webhook.connect() as stream:
            return int(stream.getpeercert()["serialNumber"], 16)

    async with serving(tmp_path) as webhook:
        first = await serial()
        webhook.authority.issue("localhost", file="webhook.pem")
        second = await serial()
        (tmp_path / "webhook.pem").write_text("no certificate")
        assert first != second == await serial()


async def test_connections_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that never make a handshake: beyond the limit they are closed, and there is time for no more than so
    many seconds of one. Who speaks plain HTTP is closed, and costs nobody else anything."""
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 2)
    monkeypatch.setattr(server, "LONGEST_HANDSHAKE", 1.5)
    async with serving(tmp_path) as webhook:
        silent = [await trio.open_tcp_stream("127.0.0.1", webhook.port) for _ in range(3)]
        with trio.fail_after(60):
            assert await silent[2].receive_some() == b""
            assert [await one.receive_some() for one in silent[:2]] == [b"", b""]
        plain = await trio.open_tcp_stream("127.0.0.1", webhook.port)
        await plain.send_all(b"POST /inject HTTP/1.1\r\n\r\n")
        with trio.fail_after(60), suppress(trio.BrokenResourceError):
            assert await plain.receive_some() == b""
        kept = [await webhook.connect() for _ in range(2)]
        assert [(await exchange(one, REVIEW))[0] for one in kept] == [200, 200]
        status, body = await webhook.ask(b"", path="/elsewhere", method="GET")
        assert (status, body["error"]["code"]) == (503, "too_many_connections")
        for stream in (*silent, plain, *kept):
            await trio.aclose_forcefully(stream)


async def test_only_who_shows_a_certificate_is_answered(tmp_path: Path) -> None:
    """Where there is an authority for that; those who probe need none. Another authority may take its place while the
    webhook runs."""
    servers, others = Authority(tmp_path, "servers"), Authority(tmp_path, "others")
    async with serving(tmp_path, servers.file) as webhook:
        status, body = await webhook.ask(REVIEW)
        assert (status, body["error"]["code"]) == (403, "no_certificate")
        assert await webhook.ask(b"", path="/readyz", method="GET") == (200, "ok\n")
        webhook.context.load_cert_chain(others.issue("api", common_name="kube-apiserver"))
        with pytest.raises((trio.BrokenResourceError, ssl.SSLError)):
            await webhook.ask(REVIEW)
        webhook.context.load_cert_chain(servers.issue("api", common_name="kube-apiserver"))
        assert (await webhook.ask(REVIEW))[0] == 200
        servers.file.write_bytes(others.file.read_bytes())
        with pytest.raises((trio.BrokenResourceError, ssl.SSLError)):
            await webhook.ask(REVIEW)
        webhook.context.load_cert_chain(tmp_path / "others-api.pem")
        assert (await webhook.ask(REVIEW))[0] == 200


SAID: dict[str, bytes | None] = {
    "nothing": None,
    "half a ClientHello": b"\x16\x03\x01\x02\x00\x01",
    "nothing after the handshake": b"",
    "half a head": b"POST /inject HTTP/1.1\r\nHost: a\r\nContent-",
    "half a body": b"POST /inject HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
}


@pytest.mark.parametrize("way", SAID)
async def test_one_who_takes_all_places_keeps_nobody_else_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """However far its connections go. The API server comes from elsewhere, and its review is answered."""
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(http_server, "LATE_HANDSHAKE", 60.0)
    monkeypatch.setattr(server, "LONGEST_HANDSHAKE", 60.0)
    said = SAID[way]
    async with serving(tmp_path) as webhook, AsyncExitStack() as stack:
        for _ in range(4):
            if said is None or said.startswith(b"\x16"):
                tcp = await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", webhook.port))
                await tcp.send_all(said or b"")
                continue
            tls = await stack.enter_async_context(await webhook.connect())
            await tls.send_all(said)
        with trio.fail_after(60):
            async with await webhook.connect("127.0.0.2") as other:
                assert (await exchange(other, REVIEW))[0] == 200


async def test_a_handshake_that_is_late_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for somebody of the same network, such as another one behind a gateway."""
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(http_server, "LATE_HANDSHAKE", 0.0)
    monkeypatch.setattr(server, "LONGEST_HANDSHAKE", 60.0)
    async with serving(tmp_path) as webhook, AsyncExitStack() as stack:
        for _ in range(9):
            await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", webhook.port))
        with trio.fail_after(60):
            assert (await webhook.ask(REVIEW))[0] == 200


async def test_bodies_of_one_leave_room_for_those_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body counts until its review is answered. One that has its part is refused, the other is not."""
    monkeypatch.setattr(limits.BODIES, "most", 3 * len(REVIEW))
    head = b"POST /inject HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 99999\r\n\r\n"
    async with serving(tmp_path) as webhook, await webhook.connect() as large:
        await large.send_all(head + b" " * limits.BODIES.most)
        with trio.fail_after(60):
            while limits.BODIES.total < limits.BODIES.most:
                await trio.lowlevel.checkpoint()
            assert (await webhook.ask(REVIEW))[0] == 429
            async with await webhook.connect("127.0.0.2") as other:
                assert (await exchange(other, REVIEW))[0] == 200
    assert (limits.BODIES.total, dict(limits.BODIES.by_network)) == (0, {})


async def test_networks_take_turns_in_being_answered(autojump_clock: trio.testing.MockClock) -> None:
    """One that has sent ten reviews gets its second one answered after the first one of another."""
    turns, order = server.ReviewTurns(), list[str]()

    async def answer(network: str) -> None:
        async with turns.turn(network):
            await trio.sleep(1)
            order.append(network)

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(answer, "10.0.0.1")
        await trio.sleep(0.5)
        nursery.start_soon(answer, "10.0.0.2")
        with trio.move_on_after(0.6):
            await answer("10.0.0.3")
    assert order[0] == "10.0.0.1" and order.index("10.0.0.2") <= 2 and len(order) == 11
    assert not turns.busy
    with trio.fail_after(2):
        await answer("10.0.0.4")


async def test_an_unusable_certificate_ends_the_start(tmp_path: Path) -> None:
    """In words; nothing listens then."""
    (tmp_path / "none.pem").write_text("no certificate")
    log = structlog.get_logger()
    none, defaults = ListenerTls(cert=str(tmp_path / "none.pem")), SidecarOptions("kproxy:0.1.0")
    with pytest.raises(InternalError, match="cannot be used"):
        await server.serve_webhook(Address("127.0.0.1", 0), none, defaults, log)
