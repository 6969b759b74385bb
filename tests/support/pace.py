"""Limits of CPU time for tests with the marker `measured`, adapted to the present speed of the machine.

A limit is for a usual server of 2024 without other work. A virtual machine on a busy host has half or a third of that
speed. So a time over its limit is compared with the time of a known piece of work, measured at the same moment
(docs/decisions/0034).
"""

from __future__ import annotations

import gc
from time import thread_time

TURNS = 20_000
USUAL = 0.0023
"""Seconds of CPU that `TURNS` of the work below take on a usual server with nothing else to do (Python 3.11)."""
MOST = 4.0
"""Maximum factor: on a slower machine a time proves nothing."""
TRIES = 5


class _Place:
    def __init__(self) -> None:
        self.count = 0


def work(turns: int) -> int:
    """Do the usual work of sessions: look up in a table, slice bytes, set an attribute, call."""
    table, data, place = {number: number for number in range(64)}, bytes(range(256)), _Place()
    for turn in range(turns):
        place.count += table[turn & 63] + len(data[turn & 127 : 200])
    return place.count


def slowness() -> float:
    """Return the factor by which this machine is slower than usual now, from 1 to `MOST`."""
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
    """Return True if `seconds` of CPU time are within `bound`, multiplied by the slowness of this machine."""
    return seconds <= bound or seconds <= bound * slowness()
