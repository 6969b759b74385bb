"""Start and end of the process: closed standard streams, output errors, SIGINT and SIGTERM.

If a standard stream is closed, the next opened file gets its number: text for standard error would go to a socket. So
the null device takes closed numbers from 0 to 2 first. An unexpected OSError (usually a full disk under standard
output) is reported with exit code 1.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

import kproxy
from kproxy.base.terminal import printable
from kproxy.cli import main

_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def start() -> None:
    open_closed_streams()
    leave_current_folder()
    try:
        main(prog_name="kproxy")
    except OSError as error:
        drop_output()
        where = f"{error.filename}: " if error.filename is not None else ""
        fail(f"kproxy: {where}{(error.strerror or str(error)).lower()}")


def open_closed_streams() -> None:
    """Open the null device in place of each closed standard stream."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for number, (name, mode) in enumerate(_MODES.items()):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (open until the end)


def leave_current_folder() -> None:
    """Remove the current folder from the import path: other users, or kproxy itself, may be able to write to it.

    `python -m kproxy` and empty elements of PYTHONPATH add it. It stays if a non-empty element names it, or if it
    contains kproxy or Python's library.
    """
    named = (one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one)
    library = os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(kproxy.__file__))
    here = os.path.realpath(os.curdir)
    if here not in map(os.path.realpath, (*named, *library)):
        sys.path[:] = [one for one in sys.path if os.path.realpath(one) != here]


def drop_output() -> None:
    """Send buffered output to the null device: Python would try to write it again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def fail(message: str) -> None:
    """Print a message to standard error, if possible, and exit with code 1."""
    try:
        sys.stderr.write(f"{printable(message)}\n")
        sys.stderr.flush()
    except OSError:
        os._exit(1)  # standard error is full as well; a normal exit would try again
    sys.exit(1)


Taken = TypeVar("Taken")
ENDS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interruption:
    """Handler of Ctrl-C for a reading. `asked`: True after Ctrl-C. It interrupts the wait for the next item, but not
    the work on an item."""

    def __init__(self) -> None:
        self.asked = self.waiting = False

    def items(self, source: Iterable[Taken]) -> Iterator[Taken]:
        """Yield the items of a source until its end or Ctrl-C."""
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
    """End of a command that serves. A signal or any thread can trigger it."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far = near, far

    def wait(self, timeout: float | None = None) -> bool:
        """Return True once the end has come, False after `timeout` seconds (None: no limit)."""
        return bool(select.select([self.near], [], [], timeout)[0])

    def come(self) -> None:
        """Trigger the end. Any thread may call it."""
        with suppress(OSError):  # the end has already come, and the socket is closed
            self.far.send(b"\0")

    def come_with_standard_input(self) -> None:
        """Trigger the end when standard input ends; its content is discarded."""
        threading.Thread(target=self._read, name="standard input", daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError):
            while os.read(0, 65536):
                pass
        self.come()


@contextmanager
def awaited_end() -> Iterator[AwaitedEnd]:
    """Yield the end of a command. SIGINT, SIGTERM and SIGHUP trigger it. Signals that the caller ignores stay ignored,
    such as SIGHUP under nohup."""
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
