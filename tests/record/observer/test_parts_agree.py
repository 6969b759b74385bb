"""Latencies and their parts are the same in events, tail, view rows, summaries and metrics, whatever a frame waits for.

A session is driven by a fake clock. The times at which frames enter and leave it are taken from its bytes alone, so
that they do not depend on what it reports of waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self
from uuid import UUID

import pytest
import structlog

from kproxy.record.audit.audit_sink import AuditSink
from kproxy.record.audit.config import AuditConfig
from kproxy.record.audit.event_sink import EncodedEvent, EventGate
from kproxy.record.audit.lines import stamp
from kproxy.record.audit.request_event import request_event
from kproxy.record.events.column import EventData
from kproxy.record.exchange import Depth, ObservedExchange
from kproxy.record.fanout import ClusterMetadata, Fanout
from kproxy.record.live_view.rows import COLUMNS, KeptExchange, row_of
from kproxy.record.metrics.label_sink import LabelSink
from kproxy.record.metrics.totals import LabelTotals, MetricsConfig
from kproxy.record.observer.observer import ConnectionObserver
from kproxy.runtime.io.splice import NOT_LOOKED_AT
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.held_memory import HeldMemory
from kproxy.session.lanes.assembler import MAX_ARRIVALS, WaitClock
from kproxy.session.plan import HEAD
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.record.audit.exchanges import FakeWho, wall
from tests.support.frames import produce
from tests.support.memory_lane import MemoryLane

PRODUCE, FETCH, METADATA, HEARTBEAT, LIST_GROUPS = 0, 1, 3, 12, 16
VERSIONS = {PRODUCE: 9, FETCH: 16, METADATA: 12, HEARTBEAT: 4, LIST_GROUPS: 4}
TICK = 1 / 64
"""Seconds of one step; sums of it are exact."""
THINKS = 4 * TICK
"""Time for which the broker has each request."""


class KeptEvents:
    """Event sink that keeps the data of summaries."""

    blocked = False

    def __init__(self) -> None:
        self.summaries: list[EventData] = []

    def put(self, type_name: str, time: float, data: EventData) -> None:
        if type_name == "kproxy.summary.v1":
            self.summaries.append(data)

    def put_encoded(self, type_name: str, events: Iterable[EncodedEvent]) -> None:
        raise AssertionError("summaries have no lines of requests")


class Both:
    """Observer that passes what a session reports to two observers."""

    def __init__(self, *observers: ConnectionObserver) -> None:
        self.observers = observers

    def waited(self, *arguments: Any, **more: Any) -> None:
        for one in self.observers:
            one.waited(*arguments, **more)

    def acted(self, correlation_id: int, names: Iterable[str], **more: Any) -> None:
        kept = [*names]
        for one in self.observers:
            one.acted(correlation_id, kept, **more)

    def failed(self, *arguments: Any) -> None:
        for one in self.observers:
            one.failed(*arguments)

    def throttled(self, *arguments: Any, **more: Any) -> None:
        for one in self.observers:
            one.throttled(*arguments, **more)


class Wire:
    """One direction of bytes at one side: when the first and the last byte of each frame passed, by correlation id."""

    def __init__(self, at: int) -> None:
        self.at, self.data, self.start, self.begun = at, bytearray(), 0, 0.0
        self.first: dict[int, float] = {}
        self.last: dict[int, float] = {}
        self.frames: list[bytes] = []

    def take(self, data: bytes | bytearray | memoryview, now: float) -> None:
        self.data += data
        while self.start < len(self.data):
            rest = memoryview(self.data)[self.start :].tobytes()
            size = int.from_bytes(rest[:4], "big")
            if len(rest) < self.at + 4:
                self.begun = self.begun or now
                return
            correlation = int.from_bytes(rest[self.at : self.at + 4], "big", signed=True)
            self.first.setdefault(correlation, self.begun or now)
            if len(rest) < size + 4:
                return
            self.begun = 0.0
            self.last[correlation] = now
            self.frames.append(rest[: size + 4])
            self.start += size + 4


class Out(bytearray):
    """Bytes that leave at one side by command, each piece shown to the observers first."""

    def __init__(self, leaves: Callable[[bytes], None]) -> None:
        super().__init__()
        self.leaves = leaves

    def __iadd__(self, data: Any) -> Out:
        self.leaves(data)
        return self


class Timed(Dialogue):
    """Dialogue with a broker that answers by itself, observed as a tap would, and measured at its bytes.

    `long`: bytes of records in responses to Fetch. `together`: responses that are due come in one read.
    """

    def __init__(self, rules: str = "", *, answers: bool = True, **more: Any) -> None:
        super().__init__(rules, now=100.0, **more)
        self.who: Any = FakeWho()
        self.who.principal = self.session.facts.certificate
        self.seen: list[ObservedExchange] = []
        self.totals = LabelTotals(MetricsConfig(by=["client_id"]))
        self.labels = LabelSink(self.totals, lambda: self.now, {"main": ClusterMetadata("main")})
        self.events = KeptEvents()
        gate: Any = EventGate(self.events, lambda: None)
        self.audit = AuditSink(AuditConfig(dir="audit", level="summary"), gate, wall, self.labels)
        fanout = Fanout(structlog.get_logger())
        fanout.add(self.labels)
        fanout.add(self.audit)
        summary = self.audit.summary_for(self.who)
        self.observers = (
            ConnectionObserver(self.who, lambda key, version: Depth.SKETCH, self.seen.append),
            ConnectionObserver(self.who, fanout.depth, fanout.take, summary=summary),
        )
        for one in self.observers:
            one.silent = []
        self.session.observer = Both(*self.observers)
        self.came, self.sent = Wire(8), Wire(8)  # requests, at the client and at the broker
        self.given, self.got = Wire(4), Wire(4)  # responses, at the broker and at the client
        self.answers, self.answered = answers, 0
        self.due: list[tuple[float, bytes]] = []
        self.fields: dict[int, dict[str, Any]] = {}
        self.out = {side: Out(partial(self.leaves, side)) for side in (CLIENT, BROKER)}

    def feed(self, side: int, data: bytes, chunk: int = 0) -> Self:
        if side == CLIENT:
            self.came.take(data, self.now)
            for one in self.observers:
                one.from_client(bytearray(data), len(data), self.now)
        else:
            self.given.take(data, self.now)
        take = self.session.from_client if side == CLIENT else self.session.from_broker
        buf = bytearray(data) + bytes(5000)
        with memoryview(buf) as view:
            go = take(view, len(data), self.now)
            passed = bytes(view[:go])
        if side == CLIENT:
            self.report_silent()
        self.leaves(1 - side, passed)
        self.obey()
        return self

    def splice(self, side: int, data: bytes) -> None:
        """Let bytes in the middle of a frame pass from socket to socket, as a tap does."""
        if side == CLIENT:
            self.came.take(data, self.now)
            for one in self.observers:
                one.pass_over(len(data), self.now, response=False)
            self.session.from_client(NOT_LOOKED_AT, len(data), self.now)
            self.report_silent()
            self.sent.take(data, self.now)
        else:
            self.given.take(data, self.now)
            self.session.from_broker(NOT_LOOKED_AT, len(data), self.now)
            for one in self.observers:
                one.pass_over(len(data), self.now, response=True)
            self.got.take(data, self.now)
        self.obey()

    def leaves(self, side: int, data: bytes | bytearray | memoryview) -> None:
        if not data:
            return
        if side == CLIENT:
            self.got.take(data, self.now)
            for one in self.observers:
                one.to_client(bytearray(data), len(data), self.now)
        else:
            self.report_silent()
            self.sent.take(data, self.now)
            self.think()

    def think(self) -> None:
        """Have the broker begin to work on the requests that it has got."""
        while self.answers and self.answered < len(self.sent.frames):
            frame = self.sent.frames[self.answered]
            self.answered += 1
            key, version, correlation = (
                int.from_bytes(frame[at : at + size], "big", signed=True) for at, size in ((4, 2), (6, 2), (8, 4))
            )
            if key == PRODUCE and not self.acks_of(frame):
                continue
            fields = self.fields.get(correlation, {})
            self.due.append((self.now + THINKS, response(key, version, correlation, **fields)))

    def acks_of(self, frame: bytes) -> int | None:
        step = self.session.plan[int.from_bytes(frame[4:8], "big")].plain
        assert step.request == HEAD
        return step.acks(frame, 4, len(frame), int.from_bytes(frame[12:14], "big"))

    def report_silent(self) -> None:
        if self.session.requests.kept is None:
            for one in self.observers:
                one.report_silent()

    def run(self, seconds: float, *, then: Callable[[], object] = lambda: None, at: float = 0.0) -> Timed:
        """Let time pass; `then` is called once, after `at` seconds."""
        end, when = self.now + seconds, self.now + at
        while self.now < end:
            if self.now >= when:
                when = float("inf")
                then()
            ready = b"".join(data for due, data in self.due if due <= self.now)
            self.due = [one for one in self.due if one[0] > self.now]
            if ready and self.read[BROKER]:
                self.feed(BROKER, ready)
            elif ready:
                self.due.insert(0, (self.now, ready))
            self.later(TICK)
        return self

    def ask(self, *requests: tuple[int, int] | bytes) -> Timed:
        """Send requests, (API key, correlation id) or whole frames, in one write."""
        frames = [one if isinstance(one, bytes) else request(one[0], VERSIONS[one[0]], one[1]) for one in requests]
        self.feed(CLIENT, b"".join(frames))
        return self

    def release(self) -> None:
        """Resume all frames that rules hold."""
        for running in self.rules.live:
            running.resume()
        self.session.released(self.now)
        self.obey()

    # ---- numbers

    def check(self, **unread: float) -> dict[int, dict[str, float]]:
        """Compare all sources; return latency and parts in ms by correlation id.

        `unread`: seconds for which kproxy did not read the rest of a response, by `r` and its correlation id.
        """
        assert self.closed is None
        sides: dict[int, dict[str, float]] = {}
        for one in self.seen:
            data = request_event(one, wall)
            row = dict(zip(COLUMNS, row_of(KeptExchange(1, 1, one, True), 1, wall), strict=True))
            names = (("latency", "latency_ms"), ("broker_ms",) * 2, ("rule_ms",) * 2, ("kproxy_ms", "wait_ms"))
            assert [row[name] for name, _ in names] == [data.get(name) for _, name in names]
            found = {name: data.get(name, 0.0) for _, name in names}
            number = one.correlation_id
            sides[number] = found
            if one.outcome == "no_answer_due":
                assert self.sent.first[number] - self.came.first[number] == pytest.approx(
                    (found["rule_ms"] + found["wait_ms"]) / 1000
                )
                continue
            latency = self.got.last[number] - self.came.first[number]
            assert found["latency_ms"] == pytest.approx(1000 * latency)
            assert found["broker_ms"] + found["rule_ms"] + found["wait_ms"] == pytest.approx(found["latency_ms"])
            if not one.answered_by_rule:
                assert data["request_out"] == stamped(self.sent.first[number]), number
                assert data["response_in"] <= data["response_out"]
                broker = self.given.last[number] - self.sent.first[number] - unread.get(f"r{number}", 0.0)
                assert found["broker_ms"] == pytest.approx(1000 * broker), number
        self.compare_sums()
        return sides

    def compare_sums(self) -> None:
        """Compare summaries and both metrics with the sums of single exchanges."""
        for _ in self.audit.put_summaries(self.audit.accounts[self.who.number], self.now, everything=True):
            pass
        for _ in self.labels.gather():
            pass
        events = [request_event(one, wall) for one in self.seen]
        for name in ("latency_ms", "rule_ms", "wait_ms"):
            whole = sum(data.get(name, 0.0) for data in events)
            assert sum(data.get(name, 0.0) for data in self.events.summaries) == pytest.approx(whole, abs=0.1), name
        self.compare_throttles(events)
        broker = sum(data.get("broker_ms", 0.0) for data in events) / 1000
        label = sum(
            number
            for series in self.totals.tables["client_id"].everything()
            for (name, _), number in series.values.items()
            if name == "kproxy_client_upstream_request_duration_seconds_sum"
        )
        assert label == pytest.approx(broker)
        to_header = broker - sum(  # the histogram ends with the response's header
            self.given.last[number] - self.given.first[number]
            for number in self.given.last
            if self.got.first.get(number, 0.0) < self.got.last.get(number, 0.0)
        )
        tallies = self.session.plan.tallies.values()
        assert sum(tally.latency.total for tally in tallies) == pytest.approx(to_header)

    def compare_throttles(self, events: list[dict[str, Any]]) -> None:
        """Compare throttles in summaries and both metrics with those of single exchanges."""
        for name in ("throttle_ms", "mute_ms"):
            whole = sum(data.get(name, 0) for data in events)
            assert sum(data.get(name, 0) for data in self.events.summaries) == pytest.approx(whole, abs=0.1), name
        reported = sum(data.get("throttle_ms", 0) > 0 for data in events)
        assert sum(data.get("throttled", 0) for data in self.events.summaries) == reported
        rows = [row_of(KeptExchange(1, 1, one, True), 1, wall)[COLUMNS.index("throttle")] or 0 for one in self.seen]
        assert rows == [data.get("throttle_ms", 0) for data in events]
        by_rule = Counter(data["throttle_rule"] for data in events if "throttle_rule" in data)
        lines = Counter[str]()
        for data in self.events.summaries:
            if "throttle_rule" in data:
                lines[data["throttle_rule"]] += data["count"]
        assert lines == by_rule == {one.name: one.throttles for one in self.rules.live if one.throttles}
        label = sum(
            number
            for series in self.totals.tables["client_id"].everything()
            for (name, _), number in series.values.items()
            if name == "kproxy_client_throttle_duration_seconds_total"
        )
        assert label == pytest.approx(sum(map(throttle_seconds, events)), abs=0.001)


def throttle_seconds(data: dict[str, Any]) -> float:
    """Return for how long an exchange was throttled, in seconds, by its event."""
    after = max(data.get("throttle_ms", 0), data.get("mute_ms", 0.0))
    return (after + (data["rule_ms"] if "throttle_rule" in data else 0.0)) / 1000


def stamped(now: float) -> str:
    """Return a time as events have it."""
    return stamp(wall(now))


def by_cause(sides: dict[int, dict[str, float]]) -> dict[int, tuple[float, float]]:
    """Return (ms of rules, ms of kproxy) by correlation id."""
    return {number: (round(found["rule_ms"]), round(found["wait_ms"])) for number, found in sides.items()}


HB = HEARTBEAT
FOUR = ((HB, 1), (LIST_GROUPS, 2), (HB, 3), (LIST_GROUPS, 4))


def test_parts_delay_of_request_counts_for_frames_behind() -> None:
    """The first Heartbeat is delayed, and all requests behind it wait. None of that is the broker's time."""
    talk = Timed("rules: [{name: slow, kind: delay, match: {api: Heartbeat}, delay: 250ms, when: {nth: 2}}]")
    sides = by_cause(talk.ask(*FOUR).run(1.0).check())

    assert sides == {1: (0, 0), 2: (0, 0), 3: (250, 0), 4: (250, 0)}


