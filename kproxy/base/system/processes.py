"""Processes and the kernel's word to them: signals, limits, and who ends or inherits whom."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from typing import Any

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

__all__ = [
    "HANGUP",
    "HAS_FORKS",
    "HAS_LIMITS",
    "HAS_PRCTL",
    "UNLIMITED",
    "adopt_orphans",
    "die_with_parent",
    "lift_open_files",
    "open_files",
    "resource",
]

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
KILL = 9
UNLIMITED = -1
"""Number that stands for no limit of open files."""
SOME_FILES = 10240
"""Open files that macOS allows a process in any case (OPEN_MAX), also where its limit is infinite by name."""
OPEN_FILES = ("/proc/self/fd", "/dev/fd")
"""Folders with the descriptors of the process that looks: on Linux, and on macOS."""


def _find_prctl() -> Any:
    """Return the C function; None where there is no such call, or no C library that can be asked."""
    try:
        return ctypes.CDLL(None).prctl
    except (AttributeError, OSError, TypeError):
        return None


_PRCTL = _find_prctl()  # looked up here: between fork and exec nothing may take a lock
HAS_PRCTL = _PRCTL is not None
HAS_LIMITS = resource is not None
"""The kernel keeps limits of a process, and a process hands descriptors to those that it starts."""
HAS_FORKS = HAS_PRCTL and hasattr(os, "memfd_create") and hasattr(os, "pidfd_open")
"""Processes can share memory and be waited for by descriptors, and none of what they start can get away."""
HANGUP: int | None = getattr(signal, "SIGHUP", None)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends; do nothing where that cannot be."""
    if _PRCTL is not None:
        _PRCTL(PR_SET_PDEATHSIG, KILL)


def adopt_orphans() -> None:
    """Have the kernel make this process the parent of all that it has started, by however many steps, once their own
    parents have ended."""
    _PRCTL(PR_SET_CHILD_SUBREAPER, 1)


def lift_open_files(needed: int) -> int:
    """Lift the soft limit of open files to as many as are needed, as far as the hard limit allows; return what it is
    then, UNLIMITED for none."""
    if resource is None:
        return UNLIMITED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return UNLIMITED
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    for lifted in (wanted, min(wanted, SOME_FILES)):
        if soft < lifted:
            with suppress(ValueError, OSError):  # macOS has a limit beside the hard one
                resource.setrlimit(resource.RLIMIT_NOFILE, (lifted, hard))
                soft = lifted
    return soft


def open_files() -> int:
    """Return the number of descriptors that this process has open; 0 where that cannot be known."""
    for folder in OPEN_FILES:
        with suppress(OSError):
            return len(os.listdir(folder))
    return 0
