"""One POST at a time over a connection that is kept, to servers of every kind."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress

import pytest
import trustme

from kproxy.record.otlp.export import MOST_ANSWER, MOST_WAIT, HttpSender, HttpTarget, Undelivered
from tests.support.otlp_collector import Collector, Reply

Make = Callable[..., HttpSender]
EMPTY = b'{"resourceLogs":[]}'

HTTP, TRUSTED = "^expected an HTTP response, got: ", "^expected a trusted certificate, got: "


@pytest.fixture
def sender_to() -> Iterator[Callable[..., HttpSender]]:
    """Makes senders to a port of this machine, closed after the test."""
    made: list[HttpSender] = []

    def make(port: int, timeout: float = 20.0, tls: Callable[[], ssl.SSLContext] | None = None) -> HttpSender:
        target = HttpTarget("127.0.0.1", port, "/v1/logs", [("x-tenant", "shop")], tls, timeout=timeout)
        made.append(HttpSender(target))
        return made[-1]

    yield make
    for one in made:
        one.close()


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server of one connection, for the bytes that no good one sends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            with listening.accept()[0] as connection:
                serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def read_request(connection: socket.socket) -> None:
    data = b""
    while EMPTY not in data:
        data += connection.recv(65536)


def test_a_connection_is_kept(collector: Collector, sender_to: Make) -> None:
    """The second request goes the way of the first; its headers are those of the target."""
    sender = sender_to(collector.port)
    first = sender.post("application/json", EMPTY)
    kept = sender._socket
    sender.post("application/json", EMPTY)

    assert sender._socket is kept is not None
    assert (first.status, first.wait, collector.paths) == (200, None, ["/v1/logs"] * 2)
    assert collector.headers[0]["x-tenant"] == "shop"
    assert collector.headers[0]["host"] == f"127.0.0.1:{collector.port}"


def test_a_connection_that_has_ended_is_replaced(collector: Collector, sender_to: Make) -> None:
    """A restart of the collector between two requests costs nothing."""
    sender = sender_to(collector.port)
    sender.post("application/json", EMPTY)
    collector.down()
    collector.up()

    assert sender.post("application/json", EMPTY).status == 200
    assert len(collector.paths) == 2


def test_nobody_listens(collector: Collector, sender_to: Make) -> None:
    """The error is the system's own words."""
    sender = sender_to(collector.port)
    collector.down()
    with pytest.raises(Undelivered, match=r"^Connection refused$"):
        sender.post("application/json", EMPTY)
    collector.up()


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example"])
def test_a_host_that_can_be_none(host: str) -> None:
    """Such as of a name whose middle is missing: what Python says of it is no error of the system's."""
    with pytest.raises(Undelivered, match=r"^expected a host name, got an invalid one: "):
        HttpSender(HttpTarget(host, 4318, "/v1/logs")).post("application/json", EMPTY)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7), ("0", 0), ("999999999999999999999", MOST_WAIT), ("-1", None), ("nan", None), ("1e9", None),
        ("", None),
        ("٣", None), ("Wed, 99 Foo", None), ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 2093 07:28:00 GMT", MOST_WAIT),
    ],
)  # fmt: skip
def test_how_long_to_wait(collector: Collector, value: str, seconds: float | None, sender_to: Make) -> None:
    """Seconds or a date, at most some minutes; whatever says nothing is as if it were not there."""
    raw = value.encode().decode("latin-1")
    collector.replies = [Reply(429, {"Retry-After": raw})]
    answer = sender_to(collector.port).post("application/json", EMPTY)

    assert (answer.status, answer.wait) == (429, seconds)


def test_a_huge_answer_is_not_read(collector: Collector, sender_to: Make) -> None:
    """Its connection ends there, and the next request has a new one."""
    collector.replies = [Reply(200, {}, b"x" * (MOST_ANSWER + 1)), Reply(200, {}, b"x" * MOST_ANSWER)]
    sender = sender_to(collector.port)

    assert sender.post("application/json", EMPTY).body is None
    assert sender._socket is None
    assert len(sender.post("application/json", EMPTY).body or b"") == MOST_ANSWER


@pytest.mark.parametrize("more", [b"1000\r\n" + b"x" * 4096 + b"\r\n", b"a: " + b"x" * 4096 + b"\r\n"])
def test_response_without_end_is_not_read_on(sender_to: Make, more: bytes) -> None:
    def endless(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"transfer-encoding: chunked\r\n\r\n" * more.startswith(b"1"))
        with suppress(OSError):
            while True:
                connection.sendall(more)

    with server(endless) as port, nullcontext() if more.startswith(b"1") else pytest.raises(Undelivered, match=HTTP):
        assert sender_to(port).post("application/json", EMPTY).body is None


def test_a_server_that_drips(sender_to: Make) -> None:
    """The time is that of the whole request: each byte of an answer is no new beginning."""
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        read_request(connection)
        with suppress(OSError):
            for byte in b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000:
                connection.sendall(bytes([byte]))
                if over.wait(0.01):
                    return

    with server(drip) as port:
        with pytest.raises(Undelivered, match=r"expected a response within 0.2 s, got none"):
            sender_to(port, 0.2).post("application/json", EMPTY)
        over.set()


@pytest.mark.parametrize(
    "junk", [b"", b"SSH-2.0-OpenSSH\r\n", b"\x15\x03\x01\x00\x02\x02\x46", b"HTTP/1.1 999999 no\r\n\r\n"]
)
def test_what_answers_is_no_http_server(junk: bytes, sender_to: Make) -> None:
    """An error that says so, never an exception of another kind."""

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(junk)

    with server(serve) as port, pytest.raises(Undelivered):
        sender_to(port).post("application/json", EMPTY)


def test_tls_is_verified(sender_to: Make) -> None:
    """A certificate of an authority that is not trusted, or of another name, is not believed."""
    authority, stranger = trustme.CA(), trustme.CA()
    good = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(good)
    other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("elsewhere.test").configure_cert(other)

    def trusting(ca: trustme.CA) -> Callable[[], ssl.SSLContext]:
        context = ssl.create_default_context()
        ca.configure_trust(context)
        return lambda: context

    for served, trusted, problem in (
        (good, authority, ""),
        (good, stranger, TRUSTED),
        (other, authority, TRUSTED),
    ):
        collector = Collector(served)
        sender = sender_to(collector.port, tls=trusting(trusted))
        if problem:
            with pytest.raises(Undelivered, match=problem):
                sender.post("application/json", EMPTY)
        else:
            assert sender.post("application/json", EMPTY).status == 200
            sender.close()
        collector.down()
        assert len(collector.paths) == (not problem)


def test_a_plain_server_where_tls_is_asked_for(collector: Collector, sender_to: Make) -> None:
    """An error within the time, not a hang."""
    context = ssl.create_default_context()
    with pytest.raises(Undelivered):
        sender_to(collector.port, 5, lambda: context).post("application/json", EMPTY)


def test_a_refusal_before_all_was_read(sender_to: Make) -> None:
    """A status that comes while the body is still being sent is the answer."""

    def refuse(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass

    with server(refuse) as port:
        sender = sender_to(port)
        assert sender.post("application/json", b"x" * (8 << 20)).status == 413
        sender.close()