def test_parts_delay_of_response_counts_for_frames_behind() -> None:
    """Responses that came in one read wait behind the delayed one."""
    talk = Timed("rules: [{name: slow, kind: delay, match: {api: Heartbeat}, delay: 250ms, at: response}]")
    sides = by_cause(talk.ask((LIST_GROUPS, 1), (HB, 2), (LIST_GROUPS, 3)).run(1.0).check())

    assert sides == {1: (0, 0), 2: (250, 0), 3: (250, 0)}


def test_parts_delays_one_after_another_add_up() -> None:
    """Two rules hold two frames, so the last frame waits for both."""
    talk = Timed("""
rules:
  - {name: one, kind: delay, match: {api: Heartbeat}, delay: 125ms}
  - {name: two, kind: intercept, match: {api: ListGroups}, hold_for: 250ms}
""")
    sides = by_cause(talk.ask((HB, 1), (LIST_GROUPS, 2), (METADATA, 3)).run(1.0).check())

    assert sides == {1: (125, 0), 2: (375, 0), 3: (375, 0)}


HOLDS = {
    "intercept": "{name: held, kind: intercept, match: {api: Heartbeat}, hold_for: 10s}",
    "intercept at response": "{name: held, kind: intercept, match: {api: Heartbeat}, hold_for: 10s, at: response}",
    "hold of a delay": "{name: held, kind: delay, match: {api: Heartbeat}, delay: 0ms, when: {hold: true}}",
    "hold of a set": "{name: held, kind: set, match: {api: Heartbeat}, at: request, fields: {generation_id: 5}, "
    "when: {hold: true}}",
    "hold of an error": "{name: held, kind: error, match: {api: Heartbeat}, error: 27, at: response, "
    "when: {hold: true}}",
}


