"""Rows for one viewer from one process: what fits its filter, as it passes, some at a time.

Strategy. Whoever reads asks for the next part when the one before is on its way, so that a page that does not read
stops the asking, and the viewer drops and counts. Rows are made here, a few milliseconds at a time, and at most ten
times a second. Who comes back after a break names the place up to which it has seen everything: what is kept and came
behind that is told first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import Protocol

import trio

from kproxy.record.filter.filter import Filter
from kproxy.record.filter.view import ExchangeView
from kproxy.record.live_view.pace import charged
from kproxy.record.live_view.parts import UNKNOWN, ViewPart
from kproxy.record.live_view.rows import joined
from kproxy.record.live_view.sink import Viewer
from kproxy.record.live_view.watch import ViewWatch
from kproxy.runtime.io.turns import in_turns

PAUSE = 0.1
"""Seconds between two parts: the eye takes them for one flow, and each costs a message to the page."""
MOST_ROWS = 2000
"""Rows in a second that one who looks may have."""
QUIET = 1.0
"""Seconds after which a part comes although there is nothing new: it says how many have matched."""
LONGEST_PART = 1 << 16
"""Bytes of rows in a part."""


class ViewSource(Protocol):
    """Rows of one member for one viewer, between `begin` and `end`."""

    async def begin(self) -> None:
        """Keep what fits: from now on nothing is missed. Raises Problem."""

    async def next(self) -> ViewPart:
        """Return the next part as soon as there is something, or after a while. Raises MemberGone."""

    def end(self) -> None: ...

    def spend(self, seconds: float) -> None:
        """Charge the view's budget of that process, if it is this one."""


class ProcessViewSource:
    """Rows of this process. `after`: the place from which on they are wanted; None: from now on."""

    def __init__(
        self, watch: ViewWatch, notify: Callable[[trio.Event], None], wanted: Filter, rows: int, after: int | None
    ) -> None:
        self.watch, self.notify, self.wanted, self.after = watch, notify, wanted, after
        self.something = trio.Event()
        self.viewer = Viewer(wanted, rows, watch.clock(), self.wake)
        self.backlog: deque[tuple[int, int]] = deque()
        """Place and number of what is kept and to be told first. The ring may let go of it before; what has another
        place by then waits for the viewer, too, and is told as that."""
        self.missing = 0
        self.told = 0.0

    def wake(self) -> None:
        """Wake the task that makes rows, with the first of several."""
        if len(self.viewer.waiting) == 1:
            self.notify(self.something)

    async def begin(self) -> None:
        self.watch.open(self.viewer)
        ring = self.watch.ring
        if self.after is None:
            return
        if ring.is_place(self.after):
            kept, self.missing = ring.behind_place(self.after)
        else:  # a place of another process that was here before
            kept, _ = ring.behind_place(ring.first - 1)
            self.missing = UNKNOWN
        self.backlog.extend((one.place, one.number) for one in kept)

    def end(self) -> None:
        self.watch.close(self.viewer)

    def spend(self, seconds: float) -> None:
        self.watch.budget.spend(seconds)

    async def next(self) -> ViewPart:
        return await charged(self.make_part(), self.spend)

    async def make_part(self) -> ViewPart:
        """Wait for something to show, and make rows of it."""
        await trio.sleep(max(0.0, self.told + PAUSE - monotonic()))
        if not self.backlog and not self.viewer.waiting:
            with trio.move_on_after(QUIET):
                await self.something.wait()
        self.something = trio.Event()
        self.told = monotonic()
        rows: list[bytes] = []
        await in_turns(self.make(rows))
        viewer, missing, self.missing = self.viewer, self.missing, 0
        if viewer.waiting:  # it is woken by the first of several only
            self.something.set()
        return ViewPart(
            self.place(), joined(rows) if rows else b"", viewer.matched, viewer.too_many, viewer.too_slow,
            self.wanted.unknown, self.wanted.why, missing,
        )  # fmt: skip

    def make(self, rows: list[bytes]) -> Iterator[None]:
        """Make rows until a part is full, one exchange a step."""
        size = 0
        while size < LONGEST_PART and (self.backlog or self.viewer.waiting):
            if self.backlog:
                place, number = self.backlog.popleft()
                found = self.watch.ring.get(number)
                if found is not None and found.place != place:
                    yield
                    continue
                fits = found is not None and self.wanted.holds(ExchangeView(found.seen, self.watch.whole))
                self.viewer.matched += fits and found is not None and found.over
                self.missing += found is None and self.missing != UNKNOWN
            else:
                found, fits = self.viewer.take(), True
            if fits and found is not None:
                rows.append(self.watch.row(found))
                size += len(rows[-1])
            yield

    def place(self) -> int:
        """Return the place up to which everything has been told."""
        left = [*(place for place, _ in islice(self.backlog, 1)), *(kept.place for kept in self.viewer.waiting)]
        return min(left) - 1 if left else self.watch.ring.place
