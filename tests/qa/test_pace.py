"""Bounds of time in tests: for the machine as it is, and for async tests that would wait for ever."""

from __future__ import annotations

import pytest
import trio

from tests.conftest import in_time
from tests.support import pace


def test_a_bound_holds_as_it_stands_where_the_machine_is_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "USUAL", 1e9)
    assert pace.slowness() == 1.0
    assert pace.within(0.05, 0.05)
    assert not pace.within(0.051, 0.05)


def test_a_slow_machine_has_more_and_at_most_four_times_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "USUAL", 1e-9)
    assert pace.within(0.2, 0.05)
    assert not pace.within(0.201, 0.05)


def test_what_is_within_its_bound_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "slowness", pytest.fail)
    assert pace.within(0.05, 0.05)


@pytest.mark.trio
async def test_an_async_test_that_waits_for_ever_ends_by_itself() -> None:
    with pytest.raises(trio.TooSlowError):
        await in_time(trio.sleep_forever, 0.01)()
