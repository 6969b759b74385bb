"""What watching costs: nanoseconds of a `kproxy.record.observer` watcher for one exchange, both directions, without
sockets.

    python -m tests.lab.bench.watch_alone [--between] [DEPTH …]

Depths: count, rows (as for an audit with detail `summary`; the default), requests (an audit of every request, through
to the finished line in the queue), sketch, full; labels (metrics by topic, client, principal and group alone),
rows+labels and requests+labels (beside such an audit). Gathering for a scrape is told apart.

Frames lie in buffers as the driver's, and are shown again and again. The CPU time of the least of many runs is printed.

With `--between` another process has its turn before each call, as a client or a broker has between two frames, and the
median of many runs is printed. The processor has other things in its caches then, so the same work takes longer: that
is what a client pays who waits for each answer (the bench's phase `audit`).
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from statistics import median
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import structlog

from kproxy.protocol import Message, encode
from kproxy.protocol.records import Producer, Record, encode_batch
from kproxy.protocol.table import schema
from kproxy.record.audit.audit_sink import AuditSink
from kproxy.record.audit.config import AuditConfig, AuditLevel
from kproxy.record.audit.event_sink import EventGate, OutletCounters
from kproxy.record.audit.recorder import LineQueue, Recorder
from kproxy.record.exchange import Depth, ObservedExchange
from kproxy.record.fanout import Fanout
from kproxy.record.metrics.label_sink import LabelSink
from kproxy.record.metrics.totals import LabelTotals, MetricsConfig
from kproxy.record.observer.observer import ConnectionObserver
from kproxy.record.observer.summary import Summary

BUFFER = 1 << 18
RUNS, EXCHANGES = 1500, 64
RUNS_BETWEEN = 150
TOPIC, OTHER = UUID(int=7), UUID(int=8)
RECORDS = encode_batch([Record(0, 0, b"key", b"v" * 90)], producer=Producer(1, 0, 0))


def request(name: str, version: int, body: dict[str, object], correlation: int = 5) -> bytes:
    """A frame with its length."""
    key = schema.names()[name]
    header = {"request_api_key": key, "request_api_version": version, "correlation_id": correlation}
    return sized(encode(Message(schema.load(key), version, header | {"client_id": "bench-client"}, body)))


def response(name: str, version: int, body: dict[str, object], correlation: int = 5) -> bytes:
    """A frame with its length."""
    return sized(encode(Message(schema.load(schema.names()[name]), version, {"correlation_id": correlation}, body)))


def sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def topic(version: int, by_id: int, name: str, one: UUID = TOPIC) -> dict[str, object]:
    return {"topic_id": one} if version >= by_id else {name: f"topic-{one.int}"}


def produce(version: int, partitions: int = 1) -> tuple[bytes, bytes]:
    parts = [{"index": at, "records": RECORDS} for at in range(partitions)]
    named = topic(version, 13, "name")
    asked = {"acks": -1, "timeout_ms": 30000, "topic_data": [named | {"partition_data": parts}]}
    done = [{"index": at, "base_offset": 12345} for at in range(partitions)]
    return request("Produce", version, asked), response(
        "Produce", version, {"responses": [named | {"partition_responses": done}]}
    )


def fetch(version: int, partitions: int) -> tuple[bytes, bytes]:
    parts = [
        {"partition_index": at, "high_watermark": 99, "last_stable_offset": 99, "records": RECORDS}
        for at in range(partitions)
    ]
    topics = [topic(version, 13, "topic") | {"partitions": parts}] if parts else []
    asked = {"max_wait_ms": 500, "min_bytes": 1, "session_id": 77, "session_epoch": 9, "topics": []}
    return request("Fetch", version, asked), response("Fetch", version, {"session_id": 77, "responses": topics})


def heartbeat() -> tuple[bytes, bytes]:
    asked = {"group_id": "group", "generation_id": 3, "member_id": "member"}
    return request("Heartbeat", 4, asked), response("Heartbeat", 4, {})


CASES: dict[str, tuple[bytes, bytes, int]] = {
    "Produce 9, lone": (*produce(9), 1),
    "Produce 12, lone": (*produce(12), 1),
    "Produce 13, lone": (*produce(13), 1),
    "Produce 12, pipelined 32": (*produce(12), 32),
    "Produce 12, 10 partitions": (*produce(12, 10), 1),
    "Fetch 17, empty": (*fetch(17, 0), 1),
    "Fetch 17, 1 partition": (*fetch(17, 1), 1),
    "Fetch 12, 1 partition": (*fetch(12, 1), 1),
    "Fetch 17, 10 partitions": (*fetch(17, 10), 1),
    "Heartbeat 4": (*heartbeat(), 1),
}


def measured(run: Callable[[], None], exchanges: int, after: Callable[[], None]) -> float:
    """Return nanoseconds an exchange. `after` is called between runs and does not count."""
    least = float("inf")
    for _ in range(RUNS):
        begun = time.thread_time()
        run()
        least = min(least, time.thread_time() - begun)
        after()
    return least / exchanges * 1e9


class OtherProcess:
    """Process that answers what it is sent through a pair of sockets."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair()
        if os.fork() == 0:
            self.ours.close()
            while said := theirs.recv(4096):
                theirs.send(said)
            os._exit(0)
        theirs.close()

    def turn(self) -> None:
        self.ours.send(b"x" * 200)
        self.ours.recv(4096)


