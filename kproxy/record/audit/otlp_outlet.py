"""The outlet that sends events to an OpenTelemetry collector, as log records.

One thread takes batches from the queue and sends each as one request. A line counts as queued until the collector has
acknowledged it. Rejected batches are sent again, in order and without limit, after the time that the collector requests
or after some seconds. The bounds and the policy of the queue decide about newer lines. Data that it can never take
(400, 413) are sent in halves, down to the one event that is dropped and told. A batch with a lost response is sent
twice. Readers drop events with equal source and id, as for files and the topic.

The body of a record is the event's line, as in files. Attributes contain its parts that queries select by.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from kproxy.record.events.column import EventData
from kproxy.record.otlp.export import Delivery, Exporter, OtlpCounters, OtlpSettings
from kproxy.record.otlp.payload import Tree, attributes, nanoseconds

from .event_sink import OutletCounters, Unblocked, WhenFull
from .recorder import QUEUE_BYTES, LineBatch, LineQueue, PutGapEvent, gap_event

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

INFO = 9
"""SEVERITY_NUMBER_INFO of the protocol. Alarms on events are left to the collector."""
RETRY = 2.0
"""Seconds to the next attempt after an internal error."""
LOOK = 1.0
"""Seconds between two looks at whether there is another collector to go to, while one asks to wait."""
LAST_WAIT = 0.5
"""Seconds for the thread to count what is left, after the time to send it."""


class Envelope(msgspec.Struct):
    """Fields of a line that a log record also contains."""

    id: str
    source: str
    type: str
    time: str


class OtlpOutlet:
    """Outlet that sends to a collector. `flush`: seconds to wait for further events of a batch."""

    name = "otlp"

    def __init__(
        self, settings: OtlpSettings, counters: OtlpCounters, log: FilteringBoundLogger, *,
        when_full: WhenFull, queue: int, flush: float, queue_bytes: int = QUEUE_BYTES,
    ) -> None:  # fmt: skip
        self.exporter = Exporter("logs", settings, counters, log)
        self.counters, self.log, self.flush = OutletCounters(), log, flush
        counters.dropped_logs = lambda: sum(self.counters.dropped.copy().values())
        self._queue: LineQueue[bytes] = LineQueue(self.counters, when_full, queue, queue_bytes)
        self._put_gap_event: PutGapEvent
        self._todo: deque[LineBatch[bytes]] = deque()
        self._deadline = float("inf")
        self._clean = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit otlp", daemon=True)

    @property
    def blocked(self) -> bool:
        return self._queue.blocked

    def start(self, put_gap_event: PutGapEvent, on_unblocked: Unblocked) -> None:
        self._put_gap_event, self._queue.on_unblocked = put_gap_event, on_unblocked
        self._thread.start()

    def add(
        self, line: bytes, number: int, day: str, type_name: str, data: EventData,
        must: bool = False, then: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self._queue.add(number, day, line, len(line), must)

    def missing(self, number: int, reason: str) -> None:
        self._queue.missing(number, reason)

    def close(self, timeout: float) -> bool:
        self._deadline = time.monotonic() + timeout
        self._queue.close()
        self._closing.set()
        self._thread.join(timeout + LAST_WAIT)
        return self._clean

    # ---- the thread

    def _run(self) -> None:
        closing = False
        while not (closing and (not self.counters.queued or time.monotonic() >= self._deadline)):
            closing = self._queue.closed  # looked at before the step, so that the last one sees all that there is
            try:
                self._step()
            except Exception as error:
                self._refused("mistake", repr(error))
                self.log.error("audit: bug in kproxy, events cannot be sent", exc_info=error)
                self._closing.wait(RETRY)
        self._give_up()

    def _step(self) -> None:
        if not self._queue.closed:
            self._queue.wake.wait(self.flush)
            self._queue.wake.clear()
        self._todo.extend(self._queue.take())
        while self._todo and time.monotonic() < self._deadline:
            if not self._pause():
                continue
            delivery = self._send(self._todo[0])
            if delivery.taken:
                self._taken(self._todo.popleft(), delivery)
            elif delivery.wrong:
                self._halve(self._todo.popleft(), delivery)
            else:
                self._refused(delivery.outcome, delivery.message)
        if not self.counters.failing and (gap := self._queue.take_gap()) is not None:
            self._put_gap_event(gap_event(gap, self.name), _do_nothing)

    def _pause(self) -> bool:
        """Wait until the collector may be asked again, or the end comes near; False: look again first."""
        left = min(self.exporter.ready_at, self._deadline) - time.monotonic()
        if left <= 0:
            return True
        left = min(left, LOOK)
        if self._closing.is_set():
            time.sleep(left)
        else:
            self._closing.wait(left)
        return False

    def _send(self, batch: LineBatch[bytes]) -> Delivery:
        records = [log_record(line) for line in batch.items]
        return self.exporter.send(records, len(records), max(0.0, self._deadline - time.monotonic()))

    def _taken(self, batch: LineBatch[bytes], delivery: Delivery) -> None:
        if delivery.rejected:  # it is not told which ones, so the gap begins with the batch
            self.counters.errors["rejected"] += 1
            self.counters.last_error = delivery.message
            self._queue.lost(batch.first_id, batch.first_id + delivery.rejected - 1, "rejected")
        self.counters.written += len(batch.items) - delivery.rejected
        self.counters.bytes += batch.size
        self.counters.last_durable = time.time()
        self._queue.mark_done(len(batch.items), batch.size)
        self._recovered()

    def _halve(self, batch: LineBatch[bytes], delivery: Delivery) -> None:
        """Send the halves of a rejected batch, or drop a batch of one event."""
        middle = len(batch.items) // 2
        if not middle:
            self.counters.errors[delivery.outcome] += 1
            self.counters.last_error = delivery.message
            self._queue.lost(batch.first_id, batch.last_id, delivery.outcome)
            self._queue.mark_done(1, batch.size)
            self._recovered()  # it answers, and nothing else may be left that could show it
            return
        for first, items in ((batch.first_id + middle, batch.items[middle:]), (batch.first_id, batch.items[:middle])):
            self._todo.appendleft(LineBatch(batch.day, first, items, sum(map(len, items))))

    def _recovered(self) -> None:
        if self.counters.failing:
            self.counters.failing = False
            self._queue.refuse("")

    def _refused(self, reason: str, message: str) -> None:
        self.counters.errors[reason] += 1
        self.counters.last_error = message
        self.counters.failing = True
        self._queue.refuse(reason)

    def _give_up(self) -> None:
        """Count what the collector has not taken by now as dropped."""
        self.exporter.close()
        left = [*self._todo, *self._queue.take()]
        for batch in left:
            self._queue.lost(batch.first_id, batch.last_id, "close_timeout")
            self._queue.mark_done(len(batch.items), batch.size)
        self._clean = not left and self._queue.take_gap() is None


_envelope = msgspec.json.Decoder(Envelope).decode


def log_record(line: bytes) -> Tree:
    """Return the log record of an event's line, which ends with a newline."""
    head = _envelope(line)
    at = nanoseconds(datetime.fromisoformat(head.time).timestamp())
    return {
        "timeUnixNano": at,
        "observedTimeUnixNano": at,
        "severityNumber": INFO,
        "severityText": "INFO",
        "eventName": head.type,
        "body": {"stringValue": line[:-1].decode()},
        "attributes": attributes({
            "cloudevents.event_id": head.id,
            "cloudevents.event_source": head.source,
            "cloudevents.event_spec_version": "1.0",
            "cloudevents.event_type": head.type,
        }),
    }  # fmt: skip


def _do_nothing() -> None:
    pass
