"""Spans of exchanges, as the collector gets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kproxy.protocol.records import Record, encode_batch
from kproxy.record.otlp import trace_sink
from kproxy.record.otlp.export import OtlpCounters, OtlpSettings
from kproxy.record.otlp.payload import Tree
from kproxy.record.otlp.trace_sink import TraceSink, span_of
from kproxy.rules.select.match import text_test
from tests.record.audit.conftest import Log
from tests.support.exchange_factory import Somebody, exchange
from tests.support.otlp_collector import Collector, Reply
from tests.support.wait import until

SECRET = b"s3cr3t-of-a-record"
SPAN = "00f067aa0ba902b7"


def trace(number: int) -> str:
    return f"{number:016x}{number * 0x9E3779B97F4A7C15 % 2**64:016x}"


def record(number: int = 0, flags: str = "01", header: bytes | None = None) -> Record:
    """A record written in the trace of that number, 0: in none; `header`: what stands in its traceparent."""
    value = header if header is not None else f"00-{trace(number)}-{SPAN}-{flags}".encode()
    headers = (("who", SECRET), *((("traceparent", value),) if number or header is not None else ()))
    return Record(0, 0, SECRET, SECRET, headers)


def produce(*records: Record, codec: int = 0, topic: str = "orders", error: int = 0, answered: bool = True) -> Any:
    batch = encode_batch([Record(index, 0, one.key, one.value, one.headers) for index, one in enumerate(records)],
                         codec=codec)  # fmt: skip
    data = [{"name": topic, "partition_data": [{"index": 3, "records": batch}]}]
    done = [{"name": topic, "partition_responses": [{"index": 3, "error_code": error, "base_offset": 7}]}]
    request = {"acks": -1, "timeout_ms": 1000, "topic_data": data}
    return exchange("Produce", 9, request, {"responses": done} if answered else None)


def fetch(*records: Record, topic: str = "orders", asked: Any = None, who: Any = None) -> Any:
    batch = encode_batch([Record(index, 0, one.key, one.value, one.headers) for index, one in enumerate(records)])
    done = [{"topic": topic, "partitions": [{"partition_index": 3, "records": batch}]}]
    return exchange("Fetch", 12, asked or {}, {"responses": done}, who=who)


@pytest.fixture
def sink(settings: Callable[..., OtlpSettings]) -> Iterator[Callable[..., TraceSink]]:
    """Makes started sinks; closed after the test."""
    made: list[TraceSink] = []
    logs = Log()

    def make(
        *topics: str, sample: float = 1.0, links: int = 3, encoding: Any = "json", start: bool = True
    ) -> TraceSink:
        tests = [text_test(topic) for topic in topics or ("orders*",)]
        made.append(TraceSink(settings(encoding), OtlpCounters(), logs, tests, sample, links, flush=0.01))
        made[-1].exporter._wait = 0.02
        if start:
            made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.close()
        assert logs.texts("error") == []


def of(span: Any) -> dict[str, Any]:
    """A span's attributes."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@pytest.mark.parametrize("encoding", ["json", "protobuf"])
@pytest.mark.parametrize("codec", [0, 1, 4])
def test_a_write_in_a_trace(collector: Collector, sink: Any, encoding: str, codec: int) -> None:
    """A span below the record's, with what one selects by, and nothing of key, value or another header."""
    own = sink(encoding=encoding)
    seen = produce(record(1), record(), codec=codec)
    seen.rules, seen.rule_wait = ["slow"], (0.004, 0.0)
    own.take(seen)
    own.close()
    (span,) = collector.spans()

    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (trace(1), SPAN)
    assert span.span_id.hex() not in (SPAN, "0" * 16)
    assert (span.name, span.kind, span.status.code, list(span.links)) == ("send orders", 3, 0, [])
    assert span.end_time_unix_nano - span.start_time_unix_nano == pytest.approx(20e6, abs=2000)
    told = {name: value for name, value in of(span).items() if not name.startswith("server.")}
    assert told.pop("kproxy.rules").values[0].string_value == "slow"
    assert told == {
        "messaging.system": "kafka", "messaging.operation.name": "send", "messaging.operation.type": "send",
        "messaging.destination.name": "orders", "messaging.destination.partition.id": "3",
        "messaging.batch.message_count": 2, "messaging.client.id": seen.client_id,
        "client.address": seen.who.client_address, "kproxy.connection": str(seen.who.number),
        "kproxy.listener": seen.who.listener, "kproxy.cluster": seen.who.cluster,
    }  # fmt: skip
    assert [event.name for event in span.events] == ["request to broker", "response from broker"]
    assert span.events[0].time_unix_nano - span.start_time_unix_nano == pytest.approx(4e6, abs=2000)
    assert SECRET not in b"".join(collector.raw)
    assert own.exporter.counters.dropped["traces"] == 0


def test_reads_and_failures(collector: Collector, sink: Any) -> None:
    """A read is one that receives; an error is the span's status, and so is no answer."""
    own = sink()
    for seen in (fetch(record(1)), produce(record(2), error=6), produce(record(3), answered=False)):
        own.take(seen)
    own.close()
    read, refused, unanswered = collector.spans()

    assert (read.name, of(read)["messaging.operation.type"], read.status.code) == ("poll orders", "receive", 0)
    assert (refused.status.code, of(refused)["error.type"]) == (2, "NOT_LEADER_OR_FOLLOWER")
    assert (unanswered.status.code, of(unanswered)["error.type"], len(unanswered.events)) == (2, "unanswered", 0)


