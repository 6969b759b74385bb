"""The page of faults: each has its number, its kinds, and rules that can be loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from kproxy.rules.document.read import parse_rules
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule

PAGE = Path(__file__).parent.parent / "docs" / "faults.md"
SCENARIO = "scenario"


class Row(NamedTuple):
    """One line of the table."""

    number: int
    kinds: list[str]
    rules: list[str]


def rows() -> list[Row]:
    """The table."""
    found = []
    for line in PAGE.read_text().splitlines():
        if re.match(r"\| [0-9]+ \|", line):
            number, _, kinds, rules = (cell.strip() for cell in line.strip("|").split(" | "))
            found.append(Row(int(number), re.findall("`([^`]+)`", kinds), re.findall("`([^`]+)`", rules)))
    return found


def test_all_faults_are_there() -> None:
    """Numbered in order, each once, the scenarios among them."""
    numbers = [row.number for row in rows()]

    assert numbers == list(range(1, len(numbers) + 1))
    assert [row.kinds for row in rows()].count([SCENARIO]) == 1


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row.number))
def test_each_fault_has_rules_that_load(row: Row) -> None:
    """The kinds exist, and the rules are of these kinds."""
    assert row.rules
    assert set(row.kinds) <= {*KINDS, SCENARIO}
    for rule in row.rules:
        if rule.startswith("scenario:"):
            assert parse_rules(rule).rules
        else:
            (parsed,) = parse_rules(f"rules: [{{name: r, {rule}}}]").rules
            assert parsed.kind in row.kinds


def test_every_fault_kind_is_on_the_page() -> None:
    """A kind that makes faults happen is the answer to some fault; docs/tables.py makes a row for a new one."""
    faults = {name for name, kind in KINDS.items() if issubclass(kind, LiveRule) and kind.family == "fault"}
    assert faults <= {kind for row in rows() for kind in row.kinds}