@pytest.mark.parametrize("rule", HOLDS.values(), ids=HOLDS)
def test_parts_held_frames_count_for_the_rule(rule: str) -> None:
    """The hold ends after half a second; a frame that comes later does not wait."""
    talk = Timed(f"rules: [{rule}]")
    talk.ask((HB, 1), (LIST_GROUPS, 2)).run(1.0, then=talk.release, at=0.5)
    talk.rules.live[0].enabled = False
    talk.ask((LIST_GROUPS, 3)).run(0.25)
    sides = talk.check()

    assert all(400 <= sides[number]["rule_ms"] <= 510 for number in (1, 2))
    assert by_cause(sides)[3] == (0, 0)


def test_parts_hold_answered_by_kproxy_is_no_broker_time() -> None:
    """kproxy answers the second request, which waits for the first response; the rule held it before."""
    talk = Timed("""
rules:
  - {name: slow, kind: delay, match: {api: ListGroups}, delay: 31.25ms}
  - {name: broken, kind: error, match: {api: ListGroups}, error: 29}
""")
    sides = talk.ask((HB, 1), (LIST_GROUPS, 2)).run(0.5).check()

    assert sides[2]["broker_ms"] == 0
    assert sides[2]["rule_ms"] == pytest.approx(31.25)
    assert sides[2]["wait_ms"] == pytest.approx(1000 * THINKS - 31.25)