@pytest.mark.parametrize("encoding", ["json", "protobuf"])
def test_a_topic_whose_name_is_no_text(collector: Collector, sink: Any, encoding: str) -> None:
    """Clients may ask for any bytes; the spans behind that one are sent as well."""
    own = sink(encoding=encoding)
    for number, topic in enumerate(("orders\udcff", "orders"), 1):
        own.take(produce(record(number), topic=topic))
    own.close()

    assert [span.name for span in collector.spans()] == ["send orders?", "send orders"]
    assert own.exporter.counters.dropped["traces"] == 0


def test_what_cannot_be_encoded_keeps_nothing_else(
    collector: Collector, sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such spans would be a mistake of kproxy's own: they are dropped and counted, not tried for ever."""
    own, errors = sink(), Log()
    own.log = errors

    def odd(seen: Any, *rest: Any) -> Tree:
        return span_of(seen, *rest) | ({"name": "\udcff"} if seen.key == 1 else {})

    monkeypatch.setattr(trace_sink, "span_of", odd)
    own.take(fetch(record(1)))
    until(lambda: own.exporter.counters.dropped["traces"] == 1)
    own.take(produce(record(2)))
    until(collector.spans)

    assert [span.trace_id.hex() for span in collector.spans()] == [trace(2)]
    assert len(errors.texts("error")) == 1


def test_records_of_several_traces(collector: Collector, sink: Any) -> None:
    """The span has a trace of its own, with so many links; the same context twice is one."""
    own = sink(links=3)
    own.take(produce(*(record(number) for number in (1, 1, 2, 3, 4, 5))))
    own.take(produce(record(1), record(1)))
    own.close()
    several, same = collector.spans()

    assert [link.trace_id.hex() for link in several.links] == [trace(1), trace(2), trace(3)]
    assert several.trace_id.hex() not in {trace(number) for number in range(6)}
    assert several.parent_span_id == b""
    assert same.trace_id.hex() == trace(1)


def test_what_gets_no_span(collector: Collector, sink: Any) -> None:
    """Records without a context, with one that is not recorded or not chosen or none at all, and other topics."""
    own = sink(sample=1e-9)
    for seen in (
        produce(record()), produce(record(1, "00")), produce(record(1)), produce(record(header=b"00-junk")),
        produce(record(1), topic="payments"), produce(record(header=b"\xff" * 100_000)),
        exchange("Metadata", 9, {"topics": None}, {}),
    ):  # fmt: skip
        own.take(seen)
    own.close()

    assert collector.paths == []
    assert own.exporter.counters.dropped["traces"] == 0


def test_queues_are_bounded(collector: Collector, sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What there is no room for is dropped and counted, exchanges and spans alike."""
    monkeypatch.setattr(trace_sink, "MOST_WAITING", 5)
    own = sink(start=False)
    for _ in range(8):
        own.take(produce(record(1)))
    assert (len(own.waiting), own.exporter.counters.dropped["traces"]) == (5, 3)
    for _ in range(2):
        while own.waiting:
            own._trace(own.waiting.popleft()[0])
        for _ in range(2):
            own.take(produce(record(1)))

    assert (len(own.spans), own.exporter.counters.dropped["traces"]) == (5, 5)


def test_bytes_that_wait_are_bounded(collector: Collector, sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large frames fill the queue, too, and leave room again."""
    monkeypatch.setattr(trace_sink, "MOST_BYTES", 1000)
    own = sink(start=False)
    for _ in range(10):
        own.take(produce(record(1)))
    assert 0 < len(own.waiting) < 10
    own.start()
    until(lambda: own.bytes == 0)


def test_a_collector_that_is_down_and_comes_back(collector: Collector, sink: Any) -> None:
    """Spans wait, in order; those that the collector refuses for themselves are dropped and counted."""
    own = sink()
    collector.down()
    own.take(produce(record(1)))
    until(lambda: own.exporter.failing)
    own.take(produce(record(2)))
    collector.up()
    until(lambda: len(collector.spans()) == 2)
    until(lambda: not own.spans)
    collector.replies = [Reply(400)]
    own.take(produce(record(3)))
    until(lambda: own.exporter.counters.dropped["traces"] == 1)

    assert [span.trace_id.hex() for span in collector.spans()] == [trace(1), trace(2)]


@pytest.mark.parametrize("large", ["request", "client id"])
def test_all_bytes_that_a_client_has_kept_count(sink: Any, monkeypatch: pytest.MonkeyPatch, large: str) -> None:
    """Also those of the frame without records: a small answer may follow a request of a megabyte."""
    monkeypatch.setattr(trace_sink, "MOST_BYTES", 100_000)
    own = sink(start=False)
    asked = {"forgotten_topics_data": [{"topic": "t" * 15_000, "partitions": []}] * 2} if large == "request" else {}
    who = Somebody(client_id="\U0001f600" * 8000) if large == "client id" else None
    for _ in range(20):
        own.take(fetch(record(1), asked=asked, who=who))
    assert 0 < len(own.waiting) <= 3
    assert own.exporter.counters.dropped["traces"] == 20 - len(own.waiting)


def test_reading_takes_its_share(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After reading for long the thread pauses, so that it has a tenth of a core."""
    pauses: list[float] = []
    own = sink(start=False)
    monkeypatch.setattr(own._closing, "wait", pauses.append)
    monkeypatch.setattr(trace_sink, "BURST", 0.0)
    own._left = 0.0
    for _ in range(20):
        own._paced(produce(*(record(1) for _ in range(200))))

    assert len(pauses) == 20
    assert all(pause > 0 for pause in pauses)
