"""Spans of exchanges whose records have a trace context: one read or write of records, in the trace of the records.

The loop's thread only adds exchanges to a bounded queue. One thread reads records, within `SHARE` of its time, to limit
its load on the loop; another sends spans. Data that fits in neither queue is dropped and counted: traffic never waits
for a trace.

A context is W3C's `traceparent`, or the single header `b3` of Zipkin. Any program may write a header, so only headers
that exactly follow the specifications count; others are ignored. For repeated names the last header counts, as in
Kafka's own clients. Keys and values of records are not read, and of headers only the trace context. Names of attributes
are those of OpenTelemetry's semantic conventions for messaging, of the version in `semconv`. They were renamed more
than once, and are only here.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import urandom
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kproxy.protocol.records.spans import Header
from kproxy.protocol.table.api_keys import FETCH, PRODUCE, SHARE_FETCH
from kproxy.protocol.table.errors import error_name
from kproxy.record.exchange import Depth, ObservedExchange, Who
from kproxy.record.fanout import ClusterMetadata
from kproxy.record.observer.records import LIVE, NotKept, records_of
from kproxy.record.observer.response_errors import errors_of
from kproxy.rules.kinds.base.content_rule import is_chosen

from .export import Exporter, OtlpCounters, OtlpSettings
from .payload import Tree, attributes, nanoseconds, sendable

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

MAX_HEADER_LENGTH = 512
"""Bytes of a header that are looked at: a later version of traceparent may be longer than this one's 55."""
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]*)?")
_B3 = re.compile(rb"([0-9a-f]{16}|[0-9a-f]{32})-([0-9a-f]{16})-([01d])(?:-[0-9a-f]{16})?")
NO_TRACE, NO_SPAN = b"0" * 32, b"0" * 16
SAMPLED = 1


class TraceContext(NamedTuple):
    """Trace and span that a record was written in, as hex digits, and whether that span is recorded."""

    trace_id: str
    span_id: str
    sampled: bool


