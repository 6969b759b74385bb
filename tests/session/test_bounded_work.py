"""However long a frame is, a session works on it in short stretches, with yield points in between.

By default sampled: one API, version, form and selector of each kind. KPROXY_TEST_ALL=1 measures the CPU time of 100,000
elements. All 107,000 cases (every API, the first and the last version, both forms and each selector) would take days:
`python -m tests.support.stretches --sieve FILE` searches them.
"""

from __future__ import annotations

import struct
from functools import partial
from uuid import UUID

import pytest

from kproxy.base import cooperative
from kproxy.protocol.framing import framed
from kproxy.record.observer.summary import Summary
from kproxy.record.observer.summary_rows import WELL, SummaryRow
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.session.cluster import CORRELATION
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support import stretches
from tests.support.hooks import hooked
from tests.support.line_count import LineCount
from tests.support.stretches import ALL_CASES, IN_BOTH_UNITS, LINES, READ, Case, Unit, Watch, cases, large

ALL = list(cases())


@IN_BOTH_UNITS
@pytest.mark.timeout(900 if ALL_CASES else 300)
@pytest.mark.parametrize("kind", list(KINDS))
def test_session_with_any_rule_yields(kind: str, unit: Unit) -> None:
    for case in ALL:
        if case.kind == kind:
            unit.check(partial(case.run, unit.count))


def test_every_kind_is_measured() -> None:
    """Kinds that act on no frame are about connections and bytes only."""
    without_frames = {
        "blackhole",
        *(kind for kind, model in KINDS.items() if issubclass(model, LiveRule) and model.scope == "connection"),
    }
    assert set(KINDS) - {case.kind for case in ALL} <= without_frames


TENANT = "rules: [{name: a, kind: prefix, prefix: tenant-a.}]"


def subscription(count: int) -> bytes:
    """What a consumer sends of the topics that it wants, of version 1."""
    names = b"".join(struct.pack(">h", len(name)) + name for name in (b"t-%d" % at for at in range(count)))
    return struct.pack(">hi", 1, count) + names + struct.pack(">ii", -1, 0)