def between(calls: list[Callable[[], object]], other: OtherProcess, rounds: int, after: Callable[[], None]) -> float:
    """Return nanoseconds of these calls, of which the other process has its turn before each: the median of runs."""
    found = []
    for _ in range(RUNS_BETWEEN):
        taken = 0
        for _ in range(rounds):
            for call in calls:
                other.turn()
                begun = time.perf_counter_ns()
                call()
                taken += time.perf_counter_ns() - begun
        found.append(taken / rounds)
        after()
    return median(found)


class Outlet:
    """Outlet of an audit that writes nothing; what is in its queue is taken out between two runs."""

    name = "files"
    blocked = False

    def __init__(self) -> None:
        self.counters = OutletCounters()
        self.queue: LineQueue[bytes] = LineQueue(self.counters, "drop", 100_000, 1 << 26)

    def add(self, line: bytes, number: int, day: str, _type_name: str, _data: Any) -> None:
        self.queue.add(number, day, line, len(line))

    def empty(self) -> None:
        for batch in self.queue.take():
            self.queue.mark_done(len(batch.items), batch.size)


CONNECTION: Any = SimpleNamespace(
    number=3, cluster="main", listener="inside", client_address="10.1.2.3", client_port=40000, node=1,
    broker="b1:9092", principal="User:alice", software_name="librdkafka", software_version="2.16.0", outcome=None,
    standing=None, topic_of=lambda topic_id: "topic-7", broker_topic=lambda topic: None,
    broker_group=lambda group: None,
)  # fmt: skip


def audited(outlet: Any, detail: AuditLevel | None, labels: LabelSink | None) -> ConnectionObserver:
    """Return a watcher of an audit of this detail, None: without one, and of metrics by label, if there are any."""
    fanout = Fanout(structlog.get_logger())
    if labels is not None:
        fanout.add(labels)
    if detail is None:
        assert labels is not None, "somebody watches"
        return ConnectionObserver(CONNECTION, fanout.depth, fanout.take, summary=labels.summary_for(CONNECTION))
    events = EventGate(Recorder("instance/boot/0", [outlet]), lambda: None, lambda call: None)  # lines wait to be many
    sink = AuditSink(AuditConfig(dir="audit", level=detail), events, lambda now: 1795255200.0 + now, labels)
    fanout.add(sink)
    summary, request_lines = sink.summary_for(CONNECTION), sink.request_lines_for(CONNECTION)
    return ConnectionObserver(CONNECTION, fanout.depth, fanout.take, summary=summary, request_lines=request_lines)


def cost(word: str, asked: bytes, answered: bytes, together: int, other: OtherProcess | None = None) -> float:
    """Return nanoseconds an exchange; `other`: has its turn between two calls."""
    taken: list[ObservedExchange] = []
    outlet, labels = Outlet(), None
    if word.endswith("labels"):
        metrics = MetricsConfig(by=["topic", "client_id", "principal", "group"])
        labels = LabelSink(LabelTotals(metrics), time.monotonic, {})
    if word in AUDITS:
        observer = audited(outlet, AUDITS[word], labels)
    else:
        depth = Depth[word.upper()]
        summary = Summary(lambda key, version: True) if depth is Depth.ROWS else None
        observer = ConnectionObserver(
            None,
            lambda key, version: depth,
            lambda seen: taken.clear(),
            summary=summary,
        )
    come, go = bytearray(asked * together).ljust(BUFFER, b"\0"), bytearray(answered * together).ljust(BUFFER, b"\0")
    n, m, now = len(asked) * together, len(answered) * together, 100.0
    rounds = max(EXCHANGES // together, 1)

    def ask() -> None:
        observer.from_client(come, n, now)

    def answer() -> None:
        observer.to_client(go, m, now + 0.0023)

    def run() -> None:
        for _ in range(rounds):
            observer.from_client(come, n, now)
            observer.to_client(go, m, now + 0.0023)

    def after() -> None:
        outlet.empty()
        for _ in () if labels is None else labels.gather():
            pass

    if other is not None:
        return between([ask, answer], other, rounds, after) / together
    found = measured(run, rounds * together, after)
    assert observer.responses == RUNS * rounds * together
    return found


AUDITS: dict[str, AuditLevel | None] = {
    "requests": "requests", "labels": None, "rows+labels": "summary", "requests+labels": "requests",
}  # fmt: skip


def gathering(asked: bytes, answered: bytes) -> float:
    """Return nanoseconds of CPU to gather a connection that has counted exchanges of one kind."""
    labels = LabelSink(LabelTotals(MetricsConfig(by=["topic", "client_id", "principal", "group"])), time.monotonic, {})
    observer, least = audited(Outlet(), None, labels), float("inf")
    for _ in range(RUNS):
        observer.from_client(bytearray(asked), len(asked), 100.0)
        observer.to_client(bytearray(answered), len(answered), 100.0023)
        begun = time.thread_time()
        for _ in labels.gather():
            pass
        least = min(least, time.thread_time() - begun)
    return least * 1e9


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--between"] or ["rows"]
    other = OtherProcess() if "--between" in sys.argv else None
    print(f"{'ns an exchange':28}", *(f"{word:>15}" for word in words))
    for name, case in CASES.items():
        print(f"{name:28}", *(f"{cost(word, *case, other):15.0f}" for word in words))
    if any(word.endswith("labels") for word in words):
        asked, answered, _ = CASES["Produce 12, lone"]
        print(f"gathering a connection for a scrape: {gathering(asked, answered):.0f} ns")


if __name__ == "__main__":
    main()
