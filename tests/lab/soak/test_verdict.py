"""The judge of the soak finds what is lost, doubled, turned over, changed, and in the wrong place; and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab.soak import records, verdict
from tests.lab.soak.chaos import schedule
from tests.lab.soak.clients.common import MARK, value
from tests.lab.soak.vitals import Line


def log_of(*numbers: int) -> dict[int, list[tuple[int, bytes]]]:
    return {0: verdict.example(0, numbers)}


def acked(*numbers: int) -> dict[int, list[tuple[int, int]]]:
    return {0: list(enumerate(numbers))}


def test_a_whole_log_has_no_findings() -> None:
    """What was written is there once, in order, where it was acknowledged."""
    assert verdict.numbered(log_of(0, 1, 2), acked(0, 1, 2), 3) == []


def test_offsets_that_brokers_do_not_tell() -> None:
    """A record that came again, and was there already, is acknowledged without one; two records never share one."""
    assert verdict.numbered(log_of(0, 1, 2), {0: [(0, 0), (None, 1), (None, 2)]}, 3) == []
    found = verdict.numbered(log_of(0, 1, 2), {0: [(0, 0), (1, 1), (1, 2)]}, 3)

    assert "partition 0: two records were acknowledged at one offset" in found


@pytest.mark.parametrize(
    ("there", "acknowledged", "finding"),
    [
        ((0, 2), (0, 2), "1 of 3 records are lost: 1"),
        ((0, 1, 1, 2), (0, 1, 2), "1 records are there twice: 1"),
        ((0, 2, 1), (0, 2, 1), "in another order: 1 after 2"),
        ((0, 1, 2, 3), (0, 1, 2), "1 records that nobody wrote: 3"),
        ((0, 1, 2), (0, 1), "2 of 3 records were acknowledged"),
        ((0, 1, 2), (0, 2, 1), "records are not at the offsets that were acknowledged: 2, 1"),
    ],
    ids=["lost", "doubled", "turned over", "made up", "not acknowledged", "elsewhere"],
)
def test_what_is_wrong_with_a_log(there: tuple[int, ...], acknowledged: tuple[int, ...], finding: str) -> None:
    """Each fault is told by its name, with examples."""
    assert finding in " ".join(verdict.numbered(log_of(*there), acked(*acknowledged), 3))


def test_a_changed_record_and_one_in_another_partition() -> None:
    """A record says all over which one it is."""
    log = {0: [(0, value(0, 39)[:-1]), (1, value(1, 0))]}
    found = " ".join(verdict.numbered(log, {}, 0))

    assert "offset 0: a record of" in found
    assert "offset 1: a record of partition 1" in found


def test_what_is_transformed_twice() -> None:
    """Exactly once means not twice either; what nobody writes is told."""
    log = {0: [(0, MARK + value(0, 0)), (2, MARK + value(0, 0)), (5, b"x")]}
    found = " ".join(verdict.transformed(log, 1))

    assert "changed partition 0: 1 records are there twice: 0" in found
    assert "offset 5: not what the transformer writes" in found


def begins(at: float, offset: int) -> dict[str, Any]:
    return {"at": at, "begins": {"0": offset}, "asked": at - 0.1}


def reads(at: float, offset: int, count: int, *, behind: int) -> dict[str, Any]:
    return {"at": at, "read": [[0, offset, offset, count]], "commits": {"0": behind}}


def test_a_group_that_reads_again_what_was_not_committed() -> None:
    """A member that died before its commit was acknowledged may leave its records to the next one."""
    first = [begins(1, 0), reads(2, 0, 2, behind=2), {"at": 3, "committed": {"0": 2}}, reads(4, 2, 1, behind=3)]
    again = [begins(6, 2), reads(7, 2, 2, behind=4)]

    assert verdict.members(log_of(0, 1, 2, 3), {"a": first, "b": again}) == []
    assert verdict.members(log_of(0, 1, 2, 3), {"a": first, "b": [begins(6, 3), reads(7, 3, 1, behind=4)]}) == []


@pytest.mark.parametrize(
    ("second", "finding"),
    [
        ([begins(6, 1), reads(7, 1, 3, behind=4)], "begins at 1, committed were 2 to 3"),
        ([begins(6, 4)], "begins at 4, committed were 2 to 3"),
        ([begins(6, 2), reads(7, 3, 1, behind=4)], "goes on at 3, not at 2"),
        ([begins(6, 3)], "has not read 1 records of partition 0: 3"),
        ([begins(6, 3), {"at": 7, "read": [[0, 3, 2, 1]]}], "has others than were read at 3"),
    ],
    ids=["back behind a commit", "past what was asked for", "a gap", "not to the end", "another record"],
)
def test_what_is_wrong_with_a_group(second: list[dict[str, Any]], finding: str) -> None:
    """Each fault is told by its name."""
    first = [begins(1, 0), reads(2, 0, 2, behind=2), {"at": 3, "committed": {"0": 2}}, reads(4, 2, 1, behind=3)]
    assert finding in " ".join(verdict.members(log_of(0, 1, 2, 3), {"a": first, "b": second}))


def test_what_a_java_producer_was_told() -> None:
    """Acknowledged values are there, at that offset, each larger than the one before it."""
    log = {0: [(0, b"0"), (1, b"2")], 1: [(0, b"1"), (1, b"1")]}

    assert verdict.java({0: log[0]}, [(0, 0, 0), (0, 1, 2)]) == []
    found = " ".join(verdict.java(log, [(0, 1, 3)]))
    assert "1 acknowledged records are not where they should be" in found
    assert "partition 1: doubled or in another order: 1 after 1" in found


def test_memory_is_judged_after_the_warm_up() -> None:
    """What a process takes at first does not count, and one that lived shortly is not judged."""
    grows = Line(0.0, [(second, 50 + second / 10) for second in range(240)])
    settled = Line(0.0, [(second, min(second, 50)) for second in range(240)])

    assert grows.growth() == (pytest.approx(12, abs=0.5), pytest.approx(120, abs=2))
    assert settled.growth() == (0, pytest.approx(120, abs=2))
    assert Line(0.0, settled.points[:100]).growth() is None


def test_the_same_seed_gives_the_same_schedule() -> None:
    """And another seed another one; nothing happens in the last ten seconds."""
    lanes = schedule(7, 300, [1, 2, 3])

    assert lanes == schedule(7, 300, [1, 2, 3]) != schedule(8, 300, [1, 2, 3])
    assert all(5 <= step.at < 290 for lane in lanes for step in lane)
    assert {step.what for lane in lanes for step in lane} > {"kill_broker", "kill_worker"}


def test_the_log_is_read_to_its_last_line() -> None:
    """Errors and lines that are not whole are findings, the death of a worker is none."""
    ended = json.dumps({"event": "worker ended, another one is started", "level": "error"})
    bad = json.dumps({"event": "a callback raised", "level": "error"})

    assert records.log_findings([ended, json.dumps({"event": "ready", "level": "info"})]) == []
    assert len(records.log_findings([bad, '{"event": "re'])) == 2


def test_an_audit_without_events_is_a_finding(tmp_path: Path) -> None:
    """Who finds no event has looked in the wrong place, or nothing was recorded."""
    assert records.audit(tmp_path, 0)[0] == ["audit: no event is published"]
