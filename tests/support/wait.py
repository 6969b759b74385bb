"""Functions that wait for a condition, never for a time, and measure a time on a machine that sometimes stands
still."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import TypeVar

import pytest

T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float = 60) -> T:
    """Wait until `condition()` is true, and return its value. Raises AssertionError after `seconds`."""
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, f"not true within {seconds:g} s"
        time.sleep(0.01)
    return found


def undisturbed(measure: Callable[[], T], times: int = 5) -> T:
    """Return the result of `measure()`, which is called again when it raises AssertionError or OSError, `times` times
    in all.

    For what holds only while no process is kept from the processor: that something takes no longer than so long, or
    is done before something else. What holds at any speed is asserted outside, where once is enough to fail.
    """
    for _ in range(times - 1):
        try:
            return measure()
        except (AssertionError, OSError):
            continue
    return measure()


def up_to(seconds: float) -> pytest.MarkDecorator:
    """Parametrize a test with `most`, the upper limit of a wall-clock time. `make stretches` alone has a limit."""
    return pytest.mark.parametrize(
        "most", [pytest.param(inf, id="any"), pytest.param(seconds, id="measured", marks=pytest.mark.measured)]
    )
