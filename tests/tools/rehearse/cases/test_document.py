"""Files of tests: every mistake at once, with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kproxy.tools.rehearse.cases.document import case_files, load_cases
from kproxy.tools.rehearse.cases.model import Case

RULES = "rules: [{name: slow, kind: delay, delay: 1s}, {name: r, kind: rename_topic, topics: {a: b}}]"


def test_all_mistakes_of_a_file_are_told_at_once(mistakes: Any) -> None:
    """Keys, words, fields of the protocol, values, names of rules: each at its line and column."""
    assert mistakes(
        RULES,
        """\
tests:
  - name: t
    stepps: []
    steps:
      - client: {api: Prodce}
      - client: {api: Produce, version: 99}
      - closed: rts
  - name: t
    steps:
      - client: {api: Heartbeat, version: 4, body: {group: g, generation_id: x, member_id: 7}}
        to_client: {body: {error_code: NOT_COORDINATR, throttle_time_ms: ">1"}}
        counts: {slw: {matched: 1}, r: {matched: 1}}
""",
    )[:3] == [
        'r.test.yaml:3:5: unknown key "stepps", did you mean "steps"? allowed: ' + ", ".join(Case.keys()),
        'r.test.yaml:5:23: unknown API "Prodce", did you mean Produce?',
        "r.test.yaml:6:41: expected versions 0-13 of Produce, got 99",
    ]


def test_mistakes_in_bodies_and_names_have_their_places(mistakes: Any) -> None:
    """Fields that the version lacks, values that do not fit, errors and rules that there are not."""
    found = mistakes(
        RULES,
        """\
tests:
  - name: t
    steps:
      - client: {api: Heartbeat, version: 4, body: {group: g, generation_id: x, member_id: 7}}
        to_client: {body: {error_code: NOT_COORDINATR, throttle_time_ms: ">x"}}
        counts: {slw: {matched: 1}, r: {matched: 1}}
  - {name: t, steps: [resume: r]}
""",
    )

    fields = "group_id, generation_id, member_id, group_instance_id"
    assert found == [
        f'r.test.yaml:4:53: unknown field "group", did you mean "group_id"? allowed: {fields}',
        'r.test.yaml:4:78: expected a whole number for generation_id, got text "x"',
        "r.test.yaml:4:92: expected text for member_id, got the number 7",
        'r.test.yaml:5:40: unknown error "NOT_COORDINATR", did you mean "NOT_COORDINATOR"?',
        "r.test.yaml:5:74: expected a number or a range such as 0-11 or >=4, got '>x'",
        'r.test.yaml:6:18: unknown rule "slw" that has counters, did you mean "slow"?',
        'r.test.yaml:6:37: unknown rule "r" that has counters; there are: slow',
        'r.test.yaml:7:12: the name "t" is taken, in line 2',
        'r.test.yaml:7:31: unknown rule "r" that has counters; there are: slow',
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{generation_id: 3000000000}", "generation_id is an int32, the number 3000000000 does not fit"),
        ("{group_id: null}", "group_id is never null here"),
        ("{group_id: [a]}", "expected text for group_id, got a list"),
        ("{_tagged_fields: [a]}", 'expected a tag and its bytes, [10000, {hex: 00}], got text "a"'),
    ],
)
def test_values_that_do_not_fit(mistakes: Any, value: str, message: str) -> None:
    """Named with their field and what was found."""
    (found,) = mistakes(RULES, f"tests: [{{name: t, steps: [client: {{api: Heartbeat, version: 4, body: {value}}}]}}]")

    assert found.endswith(message)


def test_mistakes_of_the_rules_are_told_too(mistakes: Any) -> None:
    """A test cannot be played with rules that are wrong."""
    found = mistakes("rules: [{name: x, kind: dely}]", "tests: [{name: t, steps: [{wait: 1s}]}]")

    assert [line.partition(" ")[0] for line in found] == ["r.yaml:1:25:"]


def test_the_rules_are_those_beside_the_file_or_those_named(tmp_path: Path) -> None:
    """NAME.yaml for NAME.test.yaml; `rules:` names others, seen from the file."""
    (tmp_path / "a.yaml").write_text(RULES)
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.test.yaml").write_text("tests: [{name: t, steps: [{wait: 1s}]}]")
    (tmp_path / "sub" / "b.test.yaml").write_text("{rules: ../a.yaml, tests: [{name: t, steps: [{wait: 1s}]}]}")
    (tmp_path / "sub" / "b.yaml").write_text("rules: []")
    (tmp_path / ".hidden.test.yaml").write_text("")

    files = case_files([tmp_path])

    assert files == [tmp_path / "a.test.yaml", tmp_path / "sub" / "b.test.yaml"]
    assert [load_cases(file)[0].rules for file in files] == [(tmp_path / "a.yaml",), (tmp_path / "sub" / "../a.yaml",)]


def test_rules_that_are_not_there_are_a_mistake(tmp_path: Path, mistakes: Any) -> None:
    """Said where they are named."""
    (found,) = mistakes(RULES, "{rules: none.yaml, tests: [{name: t, steps: [{wait: 1s}]}]}")

    assert found.endswith('there is no file "none.yaml"')
