"""Ctrl-C as the end of a reading: what was taken counts, and nothing is left half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import FrameType
from typing import TypeVar

Taken = TypeVar("Taken")


class Interruption:
    """Ctrl-C of a reading. `asked`: it has come. While the next item is waited for, it ends the wait; while one is
    worked on, it waits for that."""

    def __init__(self) -> None:
        self.asked = self.waiting = False

    def items(self, source: Iterable[Taken]) -> Iterator[Taken]:
        """Yield the items of a source up to its end, or to Ctrl-C."""
        if threading.current_thread() is not threading.main_thread():
            yield from source
            return
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            rest = iter(source)
            with suppress(KeyboardInterrupt, StopIteration):
                while not self.asked:
                    self.waiting = True
                    item = next(rest)
                    self.waiting = False
                    yield item
        finally:
            self.waiting = False
            signal.signal(signal.SIGINT, before)

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked = True
        if self.waiting:
            raise KeyboardInterrupt
