"""The reading of a source: one thread whose events count, and the next, which has not begun yet.

So the old filter stays in force until the new one is right: another reading takes the place of the old one with its
first event, and is forgotten when it is refused before that.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator

from .sources import SourceEvent, SourceThread


class Readers:
    """Readers of a source: the present one, and the next."""

    def __init__(self) -> None:
        self.present: SourceThread | None = None
        self.next: SourceThread | None = None

    def begin(self, reader: SourceThread) -> None:
        """Start a reader that takes the place of the present one when it has begun."""
        if self.next is not None:
            self.next.stop()
        self.next = reader
        reader.start()

    def step(self) -> None:
        """Let the next reader take the place of the present one."""
        if self.present is not None:
            self.present.stop()
        self.present, self.next = self.next, None

    def stop(self) -> None:
        """Stop all readers, and forget them."""
        for reader in (self.present, self.next):
            if reader is not None:
                reader.stop()
        self.present = self.next = None

    def events(self, until: float) -> Iterator[tuple[SourceThread, SourceEvent]]:
        """Yield the events that wait, with their readers, as long as the monotonic clock is before `until`."""
        for reader in (self.next, self.present):
            while reader is not None and time.monotonic() < until:
                try:
                    yield reader, reader.events.get_nowait()
                except queue.Empty:
                    break
