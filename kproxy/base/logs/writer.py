"""Writing of log lines to standard error: lines stay whole, and a thread writes them, so that no client waits for it.

Strategy. A pipe that nobody reads takes 64 KiB, and then a process that writes to it stops: it serves no client and
does not even handle SIGTERM. So a line is put into a bounded queue, and a thread writes what is in it. Lines that do
not fit are counted, and a line tells their number once there is room again. At the end the thread has a moment to write
what is left.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from time import sleep
from typing import Protocol, TextIO

from kproxy.base.system.files import fcntl

PATIENCE, TICK = 20, 0.001
"""Tries to get the lock while another process writes its line, and seconds between two; a line takes microseconds."""
MOST_BYTES = 4 << 20
"""Characters of all lines that wait to be written, at most; some ten thousand lines."""
AT_ONCE = 1 << 16
"""Characters, about, that are written together."""
FAREWELL = 1.0
"""Seconds at the end to write what still waits: a reader who has read nothing until then will not begin now."""


class TextStream(Protocol):
    """Stream of text that a log queue writes to."""

    def write(self, text: str) -> int: ...
    def isatty(self) -> bool: ...


class WholeLines:
    """Stream to which several processes write, and whose lines stay whole.

    A pipe keeps 4096 bytes together, and tracebacks are longer. So a process that writes holds a record lock on `lock`,
    a file that all of them have open; the kernel frees it when a process dies. A process that is stopped while it holds
    the lock must not stop the others: they wait a little, and then a torn line is the smaller evil. `lock` is None
    where only one process writes.
    """

    def __init__(self, stream: TextIO, lock: int | None = None) -> None:
        self.stream, self.lock = stream, lock
        self.descriptor = stream.fileno()
        self.line = ""

    def isatty(self) -> bool:
        return self.stream.isatty()

    def write(self, text: str) -> int:
        """Write whole lines, and keep what has no end yet. Raises OSError."""
        self.line += text
        if text.endswith("\n"):
            data, self.line = self.line.encode(errors="backslashreplace"), ""
            held = self._hold()
            try:
                write_all(self.descriptor, data)
            finally:
                if held:
                    fcntl.lockf(self.lock or 0, fcntl.LOCK_UN)
        return len(text)

    def flush(self) -> None:
        """Do nothing: `write` keeps no whole line back."""

    def _hold(self) -> bool:
        if self.lock is None:
            return False
        for _ in range(PATIENCE):
            try:
                fcntl.lockf(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                sleep(TICK)
            else:
                return True
        return False


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes to a descriptor, which another process may have made non-blocking. Raises OSError."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


class LogQueue:
    """Stream whose `write` never waits: its lines are queued, and a thread writes them to `stream`.

    `lost` counts the lines that did not fit, or could not be written. The thread calls `on_lost(number)` when lines can
    be written again after some were lost; a line that this function logs goes through the same queue.
    """

    def __init__(self, stream: TextStream, most_bytes: int = MOST_BYTES) -> None:
        self.stream, self.most_bytes = stream, most_bytes
        self.on_lost: Callable[[int], object] = lambda number: None
        self.lost = self.untold = self.bytes = 0
        self.lines: deque[str] = deque()
        self.changed = threading.Condition()  # reentrant, since a finaliser may log while this thread holds it
        self.closing = False
        self.thread: threading.Thread | None = None

    def isatty(self) -> bool:
        return self.stream.isatty()

    def write(self, text: str) -> int:
        """Put a whole line, or several, into the queue; a text that does not fit is lost."""
        size = len(text)
        with self.changed:
            if self.closing or self.bytes + size > self.most_bytes:
                self.lose(1)
                return size
            self.lines.append(text)
            self.bytes += size
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, name="log", daemon=True)
                self.thread.start()
            self.changed.notify()
        return size

    def flush(self) -> None:
        """Do nothing: the thread writes each line soon."""

    def close(self, timeout: float = FAREWELL) -> bool:
        """Write what is left within `timeout` seconds. Returns True if all of it was written."""
        with self.changed:
            self.closing = True
            self.changed.notify()
        if self.thread is None:
            return True
        self.thread.join(timeout)
        return not self.thread.is_alive()

    # ---- the thread

    def run(self) -> None:
        while True:
            with self.changed:
                while not self.lines and not self.closing:
                    self.changed.wait()
                if not self.lines:
                    return
                batch, size = self.lines.popleft(), 1
                while self.lines and len(batch) < AT_ONCE:
                    batch += self.lines.popleft()
                    size += 1
            try:
                self.stream.write(batch)
                told = 0
            except (OSError, ValueError):  # ValueError: it was closed
                told = size
            with self.changed:
                self.bytes -= len(batch)
                if told:
                    self.lose(told)
                untold, self.untold = (self.untold, 0) if not told else (0, self.untold)
            if untold:
                self.on_lost(untold)

    def lose(self, number: int) -> None:
        self.lost += number
        self.untold += number