def test_parts_quota_counts_from_the_read_of_a_request() -> None:
    """Pipelined requests wait for their turns; a request in the socket of a muted client has no time yet."""
    talk = Timed("rules: [{name: few, kind: quota, requests: 2/s, burst: 0.5s}]")
    talk.ask((HB, 1), (HB, 2), (HB, 3)).run(4 * TICK)
    assert not talk.read[CLIENT]
    muted = talk.now
    while not talk.read[CLIENT]:
        talk.run(TICK)
    assert talk.now - muted >= 0.5
    causes = by_cause(talk.ask((LIST_GROUPS, 4)).run(2.0).check())

    assert [kproxy for _, kproxy in causes.values()] == [0, 0, 0, 0]
    assert causes[1][0] == causes[2][0] == 0 < causes[3][0]
    assert causes[4][0] <= 500


QUOTA = "rules: [{name: few, kind: quota, requests: 2/s, burst: 0.5s, max_throttle: 300ms}]"


def test_throttle_of_a_quota_agrees_everywhere() -> None:
    """Reported throttle times end at `max_throttle`, mutes and waits for a turn do not."""
    talk = Timed(QUOTA)
    for number in range(4):
        talk.ask((HB, number)).run(0.1)
        while not talk.read[CLIENT]:
            talk.run(TICK)
    talk.run(2.0).check()
    events = [request_event(one, wall) for one in talk.seen]

    assert [data.get("throttle_ms") for data in events] == [0, 300, 300, 300]
    assert all(data["mute_ms"] > 300 for data in events[1:])
    assert talk.rules.live[0].throttle_seconds == pytest.approx(sum(map(throttle_seconds, events)), abs=0.01)


