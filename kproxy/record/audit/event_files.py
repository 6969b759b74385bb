"""Event files on disk: names, the open file, the mark of the writing process, and publication.

    <dir>/dt=2026-11-21/host-5b0c1e2f-0-000000000001.ndjson.gz    published
    <dir>/.host-5b0c1e2f-0-000000000001.ndjson.tmp                being written, or waiting for compression
    <dir>/.host-5b0c1e2f-0-000000000001.ndjson.gz.tmp             being compressed
    <dir>/.host-5b0c1e2f-0-000000000001.ndjson.gz                 compressed, to be published
    <dir>/.host-5b0c1e2f-0-000000000001.ndjson.bad                unreadable leftover
    <dir>/.host-5b0c1e2f-0.session                                its process runs, or had an unclean end
    <dir>/.host-5b0c1e2f-0.session.tmp                            the mark is being written

A name has the instance, the first 8 digits of the boot's uuid, the worker, and the number of the first event. Spark,
globs and `ls` skip names with a dot.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import cramjam

from kproxy.base.system import lock

from .event_sink import OutletCounters

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

OPEN, PACKING, PACKED, BAD = ".ndjson.tmp", ".ndjson.gz.tmp", ".ndjson.gz", ".ndjson.bad"
SESSION, NEW_SESSION = ".session", ".session.tmp"
BOOT_DIGITS = 8  # of 32: enough to distinguish the starts of one instance
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
        """Return the prefix of its file names. An underscore replaces each character that file names should not
        contain."""
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
"""Attempts to create a mark. Another process that starts at the same moment may look at it before it is locked, take it
for a dead one's and delete it; several workers start at the same moment."""


# `OpenFile` has whole lines at its end. `size` is the end of the last successful write and `synced` that of the last
# sync. The next write starts by cutting off the rest of a failed write. After a failed sync the state of the disk is
# unknown. The kernel may have marked the pages as clean, so a second sync would succeed without them (found for
# PostgreSQL in 2018). So the file goes back to `synced`. Its owner keeps the lines until then and writes them again.
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

    So recovery finds an unclean end even if no event file was open. It also distinguishes the files of living and dead
    processes without guessing from process ids. The lock goes with the process, however it ends. The mark gets its name
    when it is locked and written, so a mark that is not locked is always that of a dead process. Made on construction.
    Raises OSError.
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


CHUNK = 1 << 18
"""256 KiB at a time, which are packed without Python's lock."""

LEVEL = 1
"""Level of gzip: 525 MB/s, and 6 % of the size of lines about requests that are alike. Level 6 leaves 4 % and takes
seven times as long: 15 µs for a line, more than all else that is done for it (measured 2026-11-26)."""


def publish(folder: Path, stem: str, day: str, source: int | None) -> None:
    """Publish the open file `source`, or what an earlier attempt has packed. Raises OSError: try again later."""
    packed, target = hidden(folder, stem, PACKED), published(folder, day, stem)
    if source is not None and not packed.exists():
        _pack(source, hidden(folder, stem, PACKING))
        hidden(folder, stem, PACKING).rename(packed)
        sync_folder(folder)
    hidden(folder, stem, OPEN).unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        packed.rename(target)
    except FileNotFoundError:
        if not target.exists():
            raise
    sync_folder(target.parent)
    sync_folder(folder)


def _pack(source: int, target: Path) -> None:
    packer = cramjam.gzip.Compressor(LEVEL)
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE)
    try:
        offset = 0
        while chunk := os.pread(source, CHUNK, offset):
            offset += len(chunk)
            packer.compress(chunk)
            write_all(fd, bytes(packer.flush()))
        write_all(fd, bytes(packer.finish()))
        os.fsync(fd)
    except OSError:
        target.unlink(missing_ok=True)  # it may have filled the disk
        raise
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of the data, or raise OSError with some of it written."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


REASONS = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EFBIG: "disk_full",
    errno.EROFS: "read_only",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EIO: "io_error",
    errno.ENOENT: "folder_gone",
    errno.EMFILE: "too_many_files",
    errno.ENFILE: "too_many_files",
}


Job = Callable[[], None]
"""Raises OSError when it should be tried again."""


def reason_of(error: OSError) -> str:
    """Return why the system refuses a file as one word; `other`: `OutletCounters.last_error` has its text."""
    return REASONS.get(error.errno or 0, "other")


# `Publisher` is a thread that runs one job at a time, so that writes and syncs do not wait. A failed job is retried
# every few seconds, and later jobs wait: its cause, such as a full disk, concerns all. At exit the next start takes it
# over. Publication has five steps, each durable before the next. The lines always have exactly one valid place: the
# source, then the compressed file, then the published one. Consumers may do anything with published files, even delete
# them.
#
#     1. compress to …ndjson.gz.tmp, and sync it      a kill: the source is valid and is compressed again
#     2. rename it to .…ndjson.gz, sync the folder    a kill: the compressed file is valid, the source is deleted
#     3. delete the source                            a kill: the compressed file is published
#     4. rename it to dt=…/…ndjson.gz                 a kill: it is published
#     5. sync both folders                            a power cut before: it is compressed or published, never both
class Publisher:
    """Thread that does an outlet's jobs one after the other. `retry`: seconds between attempts."""

    def __init__(self, counters: OutletCounters, log: FilteringBoundLogger, retry: float) -> None:
        self.counters, self.log, self.retry = counters, log, retry
        self.backlog = 0
        """Jobs given and not done."""
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def do(self, job: Job) -> None:
        """Queue a job that the thread does after those before it."""
        with self._lock:
            self.backlog += 1
        self._jobs.put(job)

    @property
    def ended(self) -> bool:
        """Return True if the thread has ended."""
        return not self._thread.is_alive()

    def close(self, timeout: float) -> bool:
        """Do the jobs that are left, each once more; True if all were done within `timeout` seconds."""
        self._closing.set()
        self._jobs.put(None)
        self._thread.join(timeout)
        return self.ended and self.backlog == 0

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._try(job)

    def _try(self, job: Job) -> None:
        failed = False
        while True:
            last = self._closing.is_set()
            try:
                job()
            except OSError as error:
                self.counters.errors[reason_of(error)] += 1
                self.counters.last_error = str(error)
                if not failed:
                    self.log.warning(
                        "audit: files cannot be published or recovered, kproxy tries again", error=str(error)
                    )
                failed = True
                if last:
                    return
                self._closing.wait(self.retry)
                continue
            except Exception as error:
                self.counters.errors["mistake"] += 1
                self.counters.last_error = repr(error)
                self.log.error("audit: bug in kproxy, files cannot be published or recovered", exc_info=error)
                return
            with self._lock:
                self.backlog -= 1
            return
