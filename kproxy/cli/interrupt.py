"""Ctrl-C as the end of a command: of a reading, where what was taken counts and nothing is left half done, and of one
that serves until it is told to end."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

Taken = TypeVar("Taken")
ENDS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


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


class AwaitedEnd:
    """End of a command that serves, which comes by a signal or from any thread."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far = near, far

    def wait(self, timeout: float | None = None) -> bool:
        """Return True once the end has come, False after `timeout` seconds (None: no limit)."""
        return bool(select.select([self.near], [], [], timeout)[0])

    def come(self) -> None:
        """Have the end come now, from any thread."""
        with suppress(OSError):  # it has come already, and nobody waits any more
            self.far.send(b"\0")

    def come_with_standard_input(self) -> None:
        """Have the end come when standard input ends, from now on; what comes there is thrown away."""
        threading.Thread(target=self._read, name="standard input", daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError):
            while os.read(0, 65536):
                pass
        self.come()


@contextmanager
def awaited_end() -> Iterator[AwaitedEnd]:
    """Give the end of a command. SIGINT, SIGTERM and SIGHUP make it come; those that the caller ignores stay ignored,
    such as SIGHUP below nohup."""
    near, far = socket.socketpair()
    with near, far:
        far.setblocking(False)
        wanted = [number for number in ENDS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, lambda *_: None) for number in wanted}
        wakeup = signal.set_wakeup_fd(far.fileno(), warn_on_full_buffer=False)
        try:
            yield AwaitedEnd(near, far)
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
