"""Event files on disk: their names, one that lines are appended to, and the mark of the process that writes.

    <dir>/dt=2026-11-21/host-5b0c1e2f-0-000000000001.ndjson.gz    published
    <dir>/.host-5b0c1e2f-0-000000000001.ndjson.tmp                being written, or waiting for its compression
    <dir>/.host-5b0c1e2f-0-000000000001.ndjson.gz.tmp             being compressed
    <dir>/.host-5b0c1e2f-0-000000000001.ndjson.gz                 compressed, to be published
    <dir>/.host-5b0c1e2f-0-000000000001.ndjson.bad                left behind, and not to be understood
    <dir>/.host-5b0c1e2f-0.session                                its process lives, or has not ended in order
    <dir>/.host-5b0c1e2f-0.session.tmp                            it is about to live

A name has the instance, the first 8 digits of the boot's uuid, the worker, and the number of the first event. Spark,
globs and `ls` pass over dots.

Strategy: `OpenFile` has whole lines at its end, whatever the disk did in between. `size` is the end of the last write
that succeeded and `synced` that of the last sync. What a failed write has left behind them is cut off before the next
one. After a failed sync nobody knows what is on the disk: the kernel may have marked the pages as clean, so that a
second sync would succeed without them (the PostgreSQL people's finding of 2018). So the file goes back to `synced`, and
its owner, who keeps the lines until then, writes them again.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kproxy.base.system import lock

OPEN, PACKING, PACKED, BAD = ".ndjson.tmp", ".ndjson.gz.tmp", ".ndjson.gz", ".ndjson.bad"
SESSION, NEW_SESSION = ".session", ".session.tmp"
BOOT_DIGITS = 8  # of 32: enough to tell the starts of one instance apart
LONGEST_INSTANCE = 200  # bytes; file systems allow names of 255, and the rest of the name takes 41


@dataclass(frozen=True)
class WriterIdentity:
    """Identity of a process that writes events: `boot` is a uuid made at each start, `worker` the process's number."""

    instance: str
    boot: str
    worker: int = 0

    @classmethod
    def of(cls, source: str) -> WriterIdentity:
        instance, boot, worker = source.rsplit("/", 2)
        return cls(instance, boot, int(worker))

    @property
    def source(self) -> str:
        """Return the `source` of the process's events: instance/boot/worker."""
        return f"{self.instance}/{self.boot}/{self.worker}"

    @property
    def stem(self) -> str:
        """Return the beginning of the names of its files; an underscore stands for what a file name should not have."""
        instance = re.sub(r"[^A-Za-z0-9.-]", "_", self.instance).lstrip("._") or "kproxy"
        return f"{instance[:LONGEST_INSTANCE]}-{self.boot.replace('-', '')[:BOOT_DIGITS]}-{self.worker}"


def file_stem(session: str, first_id: int) -> str:
    """Return a file's name without what shows its state."""
    return f"{session}-{first_id:012d}"


def session_of(stem: str) -> str:
    """Return the stem of the process that a file belongs to."""
    return stem.rpartition("-")[0]


def hidden(folder: Path, stem: str, ending: str) -> Path:
    return folder / f".{stem}{ending}"


def published(folder: Path, day: str, stem: str) -> Path:
    return folder / f"dt={day}" / f"{stem}{PACKED}"


def stem_of(path: Path, ending: str) -> str:
    return path.name[1 : -len(ending)]


MODE = 0o640
"""Permissions of event files: the group may read them, others may not."""

ATTEMPTS = 100
"""Times that a mark is made anew. Another process that starts at the same moment may look at it before it is locked,
take it for a dead one's and delete it; several workers start at the same moment."""


class OpenFile:
    """Event file of this process that lines are appended to.

    Opened on construction, and locked for as long as it is open, so that no recovery touches it. Raises OSError.
    """

    def __init__(self, folder: Path, stem: str, day: str) -> None:
        self.stem, self.day = stem, day
        self.path = hidden(folder, stem, OPEN)
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, MODE)
        self.size = self.synced = 0
        self._torn = False
        self._known = False
        try:
            lock(self.fd)
        except OSError:
            self.remove()
            raise

    def append(self, data: bytes) -> None:
        """Write all of the data, or raise OSError and count none of it."""
        self.repair()
        rest = memoryview(data)
        self._torn = True
        while rest:
            rest = rest[os.write(self.fd, rest) :]
        self._torn = False
        self.size += len(data)

    def sync(self) -> None:
        """Sync what was appended to the disk.

        Raises OSError; `size` is back at `synced` then, and what came since has to be appended again.
        """
        self.repair()
        try:
            os.fsync(self.fd)
            if not self._known:
                sync_folder(self.path.parent)
        except OSError:
            self.size, self._torn = self.synced, True
            raise
        self.synced, self._known = self.size, True

    def repair(self) -> None:
        """Cut off what a failed write or sync has left, if there is any."""
        if self._torn:
            os.ftruncate(self.fd, self.size)
            self._torn = False

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Release the lock; the file stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def sync_folder(folder: Path) -> None:
    """Sync the names that were made or changed in a folder to the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class ProcessMark:
    """Mark of this process: a small file, locked as long as it lives and deleted when it ends in order.

    So an unclean end is found even when no event file was open at that moment, and a file of a living process is told
    from one of a dead process without guessing from process ids. The lock goes with the process, however it ends. The
    mark gets its name when it is locked and written, so a mark that is not locked is always that of a dead process.
    Made on construction. Raises OSError.
    """

    def __init__(self, folder: Path, identity: WriterIdentity) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = hidden(folder, identity.stem, SESSION)
        for left in reversed(range(ATTEMPTS)):
            try:
                self._make(folder, identity)
                return
            except (BlockingIOError, FileNotFoundError):
                if not left:
                    raise

    def _make(self, folder: Path, identity: WriterIdentity) -> None:
        unborn = hidden(folder, identity.stem, NEW_SESSION)
        self._fd = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_TRUNC, MODE)
        try:
            lock(self._fd)
            os.write(self._fd, identity.source.encode() + b"\n")
            os.fsync(self._fd)
            unborn.rename(self.path)
            sync_folder(folder)
        except OSError:
            self.close()
            raise

    def end(self) -> None:
        """Delete the mark, once nothing was left behind. Raises OSError."""
        self.path.unlink(missing_ok=True)
        self.close()
        sync_folder(self.path.parent)

    def close(self) -> None:
        """Release the lock; the mark stays, and the next start finds it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def lock_if_ended(path: Path) -> int | None:
    """Return the descriptor of a file of a process that has ended, locked; None if it lives, or the file is gone."""
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    with suppress(BlockingIOError):
        lock(fd)
        if os.fstat(fd).st_nlink:  # else another one has recovered and deleted it in the meantime
            return fd
    os.close(fd)
    return None