def test_throttle_of_pipelined_requests_counts_each_wait_once() -> None:
    """The rule's metric has the own wait of each request, clients' metrics also the wait behind others."""
    talk = Timed(QUOTA)
    talk.ask(*((HB, number) for number in range(5))).run(5.0).check()
    events = [request_event(one, wall) for one in talk.seen]

    own = talk.rules.live[0].throttle_seconds
    assert own == pytest.approx(4 * 0.5 + 3 * 0.5, abs=0.05)  # four mutes, and three waits for a turn
    assert own < sum(map(throttle_seconds, events))


def test_throttle_of_the_broker_has_no_rule() -> None:
    """Its quotas show in throttle_time_ms only, and rules raise that, never lower it."""
    talk = Timed("rules: [{name: told, kind: throttle_time, match: {api: ListGroups}, delay: 100ms}]")
    talk.fields = {1: {"throttle_time_ms": 70}, 2: {"throttle_time_ms": 40}, 3: {"throttle_time_ms": 2000}}
    for number, key in ((1, HB), (2, LIST_GROUPS), (3, LIST_GROUPS)):
        talk.ask((key, number)).run(0.3)
    talk.check()
    events = [request_event(one, wall) for one in talk.seen]

    assert [(data["throttle_ms"], data.get("throttle_rule")) for data in events] == [
        (70, None), (100, "told"), (2000, "told"),
    ]  # fmt: skip
    assert all("mute_ms" not in data or not data["mute_ms"] for data in events)


