"""Sink that makes spans of exchanges whose records have a trace context, beside the traffic.

Strategy. The loop's thread only keeps what passed, as it is, in a bounded queue. One thread reads records, and spends
at most `SHARE` of its time on that, so that it takes as little from the loop; another sends spans. What fits in
neither queue is dropped and counted: nobody waits for a trace.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from structlog.typing import FilteringBoundLogger

from kproxy.protocol.table.api_keys import FETCH, PRODUCE, SHARE_FETCH
from kproxy.record.exchange import Depth, ObservedExchange, Who
from kproxy.record.observer.records import NotKept

from .export import Exporter, OtlpCounters, OtlpSettings
from .payload import Tree
from .spans import span_of, traced_records

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
"""Seconds for which spans wait for others."""
LAST_SEND = 2.0
"""Seconds at most to send what is left when the process ends."""


class TraceSink:
    """Sink of one process, from `start` to `close`. `tests`: of topics' names."""

    broker_side = False

    def __init__(
        self, settings: OtlpSettings, counters: OtlpCounters, log: FilteringBoundLogger,
        tests: Sequence[Callable[[str], bool]], sample: float, links: int,
        flush: float = FLUSH,
    ) -> None:  # fmt: skip
        self.flush = flush
        self.use(tests, sample, links)
        self.exporter = Exporter("traces", settings, counters, log)
        self.log = log
        self.dropped = 0
        """Exchanges that were not read, of which some would have been spans, and spans that were not taken."""
        self.counters = counters
        counters.begin("traces", self.lost)
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
        """Make spans of these topics' exchanges from now on; what waits to be read is looked at so, too."""
        self.tests, self.sample, self.links = tests, sample, links

    def lost(self) -> int:
        return self.dropped

    def depth(self, key: int, version: int) -> Depth:
        """Return FULL for what has records: their headers may be packed."""
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
                self.dropped += 1
                return
            self.waiting.append((seen, size))
            self.bytes += size
        self._read.set()

    def take_behind(self, seen: ObservedExchange) -> None:
        """Never called: spans tell what clients see."""

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
            self.dropped += len(self.waiting) + len(self.spans)
        self.counters.end("traces", self.lost)

    # ---- in threads

    def _run(self, work: Callable[[], None], over: threading.Event) -> None:
        """Work again and again, once more after `over` is set, so that the last time sees all that there is."""
        while True:
            closing = over.is_set()
            try:
                work()
            except Exception as error:
                self.log.error("otlp: spans cannot be made or sent, which is a mistake in kproxy", exc_info=error)
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
            self.dropped += 1
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
            self.dropped += 1
            return
        if not found.contexts:
            return
        offset = time.time() - time.monotonic()  # the wall clock may have been set
        span = span_of(seen, found, lambda at: at + offset, self.links)
        with self._lock:
            if len(self.spans) >= MOST_WAITING:
                self.dropped += 1
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
            except Exception:  # such as of one that cannot be encoded: they would keep all others for ever
                self._leave(batch, len(batch))
                raise
            if not delivery.taken and not delivery.wrong:
                return
            self._leave(batch, len(batch) if delivery.wrong else delivery.rejected)

    def _leave(self, batch: Sequence[Tree], lost: int) -> None:
        """Keep the first spans no longer, of which so many are lost."""
        with self._lock:
            for _ in batch:
                self.spans.popleft()
            self.dropped += lost
