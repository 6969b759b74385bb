"""Files that users name, read by one function: rules, configs, users, secrets, certificates, states, frames.

A name can lead to anything: a device that never ends, a pipe that nobody writes to, a folder, a file of ten gigabytes.
Whatever it is, reading takes a bounded time and bounded memory, and the reason is said in words.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

from kproxy.system.files import UNKNOWN

MOST_BYTES = 4 << 20
"""Bytes of a document: some ten thousand rules. The admin API takes no more either."""

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def read_named(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """Return what is in a regular file of at most so many bytes. Raises OSError, whose `strerror` says why not."""
    try:
        number = os.open(path, os.O_RDONLY | UNKNOWN)
    except ValueError:
        raise OSError(errno.EINVAL, "its name has a NUL character") from None
    try:
        found = os.fstat(number)
        check_kind(found.st_mode)
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes, at most {most:,} are read")
        with open(number, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(number)
    if len(data) > most:  # the file has grown since, or is one of /proc, whose size is 0 there
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return data


def text_named(path: str | Path, most: int = MOST_BYTES) -> str:
    """Return the UTF-8 text of a file. Raises OSError, as `read_named`."""
    data = read_named(path, most)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise OSError(errno.EINVAL, f"it is not UTF-8 text: byte 0x{data[error.start]:02x} at {error.start}") from None


def open_named(path: str | Path) -> io.BufferedReader:
    """Open a file of any length, or a pipe that somebody writes to, for whoever reads it bit by bit. Raises OSError, as
    `read_named`."""
    try:
        number = os.open(path, os.O_RDONLY | UNKNOWN)
    except ValueError:
        raise OSError(errno.EINVAL, "its name has a NUL character") from None
    try:
        check_kind(os.fstat(number).st_mode, pipes=True)
    except OSError:
        os.close(number)
        raise
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(number, True)
    return open(number, "rb")


def check_kind(mode: int, *, pipes: bool = False) -> None:
    """Raise OSError for what is no regular file, and no pipe either where `pipes` are allowed."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode) and not (pipes and stat.S_ISFIFO(mode)):
        kind = next((name for test, name in _KINDS if test(mode)), "it")
        raise OSError(errno.EINVAL, f"{kind} is no regular file")


def reason(error: OSError) -> str:
    """Return what is wrong, in words for a message."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]