def context_in(headers: Iterable[Header]) -> TraceContext | None:
    """Return the context in a record's headers, with `traceparent` before `b3`; None if missing."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in (b"traceparent", b"b3") and value is not None and len(value) <= MAX_HEADER_LENGTH:
            found[name] = bytes(value)
    return parse_traceparent(found.get(b"traceparent", b"")) or parse_b3(found.get(b"b3", b""))


def parse_traceparent(value: bytes) -> TraceContext | None:
    """Return the context of a `traceparent` (W3C Trace Context §3.2), of later versions what is alike."""
    match = _TRACEPARENT.fullmatch(value)
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    return _context(trace, span, bool(int(flags, 16) & SAMPLED))


def parse_b3(value: bytes) -> TraceContext | None:
    """Return the context of a `b3` header with a sampling decision; `d` is debug."""
    match = _B3.fullmatch(value)
    if match is None:
        return None
    trace, span, sampled = match.groups()
    return _context(trace.rjust(32, b"0"), span, sampled != b"0")


def _context(trace: bytes, span: bytes, sampled: bool) -> TraceContext | None:
    if NO_TRACE == trace or NO_SPAN == span:
        return None
    return TraceContext(trace.decode(), span.decode(), sampled)


CLIENT, ERROR = 3, 2  # SPAN_KIND_CLIENT and STATUS_CODE_ERROR of the proto
LONGEST = 500
"""Characters of a text that a client chose."""


@dataclass
class TracedRecords:
    """Records of one exchange in traced topics: their number, topics, and contexts."""

    records: int = 0
    topics: dict[str, set[int]] = field(default_factory=dict)
    contexts: dict[TraceContext, None] = field(default_factory=dict)


def traced_records(seen: ObservedExchange, wanted: Callable[[str], bool], fraction: float, most: int) -> TracedRecords:
    """Return the records of an exchange in topics that are `wanted`, with at most `most` sampled and selected contexts.
    Records beyond what may be looked at while traffic passes are left out. Raises NotKept if the bytes are missing.
    """
    found = TracedRecords()
    try:
        for one in records_of(seen, LIVE, wanted):
            found.records += 1
            found.topics.setdefault(one.topic, set()).add(one.partition)
            context = context_in(one.spans.headers(one.span))
            if context is None or not context.sampled or not is_chosen(context.trace_id, fraction):
                continue
            if len(found.contexts) < most:
                found.contexts.setdefault(context)
    except NotKept:
        if not found.records:
            raise
    return found


def span_of(
    seen: ObservedExchange, found: TracedRecords, wall: Callable[[float], float], links: int,
    cluster_id: str | None = None,
) -> Tree:  # fmt: skip
    """Return the span of an exchange with at least one context: below that, or with up to `links` links to several.

    `cluster_id`: Kafka's id of the cluster, for conventions that have an attribute for it.
    """
    operation = "send" if seen.key == PRODUCE else "poll"
    contexts = list(found.contexts)
    topic = next(iter(found.topics)) if len(found.topics) == 1 else None
    request, answer = seen.request, seen.answer
    assert request is not None, "records were read from it"
    end = request.last if answer is None else answer.last
    span: Tree = {
        "traceId": contexts[0].trace_id if len(contexts) == 1 else urandom(16).hex(),
        "spanId": urandom(8).hex(),
        "flags": 1,
        "name": operation if topic is None else f"{operation} {sendable(short(topic))}",
        "kind": CLIENT,
        "startTimeUnixNano": nanoseconds(wall(request.first)),
        "endTimeUnixNano": nanoseconds(wall(max(end, request.first))),
        "attributes": attributes(described(seen, found, operation, topic, cluster_id)),
        "events": events_of(seen, wall),
    }
    if len(contexts) == 1:
        span["parentSpanId"] = contexts[0].span_id
    else:
        span["links"] = [{"traceId": one.trace_id, "spanId": one.span_id} for one in contexts[:links]]
    failed = "unanswered" if seen.outcome in ("unanswered", "closed") else failure(errors_of(seen).codes)
    if failed:
        span["status"] = {"code": ERROR}
        span["attributes"] += attributes({"error.type": failed})
    return span


def described(
    seen: ObservedExchange, found: TracedRecords, operation: str, topic: str | None, cluster_id: str | None
) -> dict[str, Any]:
    """Return the attributes of a span, None for those that it does not have."""
    who = seen.who
    partitions = found.topics[topic] if topic is not None else set()
    server, _, port = (who.broker or "").rpartition(":")
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.operation.type": "send" if operation == "send" else "receive",
        "messaging.destination.name": None if topic is None else short(topic),
        "messaging.destination.partition.id": str(next(iter(partitions))) if len(partitions) == 1 else None,
        "messaging.batch.message_count": found.records,
        "messaging.kafka.cluster.id": short(cluster_id) if cluster_id else None,
        "messaging.client.id": short(seen.client_id) if seen.client_id else None,
        "server.address": server.strip("[]") or None,
        "server.port": int(port) if port.isdigit() else None,
        "client.address": who.client_address,
        "kproxy.connection": str(who.number),
        "kproxy.listener": who.listener,
        "kproxy.cluster": who.cluster,
        "kproxy.rules": [short(name) for name in seen.rules] or None,
    }


def events_of(seen: ObservedExchange, wall: Callable[[float], float]) -> list[Tree]:
    """Return when the request left for the broker and when its response came, each with its time held by rules."""
    sent, received = seen.sent, seen.received
    if sent is None or received is None:
        return []
    times = (
        ("request to broker", sent, seen.rule_wait[0]),
        ("response from broker", received, seen.rule_wait[1]),
    )
    return [
        {"name": name, "timeUnixNano": nanoseconds(wall(at)), "attributes": attributes({"kproxy.rule_seconds": waited})}
        for name, at, waited in times
    ]


def failure(codes: Sequence[int]) -> str:
    """Return the name of the first error, or an empty text."""
    return next((error_name(code) for code in codes if code), "")


def short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


TRACED = frozenset((PRODUCE, FETCH, SHARE_FETCH))
MOST_WAITING = 2048
"""Exchanges that wait to be read, and spans that wait to be sent, each."""
MOST_BYTES = 16 << 20
"""Bytes of exchanges that wait: of both frames, though only one has records, and of the client's id."""
WIDEST = 4
"""Bytes of a character at most, in memory."""
SHARE = 0.1
"""Part of a core that reading records takes at most."""
BURST = 0.05
"""Seconds of reading that may have been saved up."""
BATCH = 512
"""Spans of one request."""
FLUSH = 1.0
"""Seconds that spans wait for others."""
LAST_SEND = 2.0
"""Seconds at most to send what is left when the process ends."""