@IN_BOTH_UNITS
@pytest.mark.parametrize("wide", [False, True])
def test_join_group_with_many_names_yields(wide: bool, unit: Unit) -> None:
    """One protocol with many topics, or many protocols with one topic."""
    many, inside = (unit.count // 10, 1) if wide else (1, unit.count)
    protocols = [{"name": f"p{at}", "metadata": subscription(inside)} for at in range(many)]
    frame = request(11, 9, 1, group_id="g", protocol_type="consumer", protocols=protocols)

    def work(watch: Watch) -> None:
        talk = Dialogue(TENANT)
        with watch:
            talk.client(frame)
        assert talk.closed is None
        assert b"tenant-a.t-0" in talk.to_broker

    unit.check(work)


@IN_BOTH_UNITS
def test_topic_regex_over_many_topics_yields(unit: Unit) -> None:
    """The names arrive in one response, and each is matched."""
    entry = {"error_code": 0, "is_internal": False, "partitions": [], "topic_authorized_operations": 0}
    topics = [entry | {"name": f"tenant-a.{at:x}", "topic_id": UUID(int=at + 1 | 4 << 76)} for at in range(unit.count)]
    heartbeat = {"group_id": "g", "member_id": "m", "member_epoch": 0, "topic_partitions": []}
    frame = request(68, 1, 1, subscribed_topic_regex="[0-9a-f]*", **heartbeat)
    heard = response(3, 10, CORRELATION, topics=topics)

    def work(watch: Watch) -> None:
        talk = Dialogue(TENANT)
        with watch:
            talk.client(frame).broker(heard)
        assert talk.session.counters.rewritten["topic_regexes"] == 1

    unit.check(work)


@IN_BOTH_UNITS
def test_metadata_with_unknown_topic_ids_yields(unit: Unit) -> None:
    topics = [{"topic_id": UUID(int=at + 1 | 4 << 76), "name": None} for at in range(unit.count)]
    frame = request(3, 12, 1, topics=topics)

    def work(watch: Watch) -> None:
        talk = Dialogue(TENANT)
        with watch:
            talk.client(frame).broker(response(3, 12, CORRELATION))
        assert talk.session.counters.events["topic_ids_unreachable"] == unit.count

    unit.check(work)


@IN_BOTH_UNITS
def test_array_of_ids_is_decoded_in_steps(unit: Unit) -> None:
    rule = "{name: all, kind: error, error: UNKNOWN_SERVER_ERROR, at: response}"
    frame = request(62, 4, 1, log_dirs=[UUID(int=at) for at in range(unit.count)])

    def work(watch: Watch) -> None:
        talk = Dialogue(f"rules: [{rule}]")
        with watch:
            talk.client(frame).broker(response(62, 4, 1))
        assert talk.closed is None

    unit.check(work)


@IN_BOTH_UNITS
@pytest.mark.parametrize("cut", [3, 1])
def test_frame_that_is_wrong_at_its_end_yields(cut: int, unit: Unit) -> None:
    frame = large(9, 9, "request", unit.count)[4:-cut]
    rule = "{name: few, kind: deny, match: {topic: name-*}}"

    def work(watch: Watch) -> None:
        talk = Dialogue(f"rules: [{rule}]")
        with watch:
            talk.client(framed(frame))
        assert talk.closed is not None

    unit.check(work)


def test_summary_of_many_partitions_yields() -> None:
    """A minute may be drained at a yield point, and sums stay exact."""
    count = 10_000
    parts = [(f"t{at % 700}", at, 0, 10, 1, 1, "", False, at, None) for at in range(count)]
    told: list[SummaryRow] = []
    summary = Summary(lambda key, version: True)

    def drain() -> None:
        told.extend(summary.drain(1e9, everything=True))

    with hooked(drain):
        summary.count((0, 9, None, WELL, 1), 1.0, 2.0, 100, 50, 1.0, parts)
    assert told, "nobody had a turn"
    drain()
    assert sum(line.records or 0 for line in told) == count
    assert sum(line.count for line in told if line.latency_ms is not None) == 1


@IN_BOTH_UNITS
def test_read_of_many_small_frames_yields_for_each(unit: Unit) -> None:
    frames = b"".join(request(3, 9, number, topics=[{"name": f"t{number}"}]) for number in range(3000))

    def work(watch: Watch) -> None:
        talk = Dialogue("rules: [{name: none, kind: deny, match: {topic: '/s(e)cret/'}}]")
        with watch:
            talk.client(frames)

    assert unit.check(work, {"lines": 20_000, "seconds": 0.050}[unit.name]).looks >= 3000


LONGEST_READ = {"lines": 600_000, "seconds": 0.050}
"""Limits of a read of many frames. Frames that pass unread have no yield points; 256 KiB have 20,000 at most."""
OBSERVED = "rules: [{name: slow, kind: delay, delay: 1s, mode: dry_run}]"
PASSED = ", ".join(f"{{name: q{number}, kind: quota, per: [client_id], requests: 1000000/s}}" for number in range(20))
"""Rules that fire for each request and let it pass by its beginning."""


@IN_BOTH_UNITS
@pytest.mark.parametrize(
    "rules", ["", "rules: [{name: slow, kind: delay, delay: 1ms}]", TENANT, f"rules: [{PASSED}]", OBSERVED]
)
@pytest.mark.parametrize(("key", "version"), [(16, 0), (18, 0), (999, 0)])
def test_read_of_many_opaque_frames_yields(key: int, version: int, rules: str, unit: Unit) -> None:
    """As many frames of 14 bytes as one read has, of APIs that are known and of one that is not; and the responses."""
    count = READ // 14
    asked = b"".join(struct.pack(">ihhih", 10, key, version, number, -1) for number in range(count))
    said = b"".join(struct.pack(">iiih", 10, number, 0, 0) for number in range(count))

    def work(watch: Watch) -> None:
        talk = Dialogue(rules)
        with watch:
            talk.client(asked)
            talk.later(60)
            if talk.closed is None:
                talk.broker(said)

    unit.check(work, LONGEST_READ[unit.name])


def test_line_count_without_yield_points_is_one_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in cases() if case.kind == "deny" and case.way == "request")
    with_yields = LINES.check(partial(case.run, LINES.count))
    monkeypatch.setattr(cooperative, "install_hooks", lambda *hooks: None)
    without = LineCount(fine=True)
    case.run(LINES.count, without)
    assert with_yields.looks > 1000
    assert without.looks <= 4
    assert without.longest > 10 * LINES.longest


def test_an_array_of_more_than_can_be_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection ends, and it is said why."""
    monkeypatch.setattr("kproxy.protocol.codec.decoder.MOST_ELEMENTS", 1000)
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
