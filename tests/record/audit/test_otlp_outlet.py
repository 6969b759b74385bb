"""The outlet to a collector: the audit's events as log records, with the guarantees of the queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kproxy.record.audit.otlp_outlet import OtlpOutlet
from kproxy.record.audit.recorder import Recorder
from kproxy.record.otlp.export import HttpTarget, OtlpCounters, OtlpSettings, OtlpWay
from tests.record.audit.conftest import Log
from tests.support.otlp_collector import Collector, Reply
from tests.support.wait import until

SOURCE = "host/0badcafe-0000-4000-8000-000000000000/0"


class Audit:
    """A started recorder that sends to a collector."""

    def __init__(self, port: int, on_unblocked: Callable[[], None] = lambda: None, **own: Any) -> None:
        self.log, self.totals = Log(), OtlpCounters()
        target = HttpTarget("127.0.0.1", port, "", timeout=20)
        settings = OtlpSettings(OtlpWay(target, own.pop("encoding", "json")), "host")
        self.outlet = OtlpOutlet(
            settings, self.totals, self.log, **{"when_full": "drop", "queue": 1000, "flush": 0.01, **own}
        )
        self.outlet.exporter._wait = 0.02  # tests are impatient
        self.counters = self.outlet.counters
        self.recorder = Recorder(SOURCE, [self.outlet], on_unblocked)
        self.number = 0
        self.recorder.start()

    def put(self, count: int = 1, **data: Any) -> None:
        for _ in range(count):
            self.number += 1
            self.recorder.put("kproxy.test.v1", 1_700_000_000.25, {"number": self.number, **data})

    def impatient(self) -> None:
        """Let no time pass between attempts."""
        self.outlet._pause = lambda: True


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.down()
    assert made.wrong == []


def numbers(collector: Collector) -> list[int]:
    return [event["data"]["number"] for event in collector.log_lines() if "number" in event["data"]]


@pytest.mark.parametrize("encoding", ["json", "protobuf"])
def test_a_record_is_a_line(collector: Collector, encoding: str) -> None:
    """Its body is the line of files and of the topic; attributes tell what one selects by."""
    own = Audit(collector.port, encoding=encoding)
    own.put(name='snow ☃ "\\\n')
    assert own.recorder.close(20)
    (record,) = collector.log_records()

    assert record.body.string_value == (
        '{"specversion":"1.0","id":"1","source":"' + SOURCE + '","type":"kproxy.test.v1",'
        '"time":"2023-11-14T22:13:20.250000Z","datacontenttype":"application/json",'
        '"data":{"number":1,"name":"snow ☃ \\"\\\\\\n"}}'
    )
    assert {one.key: one.value.string_value for one in record.attributes} == {
        "cloudevents.event_id": "1",
        "cloudevents.event_source": SOURCE,
        "cloudevents.event_spec_version": "1.0",
        "cloudevents.event_type": "kproxy.test.v1",
    }
    assert record.time_unix_nano == record.observed_time_unix_nano == 1_700_000_000_250_000_000
    assert (record.severity_number, record.severity_text, record.event_name) == (9, "INFO", "kproxy.test.v1")
    assert (own.counters.written, own.counters.queued, own.counters.queued_bytes) == (1, 0, 0)
    assert own.counters.bytes == len(record.body.string_value.encode()) + 1
    assert own.totals.dropped_logs() == 0


def test_drop_while_the_collector_is_down(collector: Collector) -> None:
    """As many events as the queue holds wait; what was dropped is counted, and told when the collector is back."""
    own = Audit(collector.port, queue=10)
    own.put(3)
    until(lambda: own.counters.written == 3)
    collector.down()
    own.put(1)
    until(lambda: own.counters.failing)
    own.put(14)
    blocked = own.recorder.blocked
    collector.up()
    until(lambda: own.counters.written == 14)
    assert own.recorder.close(20)

    *_, told = collector.log_lines()
    assert numbers(collector) == list(range(1, 14))
    assert told["data"] == {
        "reason": "dropped", "dropped": 5, "first_id": 14, "last_id": 18, "message": "otlp: unreachable 5",
    }  # fmt: skip
    assert own.totals.dropped_logs() == 5
    assert not blocked


def test_block_while_the_collector_is_down(collector: Collector) -> None:
    """Nothing is dropped, nothing sent twice, and who waits is told."""
    free: list[bool] = []
    own = Audit(collector.port, queue=10, when_full="block", on_unblocked=lambda: free.append(True))
    collector.down()
    own.put(12)
    until(lambda: own.recorder.blocked and own.counters.failing)
    collector.up()
    until(lambda: free)
    own.put(3)
    assert own.recorder.close(20)

    assert numbers(collector) == list(range(1, 16))
    assert own.counters.dropped == {}


@pytest.mark.parametrize("status", [429, 503, 401, 404, 500])
def test_what_is_not_taken_is_sent_again(collector: Collector, status: int) -> None:
    """In order, once it is taken; also where the mistake is one of the configuration, which somebody may mend."""
    own = Audit(collector.port, when_full="block")
    own.impatient()
    collector.replies = [Reply(status)] * 3
    own.put(5)
    assert own.recorder.close(20)

    assert numbers(collector) == [1, 2, 3, 4, 5]
    assert own.counters.errors["busy" if status in (429, 503) else "refused"] == 3
    assert own.counters.dropped == {}


def test_it_is_not_asked_before_the_time_that_it_says(collector: Collector) -> None:
    """A Retry-After holds for all events, until kproxy ends and says what it could not send."""
    own = Audit(collector.port)
    collector.replies = [Reply(429, {"Retry-After": "100"})]
    own.put(2)
    until(lambda: own.counters.failing)
    own.put(2)
    assert 99 <= own.outlet.exporter.ready_at - own.outlet.exporter.clock() <= 100
    assert not own.recorder.close(0.3)

    assert len(collector.paths) == 1
    assert own.counters.dropped == {"close_timeout": 4}


@pytest.mark.parametrize("when_full", ["drop", "block"])
@pytest.mark.parametrize("status", [400, 413])
def test_an_event_that_can_never_be_taken(collector: Collector, when_full: Any, status: int) -> None:
    """It is found by halves, dropped and told, whatever the policy, and the others go on."""
    held = threading.Event()
    own = Audit(collector.port, when_full=when_full)
    collector.replies = [Reply(before=lambda: held.wait(60) or None)]
    own.put()
    until(lambda: collector.paths)
    own.put(8)
    # 2-9 · 2-5 · 2-3 · 4-5 · 4
    collector.replies += [Reply(status), Reply(status), Reply(), Reply(status), Reply(status)]
    held.set()
    assert own.recorder.close(20)

    assert numbers(collector) == [1, 2, 3, 5, 6, 7, 8, 9]
    (told,) = [event["data"] for event in collector.log_lines() if "dropped" in event["data"]]
    assert (told["first_id"], told["last_id"], told["message"]) == (4, 4, "otlp: refused 1")
    assert own.counters.dropped == {"refused": 1}
    assert (own.counters.queued, own.counters.queued_bytes) == (0, 0)


def test_a_partial_success_is_not_sent_again(collector: Collector) -> None:
    """The collector has thrown some away: that is counted and told, and no record comes twice."""
    own = Audit(collector.port)
    collector.replies = [
        Reply(200, {}, b'{"partialSuccess": {"rejectedLogRecords": "999999999999", "errorMessage": "x"}}')
    ]
    own.put(2)
    until(lambda: own.counters.dropped)
    assert own.recorder.close(20)

    assert numbers(collector) == [1, 2]
    assert own.counters.dropped == {"rejected": 2}
    assert own.totals.exports["logs", "partial"] == 1


@pytest.mark.parametrize("said", [b"<html>", b"[" * 60_000], ids=["html", "deep"])
def test_a_web_server_at_the_address_is_no_collector(collector: Collector, said: bytes) -> None:
    """A success that is no answer of OTLP takes nothing away: the events are kept for who does understand them."""
    own = Audit(collector.port, when_full="block")
    own.impatient()
    collector.replies = [Reply(200, {}, said) for _ in range(2)]
    own.put(2)
    assert own.recorder.close(20)

    assert own.counters.errors == {"unreadable": 2}
    assert numbers(collector) == [1, 2] * 3  # this one has kept what it did not answer as it should
    assert own.counters.dropped == {}


def test_a_slow_collector_holds_up_nobody(collector: Collector) -> None:
    """Events are taken while a request waits for its answer."""
    held = threading.Event()
    own = Audit(collector.port)
    collector.replies = [Reply(before=lambda: held.wait(60) or None)]
    own.put()
    until(lambda: collector.paths)
    own.put(500)
    assert own.counters.queued == 501
    held.set()
    assert own.recorder.close(20)

    assert numbers(collector) == list(range(1, 502))
