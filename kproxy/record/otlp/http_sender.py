"""Sender of POST requests to one HTTP server, for a thread that may wait.

Strategy: h11 says what the bytes mean, and one connection is kept. Each step has only what is left of the request's
time: a server that sends a byte a second ends it, too. Of an answer at most `MOST_ANSWER` bytes are read; whatever is
longer costs the connection. Redirects are not followed: headers with secrets would go elsewhere.
"""

from __future__ import annotations

import math
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import h11

MOST_ANSWER = 1 << 16
"""Bytes of an answer's body: a collector's has some hundred."""
MOST_HEADERS = 1 << 14
"""Bytes of an answer's headers."""
READ = 1 << 14
WRITE = 1 << 18
MOST_WAIT = 300.0
"""Seconds for which a server may ask to wait: an hour would look like an outage that never ends."""


class Undelivered(Exception):
    """Error of a request without an answer: the server is not there, is too slow, or does not speak HTTP."""


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """Server and path that requests go to. `tls` makes the context of a new connection, None: without TLS."""

    host: str
    port: int
    path: str
    headers: Sequence[tuple[str, str]] = ()
    tls: Callable[[], ssl.SSLContext] | None = None
    server_name: str | None = None
    timeout: float = 10.0

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (80 if self.tls is None else 443) else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Answer to a request. `wait`: seconds that the server asks to wait, None if it does not say. `body`: None if it
    is longer than what is read."""

    status: int
    wait: float | None
    body: bytes | None


class HttpSender:
    """Sender of one thread. `clock`: monotonic seconds."""

    def __init__(self, target: HttpTarget, clock: Callable[[], float] = time.monotonic) -> None:
        self.target, self.clock = target, clock
        self._socket: socket.socket | None = None
        self._state = _client()

    def post(self, content_type: str, body: bytes, most: float = math.inf) -> HttpAnswer:
        """Send a body and return the answer, within the target's time and `most` seconds. Raises Undelivered.

        A connection that was kept may have ended meanwhile; then the body is sent again on a new one.
        """
        until = self.clock() + min(self.target.timeout, most)
        kept = self._socket is not None
        try:
            try:
                return self._exchange(content_type, body, until)
            except ConnectionError:
                if not kept:
                    raise
                self.close()
                return self._exchange(content_type, body, until)
        except TimeoutError:
            self.close()
            raise Undelivered(f"no answer within {self.target.timeout:g} s") from None
        except (OSError, UnicodeError, h11.ProtocolError) as error:  # UnicodeError: the host can be no name
            self.close()
            raise Undelivered(_told(error)) from error

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
            self._socket = None

    # ---- one exchange

    def _exchange(self, content_type: str, body: bytes, until: float) -> HttpAnswer:
        if self._socket is None:
            self._socket, self._state = self._connected(until), _client()
        sock, state, target = self._socket, self._state, self.target
        headers = [
            ("host", target.authority), ("content-type", content_type), ("content-length", str(len(body))),
            *target.headers,
        ]  # fmt: skip
        self._send(sock, state.send(h11.Request(method="POST", target=target.path, headers=headers)) or b"", until)
        data = state.send(h11.Data(data=body)) or b""
        state.send(h11.EndOfMessage())
        try:
            self._send(sock, data, until)
        except ConnectionError:  # a server may say what is wrong, and close, before it has read all
            answer = self._answer(sock, state, until)
            self.close()
            return answer
        return self._answer(sock, state, until)

    def _connected(self, until: float) -> socket.socket:
        target = self.target
        sock = socket.create_connection((target.host, target.port), self._left(until))
        if target.tls is None:
            return sock
        try:
            sock.settimeout(self._left(until))
            return target.tls().wrap_socket(sock, server_hostname=target.server_name or target.host)
        except BaseException:
            sock.close()
            raise

    def _send(self, sock: socket.socket, data: bytes, until: float) -> None:
        rest = memoryview(data)
        while rest:
            sock.settimeout(self._left(until))
            rest = rest[sock.send(rest[:WRITE]) :]

    def _answer(self, sock: socket.socket, state: h11.Connection, until: float) -> HttpAnswer:
        status, wait, body = 0, None, bytearray()
        while True:
            event = state.next_event()
            if event is h11.NEED_DATA:
                sock.settimeout(self._left(until))
                data = sock.recv(READ)
                if not data and not status:
                    raise ConnectionResetError("the server has closed the connection without an answer")
                state.receive_data(data)
            elif isinstance(event, h11.Response):
                status = event.status_code
                wait = _wait_of(dict(event.headers).get(b"retry-after"))
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MOST_ANSWER:
                    self.close()
                    return HttpAnswer(status, wait, None)
            elif isinstance(event, h11.EndOfMessage):
                break
        if state.our_state is h11.DONE and state.their_state is h11.DONE:
            state.start_next_cycle()
        else:
            self.close()
        return HttpAnswer(status, wait, bytes(body))

    def _left(self, until: float) -> float:
        left = until - self.clock()
        if left <= 0:
            raise TimeoutError
        return left


def _client() -> h11.Connection:
    return h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEADERS)


def _wait_of(value: bytes | None) -> float | None:
    """Return the seconds of a Retry-After header, 0 to `MOST_WAIT`; None for none, and for one that says nothing."""
    if value is None:
        return None
    text = value.decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text[:10]), MOST_WAIT))
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
    return min(max(seconds, 0.0), MOST_WAIT)


def _told(error: Exception) -> str:
    """Return what is wrong in words, without what Python puts around them."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not believed: {error.verify_message}"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    if isinstance(error, UnicodeError):
        return f"its host is no name of one: {error}"
    return f"what answers does not speak HTTP: {error}"
