"""Differences of files and processes between Linux, macOS and Windows: open flags, file locks, limits.

Each feature is detected by its presence, never by the system's name. A missing constant is 0, -1 or None.
`os.open` makes descriptors that child processes do not inherit, so no flag here is O_CLOEXEC.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from typing import Any

try:
    import fcntl
    import resource
except ImportError:  # Windows has neither
    fcntl = None  # type: ignore[assignment]
    resource = None  # type: ignore[assignment]

__all__ = ["fcntl", "resource"]  # imported names that other modules take from here

# ---- files

BINARY: int = getattr(os, "O_BINARY", 0)  # Windows converts line ends without it
UNKNOWN: int = BINARY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
"""Flags for a path that may lead to a pipe or a terminal: `open` does not wait, and no terminal takes control."""
NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
HAS_LOCKS = fcntl is not None


def lock(fd: int, *, wait: bool = False) -> None:
    """Lock an open file exclusively until it is closed or the process ends. No operation on Windows.

    Raises BlockingIOError if another process has the lock, unless `wait`.
    """
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


# ---- processes

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
KILL = 9
UNLIMITED = -1  # open files
SOME_FILES = 10240  # OPEN_MAX: macOS allows as many open files even if its limit is infinite
OPEN_FILES = ("/proc/self/fd", "/dev/fd")  # descriptors of this process, on Linux and on macOS


def _find_prctl() -> Any:
    """The C function; None if the system or its C library lacks it."""
    try:
        return ctypes.CDLL(None).prctl
    except (AttributeError, OSError, TypeError):
        return None


_PRCTL = _find_prctl()  # not at the call: between fork and exec a child must not take a lock
HAS_PRCTL = _PRCTL is not None
HAS_LIMITS = resource is not None
"""Processes have resource limits, and child processes can inherit descriptors."""
HAS_FORKS = HAS_PRCTL and hasattr(os, "memfd_create") and hasattr(os, "pidfd_open")
"""Processes can share memory and be awaited by descriptor, and their descendants can be reaped."""
HANGUP: int | None = getattr(signal, "SIGHUP", None)


def die_with_parent() -> None:
    """Let the kernel kill this process when the thread that started it ends. No operation without prctl."""
    if _PRCTL is not None:
        _PRCTL(PR_SET_PDEATHSIG, KILL)


def adopt_orphans() -> None:
    """Make this process the parent of its orphaned descendants (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    _PRCTL(PR_SET_CHILD_SUBREAPER, 1)


def lift_open_files(needed: int) -> int:
    """Raise the soft limit of open files to `needed`, at most to the hard limit. Returns the new soft limit."""
    if resource is None:
        return UNLIMITED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return UNLIMITED
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    for lifted in (wanted, min(wanted, SOME_FILES)):
        if soft < lifted:
            with suppress(ValueError, OSError):  # macOS has a second limit besides the hard one
                resource.setrlimit(resource.RLIMIT_NOFILE, (lifted, hard))
                soft = lifted
    return soft


def open_files() -> int:
    """Number of open descriptors of this process; 0 if the system does not list them."""
    for folder in OPEN_FILES:
        with suppress(OSError):
            return len(os.listdir(folder))
    return 0
