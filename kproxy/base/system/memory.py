"""Memory that comes as whole pages, zeroed by the kernel when they are first written to."""

from __future__ import annotations

import mmap

PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None)


def pages(size: int) -> mmap.mmap:
    """Return so many zero bytes. They are private where there is a choice: shared pages, which mmap takes unless it is
    told, cost three times as much to be given back, and half as much again to be written to."""
    return mmap.mmap(-1, size, flags=PRIVATE) if PRIVATE else mmap.mmap(-1, size)


def give_back(buffer: mmap.mmap, start: int, size: int) -> None:
    """Give these bytes back to the kernel; on Windows they go with the rest, when nobody has the buffer any more."""
    if DONTNEED is not None:
        buffer.madvise(DONTNEED, start, size)
