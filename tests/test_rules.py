"""The examples under rules/: each is right, each has tests, and all of these hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kproxy.cli import main
from kproxy.rules.document.read import read_document, rule_files
from kproxy.rules.kinds import KINDS
from kproxy.rules.values.source import Source
from kproxy.tools.rehearse.cases.document import case_files, load_cases

ROOT = Path(__file__).parent.parent
RULES = [path.relative_to(ROOT) for path in rule_files([ROOT / "rules"])]
TESTS = [path.relative_to(ROOT) for path in case_files([ROOT / "rules"])]


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_there_are_examples() -> None:
    """So that nothing below passes because nothing is there."""
    assert len(RULES) > 5 and len(TESTS) > 5


def test_most_kinds_have_an_example() -> None:
    """In a file of its own or beside others; each has one in its model (tests/rules/kinds/test_kinds.py)."""
    documents = [read_document(Source.open(ROOT / path)) for path in RULES]
    shown = {one.rule.kind for document in documents for one in document.parsed_rules if one.rule is not None}

    assert len(set(KINDS) - shown) < len(KINDS) / 10


@pytest.mark.parametrize("path", RULES, ids=str)
def test_each_example_has_tests(path: Path) -> None:
    """NAME.test.yaml beside NAME.yaml, which is about it."""
    beside = path.with_name(f"{path.stem}.test.yaml")

    assert beside in TESTS
    assert any(case.rules == (ROOT / path,) for case in load_cases(ROOT / beside))


@pytest.mark.parametrize("path", TESTS, ids=str)
def test_its_tests_hold(path: Path, root: None) -> None:
    """`kproxy test` says so."""
    result = CliRunner().invoke(main, ["test", str(path)])

    assert result.exit_code == 0, result.output


def test_all_of_them_in_one_go(root: None) -> None:
    """`kproxy test` without arguments runs those under rules/."""
    result = CliRunner().invoke(main, ["test"])

    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1].endswith(" passed")


def test_the_examples_together_are_right(root: None) -> None:
    """`kproxy check rules` finds no mistake, and no rule that can never act."""
    result = CliRunner().invoke(main, ["check", "rules"])

    assert result.exit_code == 0, result.output
    assert "can never act" not in result.output
