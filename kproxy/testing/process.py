"""A child process that keeps its output in a file, and never outlives the one that started it."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from kproxy.errors import InternalError

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PRCTL = ctypes.CDLL(None).prctl  # looked up here: between fork and exec nothing may take a lock


def children_of(pid: int) -> list[int]:
    """Return the ids of the live processes that this one has started, in ascending order, such as a proxy's workers; an
    empty list when it is gone."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return sorted(map(int, listed.split()))


def begin(
    command: Sequence[str], output: BinaryIO, env: Mapping[str, str], cwd: Path | None
) -> subprocess.Popen[bytes]:
    """Start a command that writes to `output`, and return its process."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=env,
        cwd=cwd,
        preexec_fn=_die_with_parent if _in_main_thread() else None,  # noqa: PLW1509 -- one system call, no locks
    )


class Child:
    """A running child process. `log` holds its standard output and error, that of earlier starts included.

    Killed when this process exits, even by SIGKILL when it was started from the main thread (the kernel's parent
    death signal follows the thread that started it).
    """

    def __init__(
        self, command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.command, self.log = list(command), log
        with log.open("ab") as output:
            self._process = begin(self.command, output, {**os.environ, **(env or {})}, cwd)
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        """Return the id of the child process."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Return the exit code; below zero for a signal; None while the process runs."""
        return self._process.poll()

    def tail(self, lines: int = 40) -> str:
        """Return the last lines that the process wrote; an empty string once the file was removed."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def signal(self, number: int) -> None:
        """Send a signal to the child process."""
        self._process.send_signal(number)

    def wait_until(self, ready: Callable[[], bool], timeout: float, what: str) -> None:
        """Return once `ready()` holds. Raises InternalError with the last lines of the log if the process ends before,
        or after `timeout` seconds."""
        limit = time.monotonic() + timeout
        while not ready():
            if self.returncode is not None:
                raise InternalError(f"{what} ended with exit code {self.returncode}:\n{self.tail()}")
            if time.monotonic() > limit:
                raise InternalError(f"{what} was not ready within {timeout:g} s:\n{self.tail()}")
            time.sleep(0.02)

    def stop(self, timeout: float = 20) -> int:
        """Send SIGTERM, then SIGKILL after `timeout` seconds. Return the exit code."""
        if self.returncode is None:
            self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout: float) -> int:
        """Wait for the end of the process and return its exit code; kill it when it has not ended after `timeout`
        seconds."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        atexit.unregister(self.kill)
        return self._process.wait()

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the process."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends."""
    _PRCTL(_PR_SET_PDEATHSIG, 9)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