def test_throttle_of_acks0_mutes_at_once() -> None:
    """No response can report it."""
    talk = Timed("rules: [{name: small, kind: quota, produce: 1kB/s}]")
    talk.ask(produce(1, "orders", acks=0, records=b"r" * 3000)).run(0.1)
    assert not talk.read[CLIENT]
    talk.check()
    (event,) = [request_event(one, wall) for one in talk.seen]

    assert event["throttle_rule"] == "small"
    assert event["mute_ms"] == pytest.approx(1000 * talk.rules.live[0].throttle_seconds)


def test_parts_lookup_of_nodes_is_kproxys_time() -> None:
    """A Metadata response waits for a port, and so does the response behind it."""
    talk = Timed(advertise=True)
    talk.nodes = None
    talk.fields[1] = {"brokers": [{"node_id": 1, "host": "b1", "port": 9092}]}

    def found() -> None:
        talk.session.nodes_ready({1: ("proxy", 9093)}, talk.now)
        talk.obey()

    sides = talk.ask((METADATA, 1), (HB, 2)).run(1.0, then=found, at=THINKS + 0.25).check()

    assert by_cause(sides)[1][0] == by_cause(sides)[2][0] == 0
    assert by_cause(sides)[1][1] == by_cause(sides)[2][1] > 200


def test_parts_lookup_of_topics_is_kproxys_time() -> None:
    """A rule needs the name of a topic id, for which kproxy asks the broker; the next request waits behind."""
    talk = Timed("rules: [{name: none, kind: error, match: {api: Fetch, topic: secret}, error: 29}]")
    topics = [{"topic_id": UUID(int=7), "partitions": [{"partition": 0}]}]
    fetch = request(FETCH, 16, 1, topics=topics)
    sides = by_cause(talk.ask(fetch, (HB, 2)).run(0.5).check())

    assert sides == {1: (0, round(1000 * THINKS)), 2: (0, round(1000 * THINKS))}


def test_parts_memory_is_kproxys_time() -> None:
    """A response that has to be whole waits until others give memory back."""
    shared = ClusterState(responses=HeldMemory(1000))
    talk = Timed(advertise=True, shared=shared)
    talk.fields[1] = {"cluster_id": "c" * 100, "brokers": [{"node_id": 1, "host": "b1", "port": 9092}]}
    other = MemoryLane()
    assert other.ask(shared.responses, shared.responses.largest)

    def free() -> None:
        assert other.reserved is not None
        for lane in shared.responses.release(other.reserved):
            lane.session.granted(talk.now)
        talk.obey()

    talk.answers = False
    talk.ask((METADATA, 1), (HB, 2))
    answer = response(METADATA, 12, 1, **talk.fields[1])
    talk.run(0.125).feed(BROKER, answer[:40])
    assert not talk.read[BROKER]
    talk.run(0.5, then=free, at=0.25).feed(BROKER, answer[40:] + response(HB, 4, 2))
    sides = talk.check(r1=0.25)

    assert by_cause(sides) == {1: (0, 250), 2: (0, 0)}


