"""However long a frame is, a session never works on it for long without a place where others may run.

By default with a tenth of the elements, and a bound to match; KPROXY_TEST_ALL=1 takes all of them, with every API, the
first and the last version, and both forms (many elements, or many in one element).
"""

from __future__ import annotations

import os

import pytest

from kproxy.rules.kinds import KINDS
from kproxy.testing import stretches
from kproxy.testing.dialogue import Dialogue, request
from kproxy.testing.stretches import Case, Stopwatch, cases, large

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
COUNT, LONGEST = (100_000, 0.050) if EVERYTHING else (10_000, 0.015)
"""Elements, and seconds of CPU: a fifth of what would be linear is left to a machine that has others to serve."""
TRIES = 4
"""A stretch is as long as the shortest of so many attempts: caches are cold at first, and others use the machine."""
ALL = list(cases(EVERYTHING))


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
        assert found <= LONGEST, f"{case}: {found * 1000:.0f} ms in one go\n{case.measure(COUNT, trace=True).where}"


def test_every_kind_is_measured() -> None:
    """Kinds that act on no frame are about connections and bytes only."""
    assert set(KINDS) - {case.kind for case in ALL} <= {"allow_from", "refuse", "bandwidth", "slice", "blackhole"}


def test_many_small_frames_in_one_read() -> None:
    """Frames that each cost something: between two of them there is a place to stop."""
    talk, watch = Dialogue("rules: [{name: none, kind: deny, match: {topic: '/s(e)cret/'}}]"), Stopwatch()
    frames = b"".join(request(3, 9, number, topics=[{"name": f"t{number}"}]) for number in range(3000))
    with watch:
        talk.client(frames)
    assert watch.looks >= 3000
    assert watch.longest <= 0.050


def test_the_measure_itself_sees_a_long_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the places to stop the same frame is one long stretch."""
    case = next(case for case in cases() if case.kind == "deny" and case.way == "request")
    with_them = case.measure(COUNT)
    monkeypatch.setattr("kproxy.wire.breath.State.whole", 1)
    without = case.measure(COUNT)
    assert with_them.looks > 100
    assert without.looks <= 4
    assert without.longest > with_them.longest * 4


def test_an_array_of_more_than_can_be_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection ends, and it is said why."""
    monkeypatch.setattr("kproxy.wire.decode_support.MOST_ELEMENTS", 1000)
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
