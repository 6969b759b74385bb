"""Long work in the event loop, a few milliseconds at a time."""

from __future__ import annotations

from collections.abc import Iterable
from time import thread_time

import trio

SLICE = 0.005
"""Seconds of CPU, after which all others have their turn."""
PAUSE = 0.0005
"""Seconds: long enough that the reactor polls its sockets, which it does when no trio task can run."""


async def in_turns(steps: Iterable[object]) -> None:
    """Go through the steps, each of which is short, and let other tasks run now and then."""
    until = thread_time() + SLICE
    for _ in steps:
        if thread_time() > until:
            await trio.sleep(PAUSE)
            until = thread_time() + SLICE
