"""Export of one OTLP signal over HTTP: results of requests, their counts, and the time of the next attempt.

The sender is for a thread that may wait. h11 parses the bytes, and one connection is kept. Each step has the remaining
time of the request: a server that sends a byte a second also ends it. At most `MOST_ANSWER` bytes of a response are
read; a longer one closes the connection. Redirects are not followed: headers with secrets would go elsewhere.
"""

from __future__ import annotations

import math
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from random import random
from typing import TYPE_CHECKING, Literal, NamedTuple

import h11
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .payload import Encoding, RequestEncoder, Semconv, Signal, Tree

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

MOST_ANSWER = 1 << 16
"""Bytes of an answer's body: a collector's has some hundred."""
MOST_HEADERS = 1 << 14
"""Bytes of an answer's headers."""
READ = 1 << 14
WRITE = 1 << 18
MOST_WAIT = 300.0
"""Longest Retry-After in seconds: an hour would look like an endless outage."""


class Undelivered(Exception):
    """Error of a request without a response: the server is unreachable, too slow, or does not speak HTTP."""


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
    """Answer to a request. `wait`: seconds that the server asks to wait; None if missing. `body`: None if it is longer
    than what is read."""

    status: int
    wait: float | None
    body: bytes | None


class HttpRequest(NamedTuple):
    """Request of a sender, and the bytes of its answer that are read."""

    method: str
    path: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    most_answer: int = MOST_ANSWER


class HttpSender:
    """Sender of one thread. `clock`: monotonic seconds."""

    def __init__(self, target: HttpTarget, clock: Callable[[], float] = time.monotonic) -> None:
        self.target, self.clock = target, clock
        self._socket: socket.socket | None = None
        self._state = _client()

    def post(self, content_type: str, body: bytes, most: float = math.inf) -> HttpAnswer:
        """Send a body and return the answer, within the target's time and `most` seconds. Raises Undelivered.

        If a kept connection has ended, the body is sent again on a new one.
        """
        headers = [("content-type", content_type), ("content-length", str(len(body)))]
        return self._request(HttpRequest("POST", self.target.path, headers, body), most)

    def get(self, path: str, most_answer: int) -> HttpAnswer:
        """Get a path below that of the target, and return the answer of at most `most_answer` bytes. Raises
        Undelivered."""
        return self._request(HttpRequest("GET", self.target.path + path, (), b"", most_answer))

    def _request(self, request: HttpRequest, most: float = math.inf) -> HttpAnswer:
        until = self.clock() + min(self.target.timeout, most)
        kept = self._socket is not None
        try:
            try:
                return self._exchange(request, until)
            except ConnectionError:
                if not kept:
                    raise
                self.close()
                return self._exchange(request, until)
        except TimeoutError:
            self.close()
            raise Undelivered(f"expected a response within {self.target.timeout:g} s, got none") from None
        except (OSError, UnicodeError, h11.ProtocolError) as error:  # UnicodeError: the host is not a valid name
            self.close()
            raise Undelivered(_told(error)) from error

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
            self._socket = None

    # ---- one exchange

    def _exchange(self, request: HttpRequest, until: float) -> HttpAnswer:
        if self._socket is None:
            self._socket, self._state = self._connected(until), _client()
        sock, state, target = self._socket, self._state, self.target
        headers = [("host", target.authority), *request.headers, *target.headers]
        head = h11.Request(method=request.method, target=request.path, headers=headers)
        self._send(sock, state.send(head) or b"", until)
        data = state.send(h11.Data(data=request.body)) or b""
        state.send(h11.EndOfMessage())
        try:
            self._send(sock, data, until)
        except ConnectionError:  # a server may send an error and close before it has read all
            answer = self._answer(sock, state, until, request.most_answer)
            self.close()
            return answer
        return self._answer(sock, state, until, request.most_answer)

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

    def _answer(self, sock: socket.socket, state: h11.Connection, until: float, most: int) -> HttpAnswer:
        status, wait, body = 0, None, bytearray()
        while True:
            event = state.next_event()
            if event is h11.NEED_DATA:
                sock.settimeout(self._left(until))
                data = sock.recv(READ)
                if not data and not status:
                    raise ConnectionResetError("expected a response, got a closed connection")
                state.receive_data(data)
            elif isinstance(event, h11.Response):
                status = event.status_code
                wait = _wait_of(dict(event.headers).get(b"retry-after"))
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > most:
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
    """Return the seconds of a Retry-After header, 0 to `MOST_WAIT`; None if it is missing or invalid."""
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
    """Return the message of an error, without Python's additions."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"expected a trusted certificate, got: {error.verify_message}"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    if isinstance(error, UnicodeError):
        return f"expected a host name, got an invalid one: {error}"
    return f"expected an HTTP response, got: {error}"


ExportOutcome = Literal["ok", "partial", "busy", "refused", "unreadable", "unreachable"]
"""ok: accepted · partial: accepted in part · busy: 429 and temporary 5xx · refused: any other status · unreadable: a
success that is not a response of OTLP · unreachable: no response."""
BUSY = frozenset((429, 502, 503, 504))  # OTLP's specification, "Retryable Response Codes"
WRONG_DATA = frozenset((400, 413, 422))
"""Statuses about the data: a retry would be refused again."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0
"""Seconds to the next attempt, doubled with each failure, unless the server sets the time."""
TELL_EVERY = 60.0
"""Seconds between two log lines about what a collector throws away, which may be some of each request."""
LONGEST_MESSAGE = 300
"""Characters of a server's message that are shown."""


