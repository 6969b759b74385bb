"""Limits of what looking at traffic costs: seconds of a process, and rows of one who looks.

Strategy. Observers cost ten microseconds an exchange and more, which is as much as to carry it. So a process that looks
has a budget of seconds, from which all is paid that is done for views. When it is used up nothing is looked at any
more, until time has filled it again: at full load some hundred exchanges in a row, then a pause. What is left out is
counted by whoever asks (`ticks.py`), since nobody has seen it.
"""

from __future__ import annotations

from collections.abc import Callable

SHARE = 0.04
"""Seconds of each second that a process spends on looking at most: that is a viewer's rows of a second, and twice as
many exchanges that are counted only. Bytes to who looks, and what goes by unpaid, are another hundredth."""
PERIOD = 0.25
"""Seconds from one filling of the budget to the next: often enough that a list goes on, seldom enough that a connection
has time between beginning and end."""
LONGEST_CHARGE = 0.005
"""Seconds that one call is charged at most: one that took longer was put aside in the middle, and others ran."""
MOST_LEFT = SHARE
"""Seconds that a budget holds at most, those of one second: so that a client that comes to a quiet proxy and writes one
record is seen with all its requests, even where each takes as long as a charge may. The first second at full load costs
twice its share for that."""


class LookBudget:
    """Budget of seconds that a process may spend on looking. `turned(looking)` is called when it is used up, and when
    there is some again."""

    def __init__(self, turned: Callable[[bool], None], now: float, share: float = SHARE) -> None:
        self.turned, self.share = turned, share
        self.left = self.most = MOST_LEFT * share / SHARE
        self.filled = now
        self.looking = True
        self.paused = False
        """Whether something was left out since the last call of `ask`."""

    def spend(self, seconds: float) -> None:
        """Pay for what was done, and stop looking if that was the last."""
        self.left -= min(seconds, LONGEST_CHARGE)
        if self.left < 0.0 and self.looking:
            self.looking = False
            self.paused = True
            self.turned(False)

    def fill(self, now: float) -> None:
        """Fill the budget with what has become due, and look again if there is some."""
        self.left = min(self.most, self.left + (now - self.filled) * self.share)
        self.filled = now
        if self.left > 0.0 and not self.looking:
            self.looking = True
            self.turned(True)

    def ask(self) -> bool:
        """Return whether something was left out since the last call, or is now."""
        paused, self.paused = self.paused, not self.looking
        return paused


class RowBucket:
    """Bucket of the rows that one who looks gets in a second: `rows`, a quarter of them for what matters most."""

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
