"""What is counted by label is what the audit tells of the same exchanges, and the same with it and without."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any
from uuid import UUID

import pytest
import structlog

from kproxy.record.audit.audit_sink import AuditSink
from kproxy.record.audit.config import AuditConfig
from kproxy.record.audit.event_sink import EncodedEvent, EventGate
from kproxy.record.events.column import EventData
from kproxy.record.fanout import ClusterMetadata, Fanout
from kproxy.record.metrics.label_sink import LabelSink
from kproxy.record.metrics.table import LabelSeries
from kproxy.record.metrics.totals import LabelTotals, MetricsConfig
from kproxy.record.observer.observer import ConnectionObserver
from tests.record.audit.exchanges import FakeWho, wall
from tests.record.audit.test_request_lines import SEVEN, conversation
from tests.record.observer.watching import BROKER, Talk

SEEDS = 200 if os.environ.get("KPROXY_TEST_ALL") else 5
EVERYTHING = MetricsConfig(by=["topic", "client_id", "principal", "group"])
Numbers = dict[tuple[str, ...], float]


class KeptEvents:
    """An event sink that keeps the data of summaries. `lines`: events that templates made."""

    blocked = False

    def __init__(self) -> None:
        self.summaries: list[EventData] = []
        self.lines = 0

    def put(self, type_name: str, time: float, data: EventData) -> None:
        if type_name == "kproxy.summary.v1":
            self.summaries.append(data)

    def put_encoded(self, type_name: str, events: Iterable[EncodedEvent]) -> None:
        self.lines += len([*events])


class Labelled:
    """A connection that is counted by label, beside an audit of this detail."""

    def __init__(self, detail: Any, config: MetricsConfig = EVERYTHING) -> None:
        self.who: Any = FakeWho(
            topics={str(SEVEN): "seven", str(UUID(int=8)): "eight"},
            renamed={"topic-1": "its other name", "group": "tenant.group"},
        )
        self.now, self.events, self.buffer = 100.0, KeptEvents(), bytearray(1 << 18)
        self.totals = LabelTotals(config)
        for topic in ("topic-0", "its other name", "seven", "eight") if "topic" in config.by else ():
            self.totals.add("topic", topic, [], 0.0)  # else their errors are other's until a broker confirms them
        pictures = {"main": ClusterMetadata("main", topics={"topic-0": None})}
        self.sink = LabelSink(self.totals, lambda: self.now, pictures)
        self.fanout = Fanout(structlog.get_logger())
        self.fanout.add(self.sink)
        self.audit: AuditSink | None = None
        request_lines = None
        summary = self.sink.summary_for(self.who)
        if detail != "none":
            del self.sink.summaries[self.who.number]
            gate: Any = EventGate(self.events, lambda: None)
            self.audit = AuditSink(AuditConfig(dir="audit", level=detail), gate, wall, self.sink)
            self.fanout.add(self.audit)
            summary, request_lines = self.audit.summary_for(self.who), self.audit.request_lines_for(self.who)
        self.observer = ConnectionObserver(
            self.who, self.fanout.depth, self.fanout.take, summary=summary, request_lines=request_lines
        )

    def hear(self, side: int, data: bytes) -> None:
        self.buffer[: len(data)] = data
        (self.observer.to_client if side == BROKER else self.observer.from_client)(self.buffer, len(data), self.now)

    def gather(self) -> None:
        for _ in self.sink.gather():
            pass

    def end(self) -> Numbers:
        """All numbers by line and name."""
        self.observer.end(self.now)
        if self.audit is not None:
            for _ in self.audit.put_summaries(self.audit.accounts[self.who.number], self.now, everything=True):
                pass
        self.sink.closed(self.who, self.now)
        assert self.fanout.failures == 0
        return {
            (*line, series.name): round(number, 6)
            for table in self.totals.tables.values()
            for series in table.everything()
            for line, number in series.values.items()
            if number
        }


def play(talk: Talk, random: Random, *labelled: Labelled, gathers: bool = True) -> None:
    for side, data in talk:
        later = random.choice((0.0, 0.000_4, 0.013_7, 1.9, 70.0))
        for one in labelled:
            one.now += later
            one.hear(side, data)
        if gathers and random.random() < 0.2:
            labelled[-1].gather()


def told(events: list[EventData]) -> Numbers:
    """The numbers by label that summaries of the audit have."""
    found: Counter[tuple[str, ...]] = Counter()
    for event in events:
        client = event.get("client_id") or ""
        kind = {"Produce": "produce", "Fetch": "fetch", "Heartbeat": "group", "OffsetCommit": "group"}[event["api"]]
        if "partition" in event:
            topic = {"topic-1": "its other name"}.get(event.get("topic", "other"), event.get("topic", "other"))
            if "error" in event:
                found["kproxy_topic_errors_total", event["error"], topic] += event["count"]
            else:
                found["kproxy_topic_bytes_total", kind, topic] += event["bytes"]
                found["kproxy_topic_records_total", kind, topic] += event["records"]
            continue
        for who, name in (("client", client), ("principal", "User:alice")):
            found[f"kproxy_{who}_requests_total", kind, name] += event["count"]
            found[f"kproxy_{who}_bytes_total", kind, name] += event["request_bytes"] + event["response_bytes"]
            seconds = event.get("throttle_ms", 0) / 1000  # no rule throttles here
            found[f"kproxy_{who}_throttle_duration_seconds_total", kind, name] += seconds
            if event.get("responder") == "broker":
                found[f"kproxy_{who}_upstream_request_duration_seconds_count", kind, name] += event["count"]
    return {name: number for name, number in found.items() if number}


def plain(numbers: Numbers) -> Numbers:
    """Numbers of topics, clients and principals without sums of times, which are rounded in events."""
    kept = {key: number for key, number in numbers.items() if "seconds_sum" not in key[0] and "group" not in key[0]}
    return {key: round(number, 6) for key, number in kept.items()}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_same_numbers_with_any_audit_and_without(seed: int) -> None:
    """Counted from templates, from what was read, and from the lines of events; gathered in between or not."""
    random = Random(seed)
    by_audit = [Labelled(detail) for detail in ("summary", "connections", "requests", "none")]
    play(conversation(random, 150), random, *by_audit)

    numbers = [one.end() for one in by_audit]
    assert numbers[0] == numbers[1] == numbers[2] == numbers[3]
    lags = [one.totals.lags.lags() for one in by_audit if one.totals.lags is not None]
    assert lags[0] == lags[1] == lags[2] == lags[3]


def test_lines_of_events_are_counted_without_being_read() -> None:
    """Those of an audit of every request are, where exchanges like them came before."""
    random, made = Random(7), 0
    for _ in range(10):
        labelled = Labelled("requests")
        play(conversation(random, 150), random, labelled)
        labelled.end()
        made += labelled.events.lines
    assert made > 200


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_numbers_of_the_audit(seed: int) -> None:
    """Summaries add up to the same by topic, client and principal; topics have the broker's names."""
    random = Random(seed)
    labelled = Labelled("summary")
    play(conversation(random, 150), random, labelled)
    labelled.gather()

    assert plain(labelled.end()) == plain(told(labelled.events.summaries))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_sums_over_a_label_are_those_of_the_connection(seed: int) -> None:
    """Requests and bytes over all clients, and over all principals, are what the observer has counted, with those of
    the series that were given up meanwhile."""
    random = Random(seed)
    few = MetricsConfig(by=["client_id", "principal", "topic"], series=1)
    labelled = Labelled("none", few)
    lost: list[LabelSeries] = []
    for table in labelled.totals.tables.values():
        table.gone = lost.append
    play(conversation(random, 150), random, labelled)

    numbers = [*labelled.end().items(), *(given for series in lost for given in series.values.items())]
    observer = labelled.observer
    for who in ("client", "principal"):
        requests = sum(number for key, number in numbers if key[0] == f"kproxy_{who}_requests_total")
        size = sum(number for key, number in numbers if key[0] == f"kproxy_{who}_bytes_total")
        assert requests == observer.requests
        assert size <= observer.request_bytes + observer.response_bytes  # frames that have no request are no exchange
        if not observer.unread and not observer.unanswered:
            assert size == observer.request_bytes + observer.response_bytes
