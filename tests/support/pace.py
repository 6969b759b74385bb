"""Bounds of CPU time, for the machine that a test runs on as fast as it is at the moment.

A bound is written for a usual server of 2024 that does nothing else. A virtual machine on a busy host computes at half
or a third of that, for seconds or for a day, and a bound would tell of its neighbours instead of the code. So what is
over its bound is held against a piece of work of known length, measured in the same breath (docs/decisions/092).
"""

from __future__ import annotations

import gc
from time import thread_time

TURNS = 20_000
USUAL = 0.0023
"""Seconds of CPU that `TURNS` of the work below take on a usual server with nothing else to do (Python 3.11)."""
MOST = 4.0
"""A machine slower than this is none on which anything can be said about time."""
TRIES = 5


class _Place:
    def __init__(self) -> None:
        self.count = 0


def work(turns: int) -> int:
    """Do what sessions do most: look into a table, slice bytes, set an attribute, call."""
    table, data, place = {number: number for number in range(64)}, bytes(range(256)), _Place()
    for turn in range(turns):
        place.count += table[turn & 63] + len(data[turn & 127 : 200])
    return place.count


def slowness() -> float:
    """Return how many times as long as usual this machine takes for a piece of work now, from 1 to `MOST`."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        found = []
        for _ in range(TRIES):
            began = thread_time()
            work(TURNS)
            found.append(thread_time() - began)
    finally:
        if enabled:
            gc.enable()
    return min(MOST, max(1.0, sorted(found)[TRIES // 2] / USUAL))


def within(seconds: float, bound: float) -> bool:
    """Return True if so many seconds of CPU are no more than `bound` is on this machine now."""
    return seconds <= bound or seconds <= bound * slowness()
