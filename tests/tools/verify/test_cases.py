"""Histories of the table in tests/tools/verify/cases, verified as they are: broken ones are found, lawful ones are
not."""

from __future__ import annotations

from collections import Counter

import pytest

from kproxy.cli.verify_input import over
from kproxy.tools.verify import VerifyTerms, verify
from kproxy.tools.verify.finding import checks
from tests.tools.verify.cases.table import Case, cases

ENOUGH = 2
"""Broken histories, and lawful ones, that each check has at least."""
INCOMPLETE: frozenset[str] = frozenset()
"""Checks that have fewer as yet. Remove a name once the check has its histories; none is to be added."""


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_verify_history_of_table_as_expected(case: Case) -> None:
    case.judge(case.history().verdict(**case.terms))


@pytest.mark.parametrize("case", [case for case in cases() if case.level is None], ids=lambda case: case.name)
def test_lawful_history_with_late_open_requests_proves_nothing(case: Case) -> None:
    """The record has a request without a response when its connection ends: after all that it may explain."""
    history = case.history()
    history.verdict()  # ends the history
    pairs = sorted(history.pairs, key=over)
    late = sorted(pairs, key=lambda pair: pair.front is not None and pair.front.answer is None)
    found = verify(late, VerifyTerms(**case.terms)).findings
    assert [one for one in found if one.level == "proved"] == []


def test_table_each_check_has_broken_and_lawful_histories() -> None:
    found = Counter((check, case.level is None) for case in cases() for check in case.checks)
    few = {check for check in checks() for lawful in (True, False) if found[check, lawful] < ENOUGH}
    assert few - INCOMPLETE == set()
    assert INCOMPLETE - few == set(), "these have enough: remove their names"
