"""Errands of the view, which wait in threads: requests to the proxy, details, files that are written."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from kproxy.base.errors import KproxyError

T = TypeVar("T")
MOST = 8
"""Errands that are under way at a time."""


class Errands:
    """Threads that do one thing each; `turn` calls, in the loop, what is to be done with what they bring.

    `failed` gets the message of a KproxyError or an OSError.
    """

    def __init__(self, failed: Callable[[str], None]) -> None:
        self.failed = failed
        self.done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.under_way = 0

    def start(self, what: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do `what` in a thread, then `then` with its result in the loop."""
        if self.under_way >= MOST:
            self.failed("what was asked before has not been answered yet")
            return
        self.under_way += 1

        def run() -> None:
            try:
                found = what()
            except (KproxyError, OSError) as error:
                why = str(error)
                self.done.put(lambda: self.failed(why))
            else:
                self.done.put(lambda: then(found))

        threading.Thread(target=run, name="view asks", daemon=True).start()  # the end of the program waits for none

    def turn(self) -> None:
        """Do what is to be done with all that threads have brought."""
        while not self.done.empty():
            self.under_way -= 1
            self.done.get()()
