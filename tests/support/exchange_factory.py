"""Exchanges made from bodies, as watchers hand them out, and files of such exchanges, for tests of sinks and of the
pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kproxy.protocol.records import Producer, Record, encode_batch
from kproxy.protocol.table.schema import load, names
from kproxy.record.audit.lines import EventEncoder
from kproxy.record.audit.request_event import request_event
from kproxy.record.captures.policy import Payload, Policy
from kproxy.record.captures.writer import CaptureWriter
from kproxy.record.events.schema import REQUEST_EVENT
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.record.observer.credentials import take_out
from kproxy.record.observer.records import FoundRecord
from tests.support.frames import message


@dataclass(eq=False)
class Somebody:
    """Connection of an exchange (`record.exchange.Who`) with the values that a test gives."""

    number: int = 1
    cluster: str | None = "main"
    listener: str | None = "main"
    client_address: str = "127.0.0.1"
    client_port: int = 50000
    node: int | None = 1
    broker: str | None = "kafka-1:9092"
    principal: str | None = None
    software_name: str | None = None
    software_version: str | None = None
    server: tuple[str, int] = ("127.0.0.1", 19092)
    """The address at kproxy that it is connected to."""
    topics: Mapping[str, str] = field(default_factory=dict)
    client_id: str = "tester"
    """Client id in the headers of its requests."""

    def broker_topic(self, topic: str) -> str | None:
        return None

    def broker_group(self, group: str) -> str | None:
        return None

    def topic_of(self, topic_id: str) -> str | None:
        return self.topics.get(topic_id)


def exchange(
    api_name: str, version: int, request: Mapping[str, Any], response: Mapping[str, Any] | None, *,
    who: Somebody | None = None, form: Form = Form.WHOLE, at: float = 1_000.0, number: int = 1,
) -> ObservedExchange:  # fmt: skip
    """Return an exchange that begins at `at` seconds and takes 20 ms; without a response it is unanswered. `form`: the
    part that is kept of both frames, of HEAD 20 bytes."""
    api, who = load(names()[api_name]), who or Somebody()
    asked = message(api.key, version, "request", dict(request), number, who.client_id)
    seen = ObservedExchange(
        who=who, number=number, key=api.key, version=version, correlation_id=number, client_id=who.client_id,
        request=_frame(asked, api.key, version, "request", form, at), acks=request.get("acks"),
    )  # fmt: skip
    if response is not None:
        answered = message(api.key, version, "response", dict(response), number)
        seen.response, seen.outcome = _frame(answered, api.key, version, "response", form, at + 0.02), "answered"
    return seen


def _frame(frame: bytes, key: int, version: int, direction: str, form: Form, at: float) -> Frame:
    """Return a frame without credentials, as watchers keep it."""
    data, withheld = take_out(frame, key, version, direction)
    if len(data) < len(frame):
        form = Form.HEAD
    elif form is Form.HEAD:
        data = data[:20]
    return Frame(len(frame) + 4, at, at, b"" if form is Form.NONE else data, form, withheld)


NOON = 1_795_262_400.0
"""Seconds since 1970 at 2026-11-21T12:00:00Z."""
NOT_LEADER = 6


def orders(count: int, base: int = 0, codec: int = 0) -> bytes:
    """Return a batch of so many orders: keys `user-N`, values `order N` that compress well, one header each."""
    records = [
        Record(number, int(NOON * 1000) + number, b"user-%d" % number, b"order %d " % number * 8, (("trace", b"a1"),))
        for number in range(base, base + count)
    ]
    return encode_batch(records, codec=codec, base_offset=base, producer=Producer(4000, 0, base))


def conversation() -> list[ObservedExchange]:
    """Return the exchanges of two clients from `NOON` on, one a second: `etl` writes orders, one write fails after 250
    ms, one wants no answer; `report` reads, and its heartbeat stays without an answer."""
    etl = Somebody(3, principal="User:alice", client_id="etl", client_address="192.168.7.1", client_port=51000,
                   software_name="librdkafka", software_version="2.3.0")  # fmt: skip
    report = Somebody(
        4, client_id="report", node=2, broker="kafka-2:9092", client_address="192.168.7.2", client_port=52000
    )
    written = {
        "topic_data": [
            {
                "name": "orders",
                "partition_data": [{"index": 0, "records": orders(3)}, {"index": 3, "records": orders(5, codec=4)}],
            }
        ]
    }
    failed = {"name": "orders", "partition_responses": [{"index": 0, "error_code": NOT_LEADER, "base_offset": -1}]}
    answered = {"name": "orders", "partition_responses": [{"index": 0, "base_offset": 10}, {"index": 3}]}
    one = {"topic_data": [{"name": "orders", "partition_data": [{"index": 0, "records": orders(1)}]}]}
    read = {"topic": "orders", "partitions": [{"partition_index": 0, "high_watermark": 20, "records": orders(2, 10)}]}
    wanted = {"topic": "orders", "partitions": [{"partition": 0, "fetch_offset": 10}]}
    told: list[tuple[str, int, dict[str, Any], dict[str, Any] | None, Somebody]] = [
        ("Metadata", 8, {"topics": [{"name": "orders"}]}, _METADATA, etl),
        ("Produce", 8, {"acks": -1, **written}, {"responses": [answered]}, etl),
        ("Produce", 8, {"acks": -1, **one}, {"responses": [failed]}, etl),
        ("Produce", 8, {"acks": 0, **one}, None, etl),
        ("Fetch", 11, {"topics": [wanted]}, {"responses": [read]}, report),
        ("Heartbeat", 3, {"group_id": "billing", "generation_id": 7, "member_id": "report-1"}, None, report),
    ]
    found = [
        exchange(api, version, request, response, who=who, at=NOON + number, number=number)
        for number, (api, version, request, response, who) in enumerate(told, 1)
    ]
    assert found[2].response is not None, "it was made so"
    found[2].response.first = found[2].response.last = NOON + 3.25
    found[3].outcome = "no_answer_due"
    return found


_METADATA: dict[str, Any] = {
    "brokers": [{"node_id": 1, "host": "kafka-1", "port": 9092}, {"node_id": 2, "host": "kafka-2", "port": 9092}],
    "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "leader_id": 1}]}],
}


def write_capture(path: Path, exchanges: Iterable[ObservedExchange], payload: Payload = "full") -> Path:
    """Write a capture of these exchanges, as of a proxy at 127.0.0.1:9092. Return its path."""
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy(payload))
        for seen in exchanges:
            writer.write(seen, ("127.0.0.1", 9092))
        writer.finish(NOON + 60, "asked")
    return path


def event_lines(exchanges: Iterable[ObservedExchange], source: str = "host/5b0c1e2f/0") -> bytes:
    """Return the request events of these exchanges, as event files hold them."""
    lines = EventEncoder(source)
    made = [lines.line(REQUEST_EVENT.name, seen.request.first if seen.request else NOON, request_event(seen, float))
            for seen in exchanges]  # fmt: skip
    return b"".join(made)


def record_of(found: FoundRecord) -> Record:
    """Return a found record, decoded."""
    spans, span = found.spans, found.span
    headers = tuple((name.decode(), value) for name, value in spans.headers(span))
    return Record(spans.offset(span), spans.timestamp(span), spans.key(span), spans.value(span), headers)
