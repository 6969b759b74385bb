"""However long a frame is, a session never works on it for long without a place where others may run.

By default sampled: of each kind one API, version, form and selector, with a tenth of the elements and a bound to match.
KPROXY_TEST_ALL=1 takes 100,000 elements. All 107,000 cases (every API, the first and the last version, both forms and
each selector) would take days: `python -m tests.support.stretches --sieve FILE` searches them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from uuid import UUID

import pytest

from kproxy.core.cluster import CORRELATION
from kproxy.observe.summary import Summary
from kproxy.observe.summary_rows import WELL, SummaryRow
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.live import LiveRule
from kproxy.testing.dialogue import Dialogue, request, response, sized
from kproxy.wire import breath
from tests.support import stretches
from tests.support.pace import within
from tests.support.stretches import READ, Case, Stopwatch, cases, large

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
COUNT, LONGEST = (100_000, 0.050) if EVERYTHING else (10_000, 0.015)
"""Elements, and seconds of CPU: a fifth of what would be linear is left to a machine that has others to serve."""
TRIES = 4
"""A stretch is as long as the shortest of so many attempts: caches are cold at first, and others use the machine."""
ALL = list(cases())


@pytest.mark.timeout(900 if EVERYTHING else 300)
@pytest.mark.parametrize("kind", list(KINDS))
def test_no_stretch_is_long(kind: str) -> None:
    """Of no kind of rule, whatever frame it meets."""
    mine = [case for case in ALL if case.kind == kind]
    for case in mine:
        found = 1.0
        for _ in range(TRIES):
            found = min(found, case.measure(COUNT).longest)
            if found <= LONGEST:
                break
        assert within(found, LONGEST), (
            f"{case}: {found * 1000:.0f} ms in one go\n{case.measure(COUNT, trace=True).where}"
        )


def test_every_kind_is_measured() -> None:
    """Kinds that act on no frame are about connections and bytes only."""
    without_frames = {
        "blackhole",
        *(kind for kind, model in KINDS.items() if issubclass(model, LiveRule) and model.scope == "connection"),
    }
    assert set(KINDS) - {case.kind for case in ALL} <= without_frames


def shortest(measure: Callable[[], Stopwatch], enough: float = LONGEST) -> float:
    """The longest stretch of the best attempt; what is not longer than `enough` is not tried again."""
    found = 1.0
    for _ in range(TRIES):
        found = min(found, measure().longest)
        if found <= enough:
            break
    return found


TENANT = "rules: [{name: a, kind: prefix, prefix: tenant-a.}]"


def subscription(count: int) -> bytes:
    """What a consumer sends of the topics that it wants, of version 1."""
    names = b"".join(struct.pack(">h", len(name)) + name for name in (b"t-%d" % at for at in range(count)))
    return struct.pack(">hi", 1, count) + names + struct.pack(">ii", -1, 0)


@pytest.mark.parametrize(("many", "inside"), [(1, COUNT), (COUNT // 10, 1)])
def test_names_in_the_bytes_of_groups(many: int, inside: int) -> None:
    """Of one protocol with many topics, and of many protocols."""
    protocols = [{"name": f"p{at}", "metadata": subscription(inside)} for at in range(many)]
    frame = request(11, 9, 1, group_id="g", protocol_type="consumer", protocols=protocols)

    def measure() -> Stopwatch:
        talk, watch = Dialogue(TENANT), Stopwatch()
        with watch:
            talk.client(frame)
        assert talk.closed is None
        assert b"tenant-a.t-0" in talk.to_broker
        return watch

    assert within(shortest(measure), LONGEST)


def test_a_pattern_over_many_topics() -> None:
    """The names come in one answer, and each is matched: with places to stop in both."""
    entry = {"error_code": 0, "is_internal": False, "partitions": [], "topic_authorized_operations": 0}
    topics = [entry | {"name": f"tenant-a.{at:x}", "topic_id": UUID(int=at + 1 | 4 << 76)} for at in range(COUNT)]
    heartbeat = {"group_id": "g", "member_id": "m", "member_epoch": 0, "topic_partitions": []}
    frame = request(68, 1, 1, subscribed_topic_regex="[0-9a-f]*", **heartbeat)
    heard = response(3, 10, CORRELATION, topics=topics)

    def measure() -> Stopwatch:
        talk, watch = Dialogue(TENANT), Stopwatch()
        with watch:
            talk.client(frame).broker(heard)
        assert talk.session.counters.rewritten["topic_regexes"] == 1
        return watch

    assert within(shortest(measure), LONGEST)


def test_many_ids_of_nobody() -> None:
    """Of topics that nobody has: most are sent in disguise."""
    topics = [{"topic_id": UUID(int=at + 1 | 4 << 76), "name": None} for at in range(COUNT)]
    frame = request(3, 12, 1, topics=topics)

    def measure() -> Stopwatch:
        talk, watch = Dialogue(TENANT), Stopwatch()
        with watch:
            talk.client(frame).broker(response(3, 12, CORRELATION))
        assert talk.session.counters.events["topic_ids_unreachable"] == COUNT
        return watch

    assert within(shortest(measure), LONGEST)


def test_many_ids_in_one_field() -> None:
    """An array of ids is made step by step; one of more than is looked into is refused."""
    rule = "{name: all, kind: error, error: UNKNOWN_SERVER_ERROR, at: response}"
    frame = request(62, 4, 1, log_dirs=[UUID(int=at) for at in range(COUNT)])

    def measure() -> Stopwatch:
        talk, watch = Dialogue(f"rules: [{rule}]"), Stopwatch()
        with watch:
            talk.client(frame).broker(response(62, 4, 1))
        assert talk.closed is None
        return watch

    assert within(shortest(measure), LONGEST)


@pytest.mark.parametrize("cut", [3, 1])
def test_a_frame_that_is_wrong_at_its_end(cut: int) -> None:
    """What was made of it goes as it came."""
    frame = large(9, 9, "request", COUNT)[4:-cut]
    rule = "{name: few, kind: deny, match: {topic: name-*}}"

    def measure() -> Stopwatch:
        talk, watch = Dialogue(f"rules: [{rule}]"), Stopwatch()
        with watch:
            talk.client(sized(frame))
        assert talk.closed is not None
        return watch

    assert within(shortest(measure), LONGEST)


def test_an_exchange_of_many_partitions_is_counted_in_steps() -> None:
    """By the audit; others may tell of a minute in the middle, and sums stay exact."""
    parts = [(f"t{at % 700}", at, 0, 10, 1, 1, "", False, at, None) for at in range(COUNT)]
    told: list[SummaryRow] = []
    summary = Summary(lambda key, version: True)

    def drain() -> None:
        told.extend(summary.drain(1e9, everything=True))

    before = breath.use(drain)
    try:
        summary.count((0, 9, None, WELL, 1), 1.0, 2.0, 100, 50, 1.0, parts)
    finally:
        breath.use(before)
    assert told, "nobody had a turn"
    drain()
    assert sum(line.records or 0 for line in told) == COUNT
    assert sum(line.count for line in told if line.latency_ms is not None) == 1


def test_many_small_frames_in_one_read() -> None:
    """Frames that each cost something: between two of them there is a place to stop."""
    frames = b"".join(request(3, 9, number, topics=[{"name": f"t{number}"}]) for number in range(3000))

    def measure() -> Stopwatch:
        talk, watch = Dialogue("rules: [{name: none, kind: deny, match: {topic: '/s(e)cret/'}}]"), Stopwatch()
        with watch:
            talk.client(frames)
        assert watch.looks >= 3000
        return watch

    assert within(shortest(measure, 0.050), 0.050)


OBSERVED = "rules: [{name: slow, kind: delay, delay: 1s, mode: observe}]"
PASSED = ", ".join(f"{{name: q{number}, kind: quota, per: [client_id], requests: 1000000/s}}" for number in range(20))
"""Rules that fire for each request and let it pass by its beginning."""


@pytest.mark.parametrize(
    "rules", ["", "rules: [{name: slow, kind: delay, delay: 1ms}]", TENANT, f"rules: [{PASSED}]", OBSERVED]
)
@pytest.mark.parametrize(("key", "version"), [(16, 0), (18, 0), (999, 0)])
def test_many_opaque_frames_in_one_read(key: int, version: int, rules: str) -> None:
    """Of 14 bytes each, as many as one read takes, of APIs that are known and of one that is not; and their answers."""
    count = READ // 14
    asked = b"".join(struct.pack(">ihhih", 10, key, version, number, -1) for number in range(count))
    said = b"".join(struct.pack(">iiih", 10, number, 0, 0) for number in range(count))

    def measure() -> Stopwatch:
        talk, watch = Dialogue(rules), Stopwatch()
        with watch:
            talk.client(asked)
            talk.later(60)
            if talk.closed is None:
                talk.broker(said)
        return watch

    assert shortest(measure, 0.050) <= 0.050


def test_the_measure_itself_sees_a_long_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the places to stop the same frame is one long stretch."""
    case = next(case for case in cases() if case.kind == "deny" and case.way == "request")
    with_them = case.measure(COUNT)
    monkeypatch.setattr("kproxy.wire.breath.BreathState.whole", 1)
    without = case.measure(COUNT)
    assert with_them.looks > 100
    assert without.looks <= 4
    assert without.longest > with_them.longest * 4


def test_an_array_of_more_than_can_be_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection ends, and it is said why."""
    monkeypatch.setattr("kproxy.wire.codec.compiled.MOST_ELEMENTS", 1000)
    rule = "{name: other, kind: set, match: {api: Metadata}, at: request, fields: {allow_auto_topic_creation: false}}"
    talk = Dialogue(f"rules: [{rule}]")
    talk.client(large(3, 12, "request", 1001))
    assert talk.closed is not None
    assert "an array of 1001 elements, of which at most 1000 are looked into" in talk.closed.message


def test_the_forms_differ() -> None:
    """A deep frame has its elements inside of one."""
    wide, deep = (Case("", "", "Metadata", 12, "response", form) for form in (False, True))
    assert len(stretches.frame(3, 12, "response", 500, wide.deep)) > len(stretches.frame(3, 12, "response", 500, True))
    assert deep.deep
