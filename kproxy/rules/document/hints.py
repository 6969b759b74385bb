"""How many of a document's mistakes are told with the nearest valid word.

To find it costs a comparison with every valid word, as much as a hundred other checks of a rule. So each document has
a number of hints, and mistakes beyond them go without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches

LONGEST_WORD = 100
"""Characters; no valid word has as many."""


class Hints:
    """Budget of hints that are left for one document."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self) -> bool:
        """Take one hint, and return True if there was one."""
        self.left -= 1
        return self.left >= 0


_current: ContextVar[Hints | None] = ContextVar("hints", default=None)
"""Hints of the document that is being checked; None: no document is, and there is no limit."""


@contextmanager
def counted(hints: Hints) -> Iterator[None]:
    """Take what is told inside, in this task or thread, from these hints."""
    before = _current.set(hints)
    try:
        yield
    finally:
        _current.reset(before)


def nearest(word: object, words: Iterable[str]) -> str | None:
    """Return the valid word that is most like this one, upper and lower case alike; None without one or a hint."""
    text, hints = str(word), _current.get()
    if len(text) > LONGEST_WORD or (hints is not None and not hints.spend()):
        return None
    by_folded = {valid.lower(): valid for valid in words}
    close = get_close_matches(text.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None
