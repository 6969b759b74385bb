"""Histories of the table in tests/tools/verify/cases, played through `kproxy run` and verified from its capture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproxy.tools.verify.view import OF_MARKERS
from tests.tools.verify.cases.table import Case, cases
from tests.tools.verify.history import History, batch
from tests.tools.verify.played import Player, Unplayable, script

pytestmark = pytest.mark.process
PLAYED = [case for case in cases() if not case.memory_only]
SKETCHED = [case for case in PLAYED if case.level and "records" not in case.terms and not OF_MARKERS & set(case.checks)]
"""Broken histories whose violation is in fields and in headers of batches."""


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    with Player() as opened:
        yield opened


@pytest.mark.parametrize("case", PLAYED, ids=lambda case: case.name)
def test_verify_capture_of_history_as_expected(player: Player, case: Case) -> None:
    case.judge(player.verdict(case.history(), **case.terms))


@pytest.mark.parametrize("case", SKETCHED, ids=lambda case: case.name)
def test_verify_sketch_of_broken_history_as_expected(player: Player, case: Case) -> None:
    case.judge(player.verdict(case.history(), "sketch", **case.terms))


def test_script_overtaking_response_is_refused() -> None:
    history = History()
    history.write(1, batch(b"a"), 0, took=3)
    history.write(2, batch(b"b"), 1)
    with pytest.raises(Unplayable, match=r"expected responses in the order of requests, got another \(at exchange 4\)"):
        script(history)


def test_script_two_sides_are_refused() -> None:
    history = History()
    history.write(1, batch(b"a"), 0, behind=1)
    with pytest.raises(Unplayable, match=r"expected one exchange at both sides, got two \(at exchange 3\)"):
        script(history)
