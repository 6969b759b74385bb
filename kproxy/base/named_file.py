"""Files that users name, read by one function: rules, configs, users, secrets, certificates, states, frames.

A name can lead to a device that never ends, a pipe without a writer, a folder, or a file of ten gigabytes. Reading
takes bounded time and bounded memory in each case. `PathGuard` adds the checks for names that come over the admin API.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from .system import UNKNOWN

MOST_BYTES = 4 << 20
"""Bytes of a document: some ten thousand rules. The admin API takes no more either."""

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


KERNEL_FOLDERS = ("/proc", "/dev", "/sys")
"""Folders of the kernel's file systems. Their entries are descriptors, devices and the state of processes."""
KERNEL_TYPES = frozenset(
    ("proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs")
)
"""File systems of the kernel, which can be mounted at any folder."""
MOUNTS = "/proc/self/mountinfo"
"""Mounts of this process, one a line (proc_pid_mountinfo(5)); only Linux has it."""
MOST_LINKS = 40
"""Symbolic links in one path, as in Linux (path_resolution(7))."""


class PathGuard:
    """Checks of the files that a document over the admin API names.

    It refuses paths through the kernel's folders, files without a name, and files that kproxy writes: those in
    `written` (files and folders), and the log where standard output or standard error is a file. Checks of the open
    file hold whatever happens to the path in between. Errors are OSErrors, and never contain the path.
    """

    def __init__(self, written: Iterable[str] = ()) -> None:
        self.named = frozenset(written)
        self.written = tuple(os.path.realpath(path) for path in self.named)

    def check_name(self, path: str | Path) -> None:
        """Follow a path link by link. Raises OSError if it enters a kernel folder, also through `..` or a link. The
        paths in `written` pass, as a document repeats them; `check_open` still refuses to read there."""
        if os.fspath(path) in self.named:
            return
        at, links = "/", 0
        rest = deque(os.path.join(os.getcwd(), os.fspath(path)).split(os.sep))
        while rest:
            part = rest.popleft()
            if part in ("", ".", ".."):
                at = os.path.dirname(at) if part == ".." else at
                continue
            here = os.path.join(at, part)
            if here.lower() in KERNEL_FOLDERS:  # lower: some file systems ignore case
                raise OSError(errno.EACCES, f"paths through {here.lower()} are not allowed over the admin API")
            try:
                target = os.readlink(here)
            except (OSError, ValueError):  # not a link, or missing
                at = here
                continue
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            at = "/" if target.startswith("/") else at
            rest.extendleft(reversed(target.split("/")))

    def check_open(self, number: int, path: str | Path) -> None:
        """Check the file behind a descriptor, which was opened at this path. Raises OSError."""
        found = os.fstat(number)
        if found.st_nlink == 0:
            raise OSError(errno.EACCES, "files without a name are not allowed over the admin API")
        if found.st_dev in self._kernel_devices:
            raise OSError(errno.EACCES, "files of the kernel's file systems are not allowed over the admin API")
        try:
            real = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # no procfs: the path itself is the best that there is
            real = os.path.realpath(path)
        self.check_name(real)
        key = found.st_dev, found.st_ino
        own = any(real == one or real.startswith(f"{one}{os.sep}") for one in self._all_written)
        if own or key in self._log_files or (found.st_nlink > 1 and key in self._written_files):
            raise OSError(errno.EACCES, "kproxy writes this file itself, expected one of an operator")

    @cached_property
    def _all_written(self) -> tuple[str, ...]:
        return (*self.written, *(f"{one}.new" for one in self.written))  # the state file is replaced by its .new

    @cached_property
    def _kernel_devices(self) -> set[int]:
        """Device numbers of the kernel's file systems, also of those mounted elsewhere, such as /host/proc."""
        found = set()
        for folder in ("/proc", "/sys"):  # /dev may be on the file system of /
            with suppress(OSError):
                found.add(os.stat(folder).st_dev)
        with suppress(OSError):
            for line in read_named(MOUNTS).decode(errors="replace").splitlines():
                mount, _, source = line.partition(" - ")
                if source.partition(" ")[0] in KERNEL_TYPES:
                    major, _, minor = mount.split(" ")[2].partition(":")
                    found.add(os.makedev(int(major), int(minor)))
        return found - {os.stat("/").st_dev}

    @cached_property
    def _log_files(self) -> set[tuple[int, int]]:
        found = set()
        for number in (1, 2):
            with suppress(OSError):
                status = os.fstat(number)
                if stat.S_ISREG(status.st_mode):
                    found.add((status.st_dev, status.st_ino))
        return found

    @cached_property
    def _written_files(self) -> set[tuple[int, int]]:
        """Identity of each file in the written folders: a hard link to one has the same."""
        found = set()
        for top in self.written:
            names = [top] if os.path.isfile(top) else [os.path.join(at, one) for at, _, n in os.walk(top) for one in n]
            for name in names:
                with suppress(OSError):
                    status = os.lstat(name)
                    found.add((status.st_dev, status.st_ino))
        return found


def read_named(path: str | Path, most: int = MOST_BYTES, guard: PathGuard | None = None) -> bytes:
    """Return the content of a regular file of at most `most` bytes. Raises OSError with the reason as `strerror`, also
    for a file that `guard` refuses."""
    try:
        if guard is not None:
            guard.check_name(path)
        number = os.open(path, os.O_RDONLY | UNKNOWN)
    except ValueError:
        raise OSError(errno.EINVAL, "its name has a NUL character") from None
    try:
        found = os.fstat(number)
        check_kind(found.st_mode)
        if guard is not None:
            guard.check_open(number, path)
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
    """Open a file of any length, or a pipe with a writer, for reading in pieces. Raises OSError, as `read_named`."""
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
    """Raise OSError unless the mode is that of a regular file, or of a pipe if `pipes`."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode) and not (pipes and stat.S_ISFIFO(mode)):
        kind = next((name for test, name in _KINDS if test(mode)), "it")
        raise OSError(errno.EINVAL, f"{kind} is no regular file")


def reason(error: OSError) -> str:
    """The error's text, in lower case for a message."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


BYTE_ORDER_MARK = "\ufeff"
LATIN = 0xFF
"""Last character of Latin-1, which headers are written in."""


def not_for_headers(text: str) -> str | None:
    """Return why a header cannot carry this text, or None. The reason contains no part of the text: it is a secret."""
    if text != text.strip():
        return "it begins or ends with a blank or a line end, which no header carries"
    for at, char in enumerate(text, 1):
        if not char.isprintable() or ord(char) > LATIN:
            return f"its character {at} is one that no header carries"
    return None
