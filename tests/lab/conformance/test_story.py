"""How a run's exchanges say when its fault was got over, and which of them are shown."""

from __future__ import annotations

from dataclasses import replace

from tests.lab.conformance.judge import Recovery
from tests.lab.conformance.story import FAULT, MARK, StoryLine, recovery, said, shown


def line(
    at: float,
    api: str = "Produce v10",
    state: str = "",
    *,
    faulted: bool = False,
    client: str = "p",
    seconds: float | None = 0.5,
) -> StoryLine:
    """Make an exchange that began at this time."""
    return StoryLine(at, seconds, api, client, "node 1", "orders", state, faulted)


def test_tries_are_counted_until_one_is_good() -> None:
    """Other APIs, other clients and other things elsewhere are no tries; an error is one, and the next after it."""
    lines = [
        line(1),
        line(2, faulted=True, seconds=None),
        line(3, "Metadata v12"),
        line(4, client="other"),
        replace(line(4), node="node 2", about="payments"),
        line(5, state="NOT_LEADER_OR_FOLLOWER"),
        line(6),
        line(7),
    ]

    assert recovery(lines) == Recovery(2, 4.5)


def test_an_answer_that_the_fault_left_good_needs_no_try() -> None:
    """An exchange that was delayed, or whose answer came twice, was answered."""
    assert recovery([line(1, faulted=True), line(3)]) == Recovery(0, 2.5)


def test_what_was_never_got_over_has_no_recovery() -> None:
    """Nor has a run in which the fault acted on no exchange."""
    assert recovery([line(1, faulted=True, seconds=None), line(2, state="X"), line(3, seconds=None)]) is None
    assert recovery([line(1), line(2)]) is None
    assert recovery([]) is None


def test_the_story_is_about_the_fault() -> None:
    """What clients do all the time is left out, and so is what is far from the fault; the rest is counted."""
    lines = [line(number, "Fetch v13") for number in range(30)] + [line(30, faulted=True, state="\x1b[31mX")]
    lines += [line(31 + number, state="X") for number in range(30)]
    told = shown(lines)

    assert told[0][MARK] == FAULT and "\x1b" not in told[0][-1]
    assert len(told) == 8 and told[-1] == ["… 61 exchanges in all, 1 with the fault"]
    assert shown([]) == [["nothing passed"]]


def test_the_story_ends_where_the_fault_was_got_over() -> None:
    """The exchange that got over it is shown although there are many of its kind."""
    lines = [
        line(1, "Fetch v13"),
        line(2, "Fetch v13", faulted=True, seconds=None),
        line(3, "Fetch v13", client="other"),
        line(4, "Metadata v12"),
        line(5, "Fetch v13"),
        line(6, "Metadata v12"),
    ]

    assert [row[0] for row in shown(lines)] == ["1.000", "3.000", "4.000", "… 6 exchanges in all, 1 with the fault"]


def test_where_the_fault_acted_on_no_exchange_only_errors_are_told() -> None:
    """The first exchanges of a run say nothing about a rule that slices bytes."""
    told = shown([line(1), line(2, state="NOT_LEADER_OR_FOLLOWER"), line(3)])

    assert [row[-1] for row in told] == ["orders  NOT_LEADER_OR_FOLLOWER", "… 3 exchanges in all, 0 with the fault"]


def test_a_runs_own_topic_is_named_and_others_are_counted() -> None:
    """A cluster has the topics of all runs, and clients ask for all of them."""
    asked = [{"topic": name, "partitions": [{"partition": 0}]} for name in ("run1-topic", "run11-topic", "run2-topic")]

    assert said({"topics": asked}, "run1-topic") == "run1-topic[0] 2 other topics"
    assert said({"group": "run1-group"}, "run1-topic") == "group:run1-group"
    assert said({}, "run1-topic") == ""