class OtlpWay(NamedTuple):
    """Way to a collector. `target`: its address, where the paths of signals are appended."""

    target: HttpTarget
    encoding: Encoding
    semconv: Semconv = "1.30"

    def to(self, path: str) -> HttpTarget:
        return replace(self.target, path=self.target.path + path)


class OtlpSettings:
    """Settings of exports to a collector, shared by all exporters of a process, which read the target before each
    request. `use`, from any thread, changes it for all waiting data as well."""

    def __init__(self, way: OtlpWay, instance: str) -> None:
        self.way, self.instance = way, instance

    def use(self, way: OtlpWay) -> None:
        self.way = way


@dataclass
class OtlpCounters:
    """Counters of all signals of one process; any thread may read them.

    `dropped`: spans, and snapshots of metrics, that the collector did not receive. `dropped_logs`: function that
    returns the dropped log records, None without an outlet for logs.
    """

    exports: Counter[tuple[Signal, ExportOutcome]] = field(default_factory=Counter)
    dropped: Counter[Signal] = field(default_factory=Counter)
    dropped_logs: Callable[[], int] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class OtlpCollector(Collector):
    """Collector of the counters of exports."""

    def __init__(self, counters: OtlpCounters) -> None:
        self.counters = counters

    def collect(self) -> Iterator[Metric]:
        exports = CounterMetricFamily(
            "kproxy_otlp_exports", "Requests to the collector, by outcome.", labels=["signal", "outcome"]
        )
        for labels, number in sorted(self.counters.exports.items()):
            exports.add_metric(labels, number)
        yield exports
        dropped = CounterMetricFamily(
            "kproxy_otlp_dropped", "Log records, spans and snapshots of metrics that the collector never got.",
            labels=["signal"],
        )  # fmt: skip
        for signal, number in self.counters.dropped.copy().items():
            dropped.add_metric([signal], number)
        if self.counters.dropped_logs is not None:
            dropped.add_metric(["logs"], self.counters.dropped_logs())
        yield dropped


@dataclass(frozen=True, slots=True)
class Delivery:
    """Result of one request. `rejected`: items that a success left out; `wrong`: the data itself was refused."""

    outcome: ExportOutcome
    message: str = ""
    rejected: int = 0
    wrong: bool = False

    @property
    def taken(self) -> bool:
        """Return True if the collector has the request, and it must not be sent again."""
        return self.outcome in ("ok", "partial")


