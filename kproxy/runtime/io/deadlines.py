"""Heap of calls by the times at which they are due, and the kernel timer by which the reactor knows when to make them.

The timer is a file descriptor, which an epoll set can hold. A timeout given to epoll would be armed and disarmed by the
kernel at each poll, which is dear on virtual machines; this one is armed when a deadline moves. Python's `os` has it
from 3.13 on only, hence ctypes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

Callback = Callable[[], None]
FEW = 64
"""Cancelled entries up to which the heap is not searched for them, be they its majority or not."""

CLOCK_MONOTONIC = 1  # linux/time.h: the clock of time.monotonic()
TFD_TIMER_ABSTIME = 1  # linux/timerfd.h


class Deadline:
    """Handle of one call that is due at `when`; `call` is None once it was made or cancelled."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callback) -> None:
        self.when = when
        self.call: Callback | None = call


class Deadlines:
    """Heap of calls by times of `time.monotonic()`; equal times are called in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = count()
        self._cancelled = 0

    def add(self, when: float, call: Callback) -> Deadline:
        deadline = Deadline(when, call)
        heappush(self._heap, (when, next(self._order), deadline))
        return deadline

    def cancel(self, deadline: Deadline) -> None:
        """Withdraw the call. Cancelling twice, or after the call, does nothing."""
        if deadline.call is None:
            return
        deadline.call = None
        self._cancelled += 1
        if self._cancelled > FEW and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].call is not None]
            heapify(self._heap)
            self._cancelled = 0

    def next(self) -> float | None:
        heap = self._heap
        while heap and heap[0][2].call is None:
            heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def take(self, now: float) -> list[Callback]:
        """Take out all calls that are due. What they set in their turn waits for the next look, even if due at once."""
        calls = []
        while (when := self.next()) is not None and when <= now:
            deadline = heappop(self._heap)[2]
            if deadline.call is not None:
                calls.append(deadline.call)
            deadline.call = None
        return calls


class KernelTimer:
    """Timer whose descriptor is readable from the time given to `set` on. Times are those of `time.monotonic()`."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._spec = (ctypes.c_long * 4)()  # interval s, ns; value s, ns
        self.fd: int = self._libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")

    def set(self, when: float | None) -> None:
        """Make it readable at `when` and after; None: never. A new setting makes it unreadable until its own time."""
        nanoseconds = 0 if when is None else max(1, int(when * 1e9))
        self._spec[2], self._spec[3] = divmod(nanoseconds, 1_000_000_000)
        self._libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, self._spec, None)

    def close(self) -> None:
        os.close(self.fd)
