"""Flags that files are opened with, and their locks, of which Windows has none like these.

`os.open` makes descriptors that no other program inherits, so nothing needs O_CLOEXEC.
"""

from __future__ import annotations

import os

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["BINARY", "HAS_LOCKS", "NO_LINK", "UNKNOWN", "fcntl", "lock"]

BINARY: int = getattr(os, "O_BINARY", 0)
"""Bytes are read and written as they are; Windows would take them for lines of text."""
UNKNOWN: int = BINARY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
"""For a name that may lead to a pipe or a terminal, where opening must neither wait nor make it this process's own."""
NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
"""For a name that must not lead to another file."""

HAS_LOCKS = fcntl is not None
"""Files can be locked, and the lock goes with the process however it ends."""


def lock(fd: int, *, wait: bool = False) -> None:
    """Lock an open file as this process's own until it is closed; without `wait` BlockingIOError if another one has it.
    Does nothing where there are no locks."""
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