class Exporter:
    """Exporter of one signal, for one thread. After a failure, `ready_at` returns the time of the next attempt."""

    def __init__(
        self, signal: Signal, settings: OtlpSettings, counters: OtlpCounters, log: FilteringBoundLogger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.signal, self.settings, self.counters, self.log, self.clock = signal, settings, counters, log, clock
        self.way = settings.way
        self._make()
        self.failing = False
        self.thrown_away_told = -math.inf
        """When it was logged last that the collector throws something away."""

    @property
    def ready_at(self) -> float:
        """Return the monotonic time of the next attempt: now if the collector has changed."""
        return self._ready_at if self.settings.way is self.way else 0.0

    @ready_at.setter
    def ready_at(self, when: float) -> None:
        self._ready_at = when

    def _make(self) -> None:
        self.encoder = RequestEncoder(self.signal, self.settings.instance, self.way.encoding, self.way.semconv)
        self.sender = HttpSender(self.way.to(self.encoder.path), self.clock)
        self._ready_at = 0.0
        self._wait = FIRST_WAIT

    def _follow(self) -> None:
        way = self.settings.way
        if way is not self.way:
            self.sender.close()
            self.way = way
            self._make()

    def send(self, trees: Iterable[Tree], items: int, most: float = math.inf) -> Delivery:
        """Send `items` metrics, log records or spans within `most` seconds, and return the outcome."""
        self._follow()
        body = self.encoder.encode(trees)
        try:
            delivery = self._judge(self.sender.post(self.encoder.content_type, body, most), items)
        except Undelivered as error:
            delivery = Delivery("unreachable", str(error))
            self._back_off(None)
        self.counters.exports[self.signal, delivery.outcome] += 1
        self._tell(delivery)
        return delivery

    def drop(self, number: int = 1) -> None:
        """Count items that are not sent."""
        with self.counters.lock:
            self.counters.dropped[self.signal] += number

    def close(self) -> None:
        """Close the connection to the collector, if there is one."""
        self.sender.close()

    def _judge(self, answer: HttpAnswer, items: int) -> Delivery:
        status = answer.status
        if not 200 <= status < 300:
            outcome: ExportOutcome = "busy" if status in BUSY else "refused"
            if status not in WRONG_DATA:
                self._back_off(answer.wait)
            return Delivery(outcome, f"HTTP status {status}", wrong=status in WRONG_DATA)
        try:
            if answer.body is None:
                raise ValueError(f"expected at most {MOST_ANSWER} bytes, got more")
            rejected, message = self.encoder.rejected(answer.body)
        except ValueError as error:
            self._back_off(answer.wait)
            return Delivery("unreadable", f"expected an OTLP response, got HTTP status {status} with: {error}")
        self._wait = FIRST_WAIT
        if rejected:
            return Delivery("partial", message[:LONGEST_MESSAGE], min(rejected, items))
        return Delivery("ok")

    def _back_off(self, wait: float | None) -> None:
        """Wait as long as the server requests, otherwise longer each time, with jitter so that proxies do not retry
        together. Without a time, or with a past one, a server would be called again without a pause."""
        if wait is None or wait < FIRST_WAIT:
            wait, self._wait = self._wait * (0.75 + random() / 2), min(2 * self._wait, LONGEST_WAIT)
        self._ready_at = self.clock() + wait

    def _tell(self, delivery: Delivery) -> None:
        """Log the first failure and its end, and occasionally the collector's message about rejected items."""
        if delivery.rejected and self.clock() - self.thrown_away_told >= TELL_EVERY:
            self.thrown_away_told = self.clock()
            self.log.warning("otlp: the collector accepts requests, but rejects some of the items", signal=self.signal,
                             rejected=delivery.rejected, error=delivery.message)  # fmt: skip
        if delivery.taken == self.failing:
            self.failing = not delivery.taken
            if self.failing:
                self.log.warning("otlp: the collector does not accept requests, kproxy retries",
                                 signal=self.signal, error=delivery.message)  # fmt: skip
            else:
                self.log.info("otlp: the collector accepts requests again", signal=self.signal)