def test_parts_principal_is_kproxys_time() -> None:
    """A rule goes by the principal, so requests wait until the broker has confirmed it."""
    talk = Timed('rules: [{name: none, kind: deny, match: {api: Heartbeat, principal: "User:eve"}}]')
    handshake = request(17, 1, 1, mechanism="PLAIN")
    login = request(36, 2, 2, auth_bytes=b"\0bob\0secret")
    sides = by_cause(talk.ask(handshake, login, (HB, 3), (LIST_GROUPS, 4)).run(1.0).check())

    assert sides == {1: (0, 0), 2: (0, 0), 3: (0, round(1000 * THINKS)), 4: (0, round(1000 * THINKS))}


def test_parts_rest_of_a_request_is_kproxys_time() -> None:
    """A rule needs the whole request: the broker gets none of it before the client has sent its rest."""
    talk = Timed("rules: [{name: set, kind: set, match: {api: Heartbeat}, at: request, fields: {generation_id: 5}}]")
    asked = request(HB, 4, 1)
    talk.feed(CLIENT, asked[:5])
    talk.run(0.125).feed(CLIENT, asked[5:20])
    talk.run(0.125).feed(CLIENT, asked[20:] + request(LIST_GROUPS, 4, 2))
    sides = by_cause(talk.run(0.5).check())

    assert sides == {1: (0, 250), 2: (0, 0)}


def test_parts_bytes_that_come_while_blocked_count_from_their_arrival() -> None:
    """A driver may have read once more when the lane was blocked."""
    talk = Timed("rules: [{name: slow, kind: delay, match: {api: Heartbeat}, delay: 500ms}]")
    second = request(LIST_GROUPS, 4, 2)
    talk.ask((HB, 1)).run(0.25).feed(CLIENT, second[:7])
    talk.run(0.125).feed(CLIENT, second[7:] + request(LIST_GROUPS, 4, 3))
    sides = by_cause(talk.run(1.0).check())

    assert sides == {1: (500, 0), 2: (250, 0), 3: (125, 0)}


def test_parts_acks0_behind_a_delayed_frame() -> None:
    """A Produce that is due no response waits, too, and is handed out with that."""
    talk = Timed("rules: [{name: slow, kind: delay, match: {api: Heartbeat}, delay: 250ms}]")
    silent = [request(PRODUCE, 9, number, acks=0) for number in (1, 3, 4, 6)]
    sides = by_cause(talk.ask(silent[0], (HB, 2), *silent[1:], (LIST_GROUPS, 5)).run(1.0).check())

    assert sides == {1: (0, 0), 2: (250, 0), 3: (250, 0), 4: (250, 0), 5: (250, 0), 6: (250, 0)}


def test_parts_equal_correlation_ids_are_told_apart() -> None:
    """A client may use an id twice at a time; each of its requests has its own wait."""
    talk = Timed("rules: [{name: slow, kind: delay, match: {api: Heartbeat}, delay: 125ms}]")
    talk.ask((LIST_GROUPS, 7), (HB, 7), (LIST_GROUPS, 7), (HB, 7)).run(1.0)

    assert [one.rule_wait for one in talk.seen] == [(0.0, 0.0), (0.125, 0.0), (0.125, 0.0), (0.125, 0.0)]


def test_parts_reordered_response_waits_for_the_rule() -> None:
    """The first response leaves after the second: the time in between is the rule's."""
    talk = Timed("rules: [{name: later, kind: reorder_responses, match: {api: Heartbeat}}]")
    talk.answers = False
    talk.ask((HB, 1), (LIST_GROUPS, 2)).run(0.125).feed(BROKER, response(HB, 4, 1))
    talk.run(0.25).feed(BROKER, response(LIST_GROUPS, 4, 2))
    sides = by_cause(talk.check())

    assert sides == {1: (250, 0), 2: (0, 0)}


