"""The outlet that writes to a topic of any Kafka cluster, through librdkafka.

One thread takes lines from the queue, produces them, and serves the delivery reports. A line counts as queued until all
in-sync replicas have it. So the bounds of the queue also hold for librdkafka's own queue. Deliveries have no time
limit. Rejected lines are produced again every few seconds. Lines that the cluster can never accept (too large) are
dropped and reported. A line that was produced again may be in the topic twice: readers drop what has the same source
and id, as they do with files.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kproxy.base.distribution import how_to_install
from kproxy.base.errors import InputError, InternalError
from kproxy.record.events.column import EventData

from .event_sink import OutletCounters, Unblocked, WhenFull
from .recorder import OVERSHOOT, OVERSHOOT_BYTES, QUEUE_BYTES, LineQueue, PutGapEvent, gap_event

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

BEAT = 0.05
"""Seconds of one poll for delivery reports, and longest delay of a new line."""

LAST_WAIT = 1.0
"""Seconds at most for the reports on lines that are taken back; they come at once."""

UNSENDABLE = frozenset(
    ("MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG", "INVALID_MSG_SIZE", "RECORD_LIST_TOO_LARGE")
)
"""Errors of a single line, which would be rejected again."""

FAILED_PRODUCER = "_FATAL"
"""Error of a producer that has failed for good and has to be replaced."""


class MissingExtra(InternalError):
    """Error for confluent-kafka, which carries librdkafka, not being installed."""


class WrongOptions(InputError):
    """Error for settings that librdkafka refuses; the message is its own."""


@dataclass(frozen=True)
class KafkaSettings:
    """Settings of the audit's topic.

    `options` are librdkafka's; acks=all and idempotence are fixed. Times in seconds.
    """

    bootstrap: str
    topic: str
    source: str
    options: Mapping[str, str | int | bool] = field(default_factory=dict)
    when_full: WhenFull = "drop"
    queue: int = 100_000
    queue_bytes: int = QUEUE_BYTES
    retry: float = 2.0


@dataclass(slots=True)
class LineInFlight:
    """Line on its way to the topic."""

    number: int
    line: bytes
    key: str
    type_name: str


class KafkaOutlet:
    """Outlet that writes to a topic.

    The key of a message is the number of the connection, or the source. Headers: `type`, `content-type`.
    """

    name = "kafka"

    def __init__(self, settings: KafkaSettings, log: FilteringBoundLogger) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise MissingExtra(f"confluent-kafka is not installed: {how_to_install('kafka')}") from error
        self._kafka: Any = confluent_kafka
        self.settings, self.log = settings, log
        self.counters = OutletCounters()
        self._queue: LineQueue[LineInFlight] = LineQueue(
            self.counters, settings.when_full, settings.queue, settings.queue_bytes
        )
        self._producer: Any = None
        self._put_gap_event: PutGapEvent
        self._todo: deque[LineInFlight] = deque()
        self._again: list[LineInFlight] = []
        self._settled = self._settled_bytes = 0
        self._ended = self._clean = False
        self._retry_at = 0.0
        self._deadline = 0.0
        self._thread = threading.Thread(target=self._run, name="audit topic", daemon=True)

    @property
    def blocked(self) -> bool:
        return self._queue.blocked

    def start(self, put_gap_event: PutGapEvent, on_unblocked: Unblocked) -> None:
        """Start the thread. Raises WrongOptions. A cluster that cannot be reached is tried again until it can."""
        self._put_gap_event, self._queue.on_unblocked = put_gap_event, on_unblocked
        self._producer = self._new_producer()
        self._thread.start()

    def add(
        self, line: bytes, number: int, day: str, type_name: str, data: EventData,
        must: bool = False, then: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        connection = data.get("connection")
        key = self.settings.source if connection is None else str(connection)
        self._queue.add(number, day, LineInFlight(number, line[:-1], key, type_name), len(line), must)

    def missing(self, number: int, reason: str) -> None:
        self._queue.missing(number, reason)

    def close(self, timeout: float) -> bool:
        self._deadline = time.monotonic() + timeout
        self._queue.close()
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
                time.sleep(self.settings.retry)
        self._give_up()

    def _step(self) -> None:
        now = time.monotonic()
        if self._ended:
            self._replace_producer()
        if self._again and now >= self._retry_at:
            self._again.sort(key=lambda sent: sent.number)  # librdkafka gives them back by its own queues
            self._todo.extendleft(reversed(self._again))
            self._again.clear()
        for batch in self._queue.take():
            self._todo.extend(batch.items)
        self._send()
        if self._queue.closed:
            self._producer.flush(BEAT)  # without waiting for more to send along
        else:
            self._producer.poll(BEAT)
        self._mark_durable()
        if self.counters.failing and not self.counters.queued and now >= self._retry_at:
            self._recovered()  # nothing is left that could show it
        if not self.counters.failing and (gap := self._queue.take_gap()) is not None:
            self._put_gap_event(gap_event(gap, self.name), _do_nothing)

    def _send(self) -> None:
        produce, topic = self._producer.produce, self.settings.topic
        while self._todo:
            sent = self._todo[0]
            headers = [("type", sent.type_name), ("content-type", "application/cloudevents+json")]
            try:
                produce(topic, sent.line, sent.key, headers=headers, on_delivery=partial(self._delivered, sent))
            except BufferError:
                return
            except self._kafka.KafkaException as error:
                self._todo.popleft()
                self._delivered(sent, error.args[0], None)
                if self._ended:
                    return
                continue
            self._todo.popleft()

    def _delivered(self, sent: LineInFlight, error: Any, _message: Any) -> None:
        """Take librdkafka's delivery report of a line; it comes out of `poll`."""
        if error is None:
            self.counters.written += 1
            self.counters.bytes += len(sent.line) + 1
        elif error.name() in UNSENDABLE:
            self.counters.errors[error.name().lower()] += 1
            self._queue.lost(sent.number, sent.number, error.name().lower())
        else:
            self._ended = self._ended or error.fatal() or error.name() == FAILED_PRODUCER
            self._again.append(sent)
            self._refused(error.name().lower().lstrip("_"), error.str())
            return
        self._settled += 1
        self._settled_bytes += len(sent.line) + 1

    def _mark_durable(self) -> None:
        if not self._settled:
            return
        self.counters.last_durable = time.time()
        self._queue.mark_done(self._settled, self._settled_bytes)
        self._settled = self._settled_bytes = 0
        if self.counters.failing and not self._again:
            self._recovered()

    def _recovered(self) -> None:
        self.counters.failing = False
        self.log.info("audit: events are sent to the topic again", topic=self.settings.topic)
        self._queue.refuse("")

    def _refused(self, reason: str, message: str) -> None:
        counters = self.counters
        counters.errors[reason] += 1
        counters.last_error = message
        self._retry_at = time.monotonic() + self.settings.retry
        self._queue.refuse(reason)
        if not counters.failing:
            counters.failing = True
            then = "clients wait" if self._queue.blocking else "they are dropped once the queue is full"
            topic = self.settings.topic
            self.log.warning(
                "audit: events do not reach the topic, kproxy tries again", then=then, topic=topic, error=message
            )

    def _trouble(self, error: Any) -> None:
        """Take librdkafka's error about the cluster as such.

        Single brokers come and go; it matters when all are gone.
        """
        if error.fatal():
            self._ended = True
        if error.fatal() or error.name() in ("_ALL_BROKERS_DOWN", "_AUTHENTICATION"):
            self._refused("unreachable" if error.name() == "_ALL_BROKERS_DOWN" else error.name().lower(), error.str())

    def _give_up(self) -> None:
        """Count what is not delivered by now as dropped; it is not known whether the cluster has it."""
        self._producer.purge()
        self._producer.flush(LAST_WAIT)
        self._mark_durable()
        left = [*self._todo, *self._again, *(sent for batch in self._queue.take() for sent in batch.items)]
        for sent in left:
            self._queue.lost(sent.number, sent.number, "close_timeout")
            self._queue.mark_done(1, len(sent.line) + 1)
        self._clean = not left and self._queue.take_gap() is None

    # ---- producers

    def _new_producer(self) -> Any:
        settings = self.settings
        options: dict[str, Any] = {
            "client.id": "kproxy-audit",
            "compression.type": "lz4",
            "linger.ms": 50,
            "log_level": 0,  # important errors arrive through error_cb
            **settings.options,
            "bootstrap.servers": settings.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": 0,  # no limit: the queue's bounds and the policy decide
            "queue.buffering.max.messages": settings.queue + OVERSHOOT,
            "queue.buffering.max.kbytes": (settings.queue_bytes + OVERSHOOT_BYTES) // 1024,
            "error_cb": self._trouble,
        }
        try:
            return self._kafka.Producer(options)
        except (self._kafka.KafkaException, ValueError, TypeError) as error:
            raise WrongOptions(f"audit.kafka: {error}") from error

    def _replace_producer(self) -> None:
        """Replace a producer after a fatal error. The new producer takes over its lines."""
        self._producer.purge()
        self._producer.flush(LAST_WAIT)
        self._producer = self._new_producer()
        self._ended = False


def _do_nothing() -> None:
    pass
