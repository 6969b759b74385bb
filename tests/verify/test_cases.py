"""Histories of the table in tests/verify/cases, verified as they are: broken ones are found, lawful ones are not."""

from __future__ import annotations

from collections import Counter

import pytest

from kproxy.verify.checks import checks
from tests.verify.cases.table import Case, cases

ENOUGH = 2
"""Broken histories, and lawful ones, that each check has at least."""
INCOMPLETE: frozenset[str] = frozenset()
"""Checks that have fewer as yet. Remove a name once the check has its histories; none is to be added."""


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_verify_history_of_table_as_expected(case: Case) -> None:
    case.judge(case.history().verdict(**case.terms))


def test_table_each_check_has_broken_and_lawful_histories() -> None:
    found = Counter((check, case.level is None) for case in cases() for check in case.checks)
    few = {check for check in checks() for lawful in (True, False) if found[check, lawful] < ENOUGH}
    assert few - INCOMPLETE == set()
    assert INCOMPLETE - few == set(), "these have enough: remove their names"
