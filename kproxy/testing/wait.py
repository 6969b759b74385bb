"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float = 20) -> T:
    """What `condition()` gives as soon as that is true. Raises AssertionError after `seconds`."""
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, f"not true within {seconds:g} s"
        time.sleep(0.01)
    return found
