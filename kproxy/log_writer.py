"""Lines on their way to standard error: kept whole, and written by a thread, so that nothing waits for who reads them.

Strategy. A pipe that nobody reads takes 64 KiB, and then whoever writes to it stands still: all clients, and SIGTERM.
So a line is put into a bounded queue, and a thread writes what is in it. What does not fit is counted, and told in a
line once there is room again. At the end the thread has a moment to write what is left.
"""

from __future__ import annotations

import fcntl
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from time import sleep
from typing import Protocol, TextIO

PATIENCE, TICK = 20, 0.001
"""Looks at whether another process still writes its line, and seconds between two; a line takes microseconds."""
MOST_BYTES = 4 << 20
"""Of lines that wait to be written; some ten thousand lines."""
AT_ONCE = 1 << 16
"""Bytes, about, that are written together."""
FAREWELL = 1.0
"""Seconds at the end for what still waits: who has read nothing until then will not begin now."""


class Stream(Protocol):
    """What a queue writes to."""

    def write(self, text: str) -> int: ...
    def isatty(self) -> bool: ...


class WholeLines:
    """A stream to which several processes write: its lines stay whole.

    A pipe keeps 4096 bytes together, and tracebacks are longer. So whoever writes holds a record lock on `lock`, a file
    that all of them have; the kernel frees it when a process dies. A process that stands still with the lock must not
    stop the others: they wait a little, and then a torn line is the smaller evil. Without a lock there is one process.
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
        """Whole lines are written at once."""

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
    """Write all of it, to what may be non-blocking because another process has made it so. Raises OSError."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


class LogQueue:
    """A stream whose `write` never waits: a thread writes to `stream` behind it.

    `lost` counts the lines that did not fit, or could not be written. `on_lost(number)` is called by the thread when it
    goes on after some were lost; what it writes goes the same way.
    """

    def __init__(self, stream: Stream, most_bytes: int = MOST_BYTES) -> None:
        self.stream, self.most_bytes = stream, most_bytes
        self.on_lost: Callable[[int], object] = lambda number: None
        self.lost = self.untold = self.bytes = 0
        self.lines: deque[str] = deque()
        self.changed = threading.Condition()  # may be taken again by who has it: a finaliser may log while we do
        self.closing = False
        self.thread: threading.Thread | None = None

    def isatty(self) -> bool:
        return self.stream.isatty()

    def write(self, text: str) -> int:
        """Put a whole line, or several, into the queue; what does not fit is lost."""
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
        """The thread does that."""

    def close(self, timeout: float = FAREWELL) -> bool:
        """Write what is left, as far as that is possible in this time; return True if it was."""
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
