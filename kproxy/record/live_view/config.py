"""The `view` section of the config (permissions of viewers at the admin address), and the budget of the view.

An observer costs at least ten microseconds for each exchange, as much as forwarding it. So the live view has a budget
of CPU seconds for a process, and of rows for a viewer. Observers, filters, rows, searches and the stream to the page
are charged. When the budget is used up, taps sleep until time has filled it again. At full load some hundred exchanges
in a row are observed, then none for a while. `watch.py` counts the omitted exchanges.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from time import thread_time
from types import coroutine
from typing import Any, TypeVar

from pydantic import Field

from kproxy.rules.values.model import Model
from kproxy.rules.values.quantities import ByteCount

LEAST_KEPT = 1 << 20
MOST_KEPT = 4 << 30


class ViewConfig(Model):
    """Settings of the live view of traffic in a page and in a terminal."""

    enabled: bool = Field(default=True, description="serve the view at the admin address")
    write: bool = Field(default=True, description="allow viewers to hold, edit and answer frames")
    records: bool = Field(default=True, description="show and search keys, values and headers of records")
    unmasked: bool = Field(
        default=False, description="show users of the full token the details of exchanges and tails without masks"
    )
    record_from_start: bool = Field(
        default=False, description="keep every exchange from the start, at any cost: for tests that query it afterwards"
    )
    buffer_size: ByteCount = Field(
        default=64 << 20,
        ge=LEAST_KEPT,
        le=MOST_KEPT,
        description="bytes of frames and rows that each process keeps for viewers (default: 64MiB); an exchange counts "
        "for 1,000 bytes more, and at most 20,000 are kept",
    )


T = TypeVar("T")

SHARE = 0.04
"""CPU seconds of each second for the live view. Two thirds of it make one viewer's rows at full load."""
PERIOD = 0.25
"""Seconds between two fillings of the budget: the list keeps moving, and connections have time to begin and end."""
LONGEST_CHARGE = 0.005
"""Seconds that one call is charged at most: a longer call was put aside in the middle, and others ran."""
MOST_LEFT = SHARE
"""Seconds that a full budget holds, the share of one second. It covers a client that comes to a quiet proxy and writes
one record, even if each of its requests takes the longest charge. At full load this is spent once, in the first second
after a quiet time."""
WAKE_UP = 1e-4
"""Seconds charged for each wake-up of a task, which trio's scheduler takes outside the task: 11.5 ms for 84 of them."""


class LookBudget:
    """CPU seconds that a process may spend on the live view. `turned(looking)` is called when the budget is used up,
    and when it has been filled again."""

    def __init__(self, turned: Callable[[bool], None], now: float, share: float = SHARE) -> None:
        self.turned, self.share = turned, share
        self.left = self.most = MOST_LEFT * share / SHARE
        self.filled = now
        self.looking = True
        self.paused = False
        """True if exchanges were omitted since the last call of `ask`."""

    def spend(self, seconds: float) -> None:
        """Pay for work, and stop sampling if the budget is used up."""
        self.left -= min(seconds, LONGEST_CHARGE)
        if self.left < 0.0 and self.looking:
            self.looking = False
            self.paused = True
            self.turned(False)

    def fill(self, now: float) -> None:
        """Fill the budget with the accrued amount, and resume sampling if some is left."""
        self.left = min(self.most, self.left + (now - self.filled) * self.share)
        self.filled = now
        if self.left > 0.0 and not self.looking:
            self.looking = True
            self.turned(True)

    def ask(self) -> bool:
        """Return whether something was left out since the last call, or is now."""
        paused, self.paused = self.paused, not self.looking
        return paused


@coroutine
def charged(
    work: Coroutine[Any, Any, T], spend: Callable[[float], None], clock: Callable[[], float] = thread_time
) -> Generator[Any, Any, T]:
    """Await `work`, and charge each of its steps. The time between two steps belongs to other tasks."""
    resume = partial(work.send, None)
    while True:
        begun = clock()
        try:
            trap = resume()
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            spend(clock() - begun + WAKE_UP)
        try:
            resume = partial(work.send, (yield trap))
        except BaseException as error:  # noqa: BLE001  # cancellation is raised inside `work`
            resume = partial(work.throw, error)


class RowBucket:
    """Token bucket of a viewer's rows: `rows` a second, a quarter of them for important exchanges only."""

    def __init__(self, rows: int, now: float) -> None:
        self.rows, self.kept_back = rows, rows // 4
        self.left, self.filled = float(rows), now

    def take(self, now: float, important: bool) -> bool:
        """Return True if there is room for a row, which is taken then."""
        self.left = min(self.rows, self.left + (now - self.filled) * self.rows)
        self.filled = now
        if self.left < 1.0 + (0 if important else self.kept_back):
            return False
        self.left -= 1.0
        return True
