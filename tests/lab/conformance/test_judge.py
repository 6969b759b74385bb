"""The judge of the conformance report, over made-up runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.lab.conformance.judge import GRAVITY, OUTCOMES, Recovery, Stored, Told, Verdict, judge

STORED: Stored = {(0, 0): "t-0", (1, 0): "t-1", (0, 1): "t-2"}
ACKNOWLEDGED = [("t-0", 0, 0), ("t-1", 1, 0), ("t-2", 0, 1)]
GOOD = Told(["t-0", "t-1", "t-2"], ACKNOWLEDGED, [], ACKNOWLEDGED, [], 3.0)


def verdict(told: Told | None, stored: Stored = STORED, fired: float = 1, ended: str = "exit code 0") -> Verdict:
    """Judge a run."""
    return judge(told, stored, fired=fired, ended=ended, recovery=Recovery(2, 1.25))


def test_all_is_well() -> None:
    """Every record is stored once, was acknowledged and read once."""
    assert verdict(GOOD) == Verdict("recovered", "in 2 tries and 1.2 s")
    assert judge(GOOD, STORED, fired=1, ended="exit code 0") == Verdict(
        "recovered", "nothing was noticed; the program took 3.0 s"
    )
    assert verdict(GOOD, fired=0).outcome == "not exercised"


TWO: Stored = {(0, 0): "t-0", (1, 0): "t-1"}
FIRST = ACKNOWLEDGED[:2]
AGAIN = ("t-0", 0, 0)
MISTAKES: list[tuple[str, Told, Stored, str]] = [
    ("lost", replace(GOOD, read=FIRST), TWO, "1 acknowledged record is not stored (t-2)"),
    ("lost", replace(GOOD, read=ACKNOWLEDGED[1:]), STORED, "1 stored record was passed over by the reader (t-0)"),
    ("hung", replace(GOOD, read=FIRST), STORED, "1 stored record was not read in 3 s (t-2)"),
    ("hung", replace(GOOD, acknowledged=FIRST), STORED, "1 write had no result in 3 s (t-2)"),
    ("doubled", replace(GOOD, read=[*ACKNOWLEDGED, AGAIN]), STORED, "1 record was read more than once ((0, 0))"),
    (
        "doubled",
        replace(GOOD, read=[*ACKNOWLEDGED, ("t-0", 0, 2)]),
        {**STORED, (0, 2): "t-0"},
        "1 record is stored more than once (t-0)",
    ),
    (
        "lied",
        replace(GOOD, read=[*FIRST, (None, 0, 1)]),
        STORED,
        "1 record was read but not stored there",
    ),
    (
        "lied",
        replace(GOOD, acknowledged=[*FIRST, ("t-2", 1, 7)]),
        STORED,
        "1 record was acknowledged at places where others",
    ),
    (
        "raised",
        replace(GOOD, acknowledged=FIRST, failed=[("t-2", "oh")]),
        STORED,
        "1 write failed, of which 1 is stored: oh",
    ),
    ("raised", replace(GOOD, errors=["a", "a", "b"]), STORED, "a, b"),
    ("raised", replace(GOOD, acknowledged=[*FIRST, ("t-2", 0, -1)], errors=["c"]), STORED, "c"),
]


@pytest.mark.parametrize(("outcome", "told", "stored", "text"), MISTAKES, ids=[text for *_, text in MISTAKES])
def test_each_mistake_is_told(outcome: str, told: Told, stored: Stored, text: str) -> None:
    """What is wrong decides the outcome, and the sentence says how many and which."""
    found = verdict(told, stored)

    assert (found.outcome, text in found.text) == (outcome, True), found


def test_the_gravest_is_the_outcome_and_the_rest_are_notes() -> None:
    """A record that was read and is not stored was never there: that is graver than that it is lost."""
    found = verdict(GOOD, {(0, 0): "t-0", (1, 0): "t-1"})

    assert found.outcome == "lied"
    assert any("is not stored (t-2)" in note for note in found.notes)
    assert GRAVITY.index("lied") < GRAVITY.index("lost") and set(GRAVITY) < set(OUTCOMES)


def test_mistakes_count_where_the_rule_did_not_act() -> None:
    """A run that goes wrong without its fault says so, and is not passed over as not exercised."""
    found = verdict(replace(GOOD, errors=["a"]), fired=0)

    assert (found.outcome, found.notes) == ("raised", ["the rule had not acted, so it was not the cause"])


def test_a_program_that_tells_nothing() -> None:
    """It was killed, or it has died."""
    assert verdict(None, ended="killed after 70 s") == Verdict("hung", "killed after 70 s")
    assert verdict(None, ended="exit code -11") == Verdict("died", "exit code -11")
    assert verdict(GOOD, ended="killed after 70 s").outcome == "hung"


def test_a_program_that_dies_when_it_has_told_all() -> None:
    """A crash of its library at the end is no recovery; an exit code of its own is its own matter."""
    found = verdict(GOOD, ended="exit code -11")

    assert found == Verdict("died", "the program reported everything and crashed: exit code -11")
    assert verdict(GOOD, ended="exit code 1").outcome == "recovered"


def test_a_program_that_claims_to_have_done_nothing() -> None:
    """Where nothing was written nothing was lost, which is no recovery; what was told of it comes first."""
    short = Verdict("hung", "it wrote 3 of 30 records and reported no reason")

    assert judge(GOOD, STORED, fired=1, ended="exit code 0", due=30) == short
    assert judge(replace(GOOD, sent=["t-0"] * 30), STORED, fired=1, ended="exit code 0", due=30).outcome == "hung"
    assert judge(Told(), {}, fired=1, ended="exit code 0", due=30).outcome == "hung"
    assert judge(replace(GOOD, errors=["no"]), STORED, fired=1, ended="exit code 0", due=30).outcome == "raised"
    assert judge(GOOD, STORED, fired=1, ended="exit code 0", due=3).outcome == "recovered"


def test_a_line_of_another_form_is_refused() -> None:
    """A program that tells something else is a mistake of the program, and no verdict about its library."""
    line = {
        "sent": ["t-0"],
        "acknowledged": [["t-0", 0, 1]],
        "failed": [],
        "read": [[None, 0, 1]],
        "errors": [],
        "seconds": 1,
    }

    assert Told.of(line) == Told(["t-0"], [("t-0", 0, 1)], [], [(None, 0, 1)], [], 1.0)
    with pytest.raises(ValueError, match="no line of the step traffic"):
        Told.of({key: value for key, value in line.items() if key != "read"})
    with pytest.raises(ValueError, match="unpack"):
        Told.of({**line, "read": [["t-0"]]})
    odd: list[dict[str, Any]] = [
        {"seconds": float("nan")}, {"seconds": None}, {"sent": 5}, {"read": [[1, float("inf"), 2]]}, {"errors": None},
        {"acknowledged": {"t-0": 1}}, {"failed": ["x"]},
    ]  # fmt: skip
    for one in odd:
        with pytest.raises(ValueError, match=r"no line|literal|unpack"):
            Told.of({**line, **one})


class Value(str):
    """Text that counts comparisons with other texts."""

    __slots__ = ()
    __hash__ = str.__hash__
    compared = 0

    def __eq__(self, other: object) -> bool:
        Value.compared += 1
        return str.__eq__(self, other)


def test_verdict_on_many_failures_compares_each_value_once() -> None:
    values = [Value(f"t-{number}") for number in range(5_000)]
    Value.compared = 0
    found = verdict(Told(values, [], [(Value(value), "no") for value in values], [], [], 3.0), {})

    assert found.outcome == "raised" and "5000 writes failed" in found.text.replace(",", "")
    assert Value.compared <= 5 * len(values)