@pytest.mark.parametrize("spliced", [False, True])
def test_parts_streamed_frames_are_broker_time(spliced: bool) -> None:
    """A long Produce and a long Fetch response pass as they come; both transfers count as the broker's."""
    talk = Timed("rules: []")
    talk.answers = False
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": bytes(200_000)}]}]
    asked = request(PRODUCE, 9, 1, acks=1, topic_data=topics)
    long = response(METADATA, 12, 2, cluster_id="c" * 30_000)
    for data, side in ((asked + request(METADATA, 12, 2), CLIENT), (response(PRODUCE, 9, 1) + long, BROKER)):
        first, rest, last = data[:10_000], data[10_000:-10_000], data[-10_000:]
        talk.feed(side, first)
        talk.run(0.125)
        unseen = min(one.unseen(side == BROKER) for one in talk.observers)
        if spliced and unseen >= len(rest):
            talk.splice(side, rest)
        else:
            talk.feed(side, rest)
        talk.run(0.125).feed(side, last)
        talk.run(0.125)
    sides = talk.check()

    assert by_cause(sides) == {1: (0, 0), 2: (0, 0)}
    assert sides[1]["broker_ms"] == sides[1]["latency_ms"] > 0


@pytest.mark.parametrize("whole", [False, True])
def test_parts_tail_of_a_streamed_fetch_waits_for_kproxy(whole: bool) -> None:
    """A long Fetch response streams; its tail names a node whose port has to be found first."""
    talk = Timed(advertise=True)
    talk.answers, talk.nodes = False, None
    parts = [{"partition_index": 0, "records": bytes(100_000)}]
    answer = response(
        FETCH, 16, 1, responses=[{"topic_id": UUID(int=7), "partitions": parts}],
        node_endpoints=[{"node_id": 1, "host": "b1.example.com", "port": 9092}],
    )  # fmt: skip
    answer += response(HB, 4, 2)
    talk.ask((FETCH, 1), (HB, 2)).run(0.125)
    if whole:
        talk.feed(BROKER, answer)
    else:
        talk.feed(BROKER, answer[:50_000])
        talk.run(0.125).feed(BROKER, answer[50_000:])
    assert not talk.read[BROKER]
    talk.run(0.25)
    talk.session.nodes_ready({1: ("proxy", 9093)}, talk.now)
    talk.obey()
    sides = by_cause(talk.run(0.125).check())

    assert sides == {1: (0, 250), 2: (0, 250)}


def test_parts_of_a_frame_that_never_leaves_are_reported() -> None:
    """The client goes while its request is held: the event has the time that the rule held it."""
    talk = Timed("rules: [{name: held, kind: intercept, match: {api: Heartbeat}, hold_for: 10s}]")
    talk.ask((HB, 1), (LIST_GROUPS, 2)).run(0.5)
    talk.session.end(talk.now)
    for one in talk.observers:
        one.end(talk.now)

    assert [(one.outcome, sum(one.rule_wait)) for one in talk.seen] == [("unanswered", 0.5), ("unanswered", 0.5)]


def test_parts_of_many_frames_are_each_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are released one by one; reporting all that wait each time would be quadratic."""
    talk = Timed("rules: [{name: held, kind: intercept, match: {api: Heartbeat}, hold_for: 60s, max_frames: 1000}]")
    calls: list[int] = []
    monkeypatch.setattr(talk.observers[0], "waited", lambda correlation, *_, **__: calls.append(correlation))
    talk.ask(*[(HB, number) for number in range(300)])
    for _ in range(300):
        talk.run(TICK)
        talk.release()

    assert calls == [*range(300)]


def test_wait_clock_with_many_arrivals_stays_bounded() -> None:
    """Reads beyond the limit count as having come with the one before."""
    clock = WaitClock()
    clock.begin(True, 0.0)
    for number in range(1, 1000):
        clock.add(number, float(number))
    clock.count(1000.0)

    assert len(clock.arrivals) == MAX_ARRIVALS
    assert clock.of(0) == (1000.0, 0.0)
    assert clock.of(10) == (990.0, 0.0)
    assert clock.of(999) == (1000.0 - MAX_ARRIVALS + 1, 0.0)
    clock.remove(10)
    assert (clock.of(0), clock.of(1)) == ((990.0, 0.0), (989.0, 0.0))