class TraceSink:
    """Sink of one process, from `start` to `close`. `tests`: of topics' names. `pictures`: metadata of each cluster."""

    broker_side = False

    def __init__(
        self, settings: OtlpSettings, counters: OtlpCounters, log: FilteringBoundLogger,
        tests: Sequence[Callable[[str], bool]], sample: float, links: int,
        pictures: Mapping[str, ClusterMetadata] = MappingProxyType({}), flush: float = FLUSH,
    ) -> None:  # fmt: skip
        self.flush, self.pictures = flush, pictures
        self.use(tests, sample, links)
        self.exporter = Exporter("traces", settings, counters, log)
        self.log = log
        self.exporter.drop(0)  # the metric of drops begins with 0
        self.waiting: deque[tuple[ObservedExchange, int]] = deque()
        self.bytes = 0
        self.spans: deque[Tree] = deque()
        self._lock = threading.Lock()
        self._read, self._send = threading.Event(), threading.Event()
        self._closing, self._read_over = threading.Event(), threading.Event()
        self._deadline = float("inf")
        self._left = BURST
        self._threads = (
            threading.Thread(target=self._run, args=(self._read_all, self._closing), name="otlp records", daemon=True),
            threading.Thread(target=self._run, args=(self._send_all, self._read_over), name="otlp traces", daemon=True),
        )

    # ---- in the loop's thread

    def use(self, tests: Sequence[Callable[[str], bool]], sample: float, links: int) -> None:
        """Make spans for exchanges with these topics, including waiting ones."""
        self.tests, self.sample, self.links = tests, sample, links

    def depth(self, key: int, version: int) -> Depth:
        """Return FULL for APIs with records: their headers may be compressed."""
        return Depth.FULL if key in TRACED else Depth.COUNT

    def take(self, seen: ObservedExchange) -> None:
        """Keep an exchange until its records are read, if there is room."""
        if seen.key not in TRACED:
            return
        frame = seen.request if seen.key == PRODUCE else seen.answer
        if frame is None:
            return
        size = sum(len(one.data) for one in (seen.request, seen.response) if one is not None)
        size += WIDEST * len(seen.client_id or "")
        with self._lock:
            if len(self.waiting) >= MOST_WAITING or self.bytes + size > MOST_BYTES:
                self.exporter.drop()
                return
            self.waiting.append((seen, size))
            self.bytes += size
        self._read.set()

    def take_behind(self, seen: ObservedExchange) -> None:
        """Not called: spans describe the client side."""

    def opened(self, who: Who, now: float) -> None:
        """Do nothing: connections have no spans."""

    def closed(self, who: Who, now: float) -> None:
        """Do nothing: connections have no spans."""

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Read and send what is left, within `LAST_SEND` seconds. Blocks as long."""
        self._deadline = time.monotonic() + LAST_SEND
        for thread, over, wake in zip(
            self._threads, (self._closing, self._read_over), (self._read, self._send), strict=True
        ):
            over.set()
            wake.set()
            if thread.is_alive():
                thread.join(max(0.0, self._deadline - time.monotonic()))
        with self._lock:
            self.exporter.drop(len(self.waiting) + len(self.spans))

    # ---- in threads

    def _run(self, work: Callable[[], None], over: threading.Event) -> None:
        """Work again and again, once more after `over` is set, so that the last time sees all that there is."""
        while True:
            closing = over.is_set()
            try:
                work()
            except Exception as error:
                self.log.error("otlp: internal error, spans are dropped", exc_info=error)
                self._closing.wait(self.flush)
            if closing:
                break
        if over is self._read_over:
            self.exporter.close()

    def _read_all(self) -> None:
        if not self._closing.is_set():
            self._read.wait()
        self._read.clear()
        while self.waiting and time.monotonic() < self._deadline:
            with self._lock:
                seen, size = self.waiting.popleft()
                self.bytes -= size
            self._paced(seen)

    def _paced(self, seen: ObservedExchange) -> None:
        """Read an exchange, then pause until its time is saved up again."""
        began, spent = time.monotonic(), time.thread_time()
        try:
            self._trace(seen)
        except Exception:
            self.exporter.drop()
            raise
        finally:
            used = time.thread_time() - spent
            self._left = min(BURST, self._left + SHARE * (time.monotonic() - began)) - used
            if self._left < 0 and not self._closing.is_set():
                pause = -self._left / SHARE
                self._closing.wait(pause)
                self._left += SHARE * pause

    def _trace(self, seen: ObservedExchange) -> None:
        try:
            found = traced_records(seen, self._wanted, self.sample, max(2, self.links))
        except NotKept:
            self.exporter.drop()
            return
        if not found.contexts:
            return
        offset = time.time() - time.monotonic()  # the wall clock may have been set
        picture = self.pictures.get(seen.who.cluster or "") if self.exporter.settings.way.semconv != "1.30" else None
        span = span_of(seen, found, lambda at: at + offset, self.links, picture.cluster_id if picture else None)
        with self._lock:
            if len(self.spans) >= MOST_WAITING:
                self.exporter.drop()
                return
            self.spans.append(span)
        if len(self.spans) >= BATCH:
            self._send.set()

    def _wanted(self, topic: str) -> bool:
        return any(test(topic) for test in self.tests)

    def _send_all(self) -> None:
        if not self._read_over.is_set():
            self._send.wait(max(self.flush, min(self.exporter.ready_at - time.monotonic(), LAST_SEND)))
        self._send.clear()
        while self.spans and self.exporter.ready_at <= time.monotonic() < self._deadline:
            batch = [self.spans[index] for index in range(min(BATCH, len(self.spans)))]
            try:
                delivery = self.exporter.send(batch, len(batch), self._deadline - time.monotonic())
            except Exception:  # such as one that cannot be encoded: it would block all others
                self._drop(batch, len(batch))
                raise
            if not delivery.taken and not delivery.wrong:
                return
            self._drop(batch, len(batch) if delivery.wrong else delivery.rejected)

    def _drop(self, batch: Sequence[Tree], lost: int) -> None:
        """Drop the first spans, and count them as lost."""
        with self._lock:
            for _ in batch:
                self.spans.popleft()
        self.exporter.drop(lost)
