"""Plans as rules, as files and as sentences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kproxy.base.errors import InputError
from kproxy.rules.document.read import read_document
from kproxy.rules.kinds.base.rule import LONGEST_NAME
from kproxy.rules.select.frame_match import FrameMatch
from kproxy.rules.values.source import Source
from kproxy.testing.explore.model import ExchangePlace, FaultPlan, PlaceMark, PlannedFault, dumps, loads
from kproxy.testing.explore.plan import fault_table, plan_of_file, plan_rules, plan_text, rule_file
from tests.testing.explore.made_up import commit, failed_run, plan, planned, produce, stable


def test_a_plan_is_a_rule_for_each_fault() -> None:
    """Ordinals count all requests, so that two faults do not move each other; offsets are selected."""
    write = stable([produce(1), produce(2)])[1]
    (at_four,) = stable([commit(4)])
    both = plan(planned("Produce", "answer lost", write), planned("OffsetCommit", "answer lost", at_four))
    assert plan_rules(both) == [
        {
            "name": "Produce #2 (out[0]) of app: the answer is lost",
            "kind": "disconnect",
            "close_with": "rst",
            "at": "response",
            "match": {"api": "Produce", "client_id": "app", "topic": "out", "partition": 0},
            "when": {"nth": 2, "count": "all"},
        },
        {
            "name": "OffsetCommit of 4 (g, in[0]) of app: the answer is lost",
            "kind": "disconnect",
            "close_with": "rst",
            "at": "response",
            "match": {
                "api": "OffsetCommit",
                "client_id": "app",
                "topic": "in",
                "partition": 0,
                "group": "g",
                "offset": 4,
            },
            "when": {"nth": 1, "count": "all"},
        },
    ]


def test_names_of_rules_are_different() -> None:
    """A plan with the same sentence twice has two rules all the same."""
    long = ExchangePlace("Produce", "c" * 80, topic="t" * 80, group="g" * 80)
    step = planned("Produce", "answer lost", long)
    other = planned("Produce", "answer lost", replace(long, group="g" * 90))
    names = [rule["name"] for rule in plan_rules(plan(step, other))]
    assert len(set(names)) == 2
    assert all(len(name) <= LONGEST_NAME for name in names)


HOSTILE = "a*b/\x1b[31m\u202e<b>\n'\"#{}é"


@pytest.mark.parametrize("name", [HOSTILE, "/regular/", "*", "plain", "a" * 400, "- x: [", "\ud800"])
def test_hostile_names_are_selected_exactly_and_shown_safely(name: str) -> None:
    """Whatever a client calls itself, the rule is for that client alone, and no terminal obeys its name."""
    place = ExchangePlace("Produce", name, mark=PlaceMark("ordinal", 1))
    chosen = plan(planned("Produce", "never arrives", place))
    text = plan_text(chosen)
    assert text.isprintable()
    if "\ud800" in name:
        return  # no file can have it
    document = read_document(Source("plan", rule_file(chosen, [f"of {name}"])))
    match = document.parsed_rules[0].rule.match
    assert isinstance(match, FrameMatch)
    (test,) = match.frame_tests
    assert test(Named(name))
    assert not test(Named(f"x{name}"))
    assert not test(Named("axb/"))


class Named:
    """An exchange that has nothing but a client id."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id


def test_sentences_say_where_and_what() -> None:
    """A plan is told in one line, and one without faults, too."""
    fetch = ExchangePlace("Fetch", "reader", topic="in", partition=0, mark=PlaceMark("offset", 2, 3))
    place = replace(fetch, api="Produce")
    assert plan_text(FaultPlan()) == "no fault"
    assert plan_text(plan(planned("Produce", "never arrives", place))) == (
        "Produce of 3 #2 (in[0]) of reader: the request never arrives"
    )


def test_what_travels_comes_back() -> None:
    """A run is the same when it has been JSON, and other bytes are an input error."""
    write = stable([produce(1)])[0]
    run = failed_run(plan(planned("Produce", "answer lost", write)))
    assert loads(dumps(run), type(run)) == run
    for wrong in (b"", b"{}", b"[" * 100_000, b'{"plan": {"steps": 1}, "ended": "passed"}', b'{"ended": "won"}'):
        with pytest.raises(InputError, match="ExploredRun"):
            loads(wrong, type(run))


ODD = ExchangePlace("Produce", "/a*b/", topic="or.ders?", partition=0, group="ü\\d", mark=PlaceMark("ordinal", 3))


@pytest.mark.parametrize("one_batch_per_fetch", [False, True])
def test_a_saved_file_is_read_as_its_plan(tmp_path: Path, one_batch_per_fetch: bool) -> None:
    """With each fault that there is, at places whose names look like patterns, and with several faults."""
    file = tmp_path / "found.yaml"
    steps = [PlannedFault(replace(ODD, api=fault.api), fault) for fault in fault_table().all]
    at_offset = replace(steps[0], place=replace(ODD, mark=PlaceMark("offset", 2, 0)))
    for saved in (*(plan(step) for step in steps), plan(steps[0], steps[5]), plan(at_offset)):
        file.write_text(rule_file(saved, ["a note"], one_batch_per_fetch))
        again, dripped = plan_of_file(file)
        assert (plan_rules(again), dripped) == (plan_rules(saved), one_batch_per_fetch)
        assert [step.fault.name for step in again.steps] == [step.fault.name for step in saved.steps]


@pytest.mark.parametrize(
    "rule",
    [
        "kind: delay, delay: 1s, match: {api: Produce}",
        "kind: disconnect, close_with: rst, at: response, match: {api: Produce}",
        "kind: disconnect, close_with: rst, at: response, match: {api: Produce}, when: {nth: 1}",
        "kind: disconnect, close_with: rst, at: response, match: {api: Fetch, listener: a}, when: {nth: 1, count: all}",
        "kind: disconnect, close_with: rst, at: response, match: {api: Fetch, topic: /a/}, when: {nth: 1, count: all}",
    ],
)
def test_other_rules_are_no_finding(tmp_path: Path, rule: str) -> None:
    """They are refused, and it is said who takes them."""
    file = tmp_path / "rules.yaml"
    file.write_text(f"rules:\n- {{name: x, {rule}}}\n")
    with pytest.raises(InputError, match="other rules than an exploration saves; kproxy run"):
        plan_of_file(file)
