"""The figures about the code's structure that must not get worse. `make house` prints all of them."""

from __future__ import annotations

import ast

import pytest

from tests.lab import house
from tests.lab.frame_costs import FIRES, OTHER, WAITS, Case


def traced(rules: str) -> Case:
    """Return a case under `rules` whose calls have been counted."""
    case = Case("traced", rules)
    case.trace()
    return case


def test_a_rule_that_waits_for_its_turn_is_not_evaluated() -> None:
    """A request like one before costs a rule about it the asking of its trigger, and no walk over the frame."""
    case = traced(WAITS)
    assert case.calls <= 30
    assert len(case.files) <= 8


def test_a_rule_about_another_topic_calls_nothing() -> None:
    """A request like one before that no rule is about goes its way as if there were no rules."""
    assert traced(OTHER).calls == traced("").calls


def test_an_error_that_fires_again_is_answered_as_before() -> None:
    """A request like one before that the same rule fails costs its trigger, and no evaluation."""
    case = traced(FIRES)
    assert case.calls <= 45
    assert len(case.files) <= 18


def test_error_rule_first_request_enters_few_files() -> None:
    """A fresh process also compiles the walk and the codec of the message, and enters as many files."""
    case = Case("first", FIRES, warm=0)
    case.trace()
    assert len(case.files) <= 44


def test_error_rule_second_request_is_not_evaluated() -> None:
    case = Case("second", FIRES, warm=1)
    case.trace()
    assert case.calls <= 50
    assert len(case.files) <= 15


def test_figure_above_its_limit_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house, "figures", lambda: {"files": house.LIMITS["files"][0] + 1})
    assert [message.partition(":")[0] for message in house.exceeded()] == ["files"]


def test_commit_subject_without_area_or_too_long_is_reported() -> None:
    right = ["docs: correct a limit", "cli, config: name the option", "x: " + "y" * 69]
    wrong = ["Correct a limit", "docs:correct", "x: " + "y" * 70, "Docs: correct"]
    messages = house.wrong_subjects([*right, *wrong])
    assert [message.split("got ")[1].split(" (at")[0] for message in messages] == [repr(one) for one in wrong]


def test_parts_of_a_folder_that_import_each_other_are_found() -> None:
    graph = {"kproxy.a.b.x": {"kproxy.a.c"}, "kproxy.a.c": {"kproxy.a.b.y"}, "kproxy.a.b.y": {"kproxy.d.e"}}
    assert house.cycles(house.parts(graph)) == [["a.b", "a.c"]]


def test_no_object_holds_itself_by_a_cache_of_its_answers() -> None:
    """Such a cache is of an `unheld` method: else the two stay until the garbage collector comes by."""
    found = [
        f"{module.path}:{node.lineno}"
        for module in house.read_modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Call)
        and ast.unparse(node.func.func).endswith("cache")
        and any(ast.unparse(one).startswith("self.") for one in node.args)
    ]

    assert found == []
