"""Kernel timer as a file descriptor, which an epoll set can hold.

A timeout given to epoll would be armed and disarmed by the kernel at each poll, which is dear on virtual machines; this
one is armed when a deadline moves. Python's `os` has it from 3.13 on only, hence ctypes.
"""

from __future__ import annotations

import ctypes
import os

CLOCK_MONOTONIC = 1  # linux/time.h: the clock of time.monotonic()
TFD_TIMER_ABSTIME = 1  # linux/timerfd.h
TFD_NONBLOCK, TFD_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC


class Timer:
    """Timer whose descriptor is readable from the time given to `set` on. Times are those of `time.monotonic()`."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._spec = (ctypes.c_long * 4)()  # interval s, ns; value s, ns
        self.fd: int = self._libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")

    def set(self, when: float | None) -> None:
        """Make it readable at `when` and after; None: never. A new setting makes it unreadable until its own time."""
        nanoseconds = 0 if when is None else max(1, int(when * 1e9))
        self._spec[2], self._spec[3] = divmod(nanoseconds, 1_000_000_000)
        self._libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, self._spec, None)

    def close(self) -> None:
        os.close(self.fd)
