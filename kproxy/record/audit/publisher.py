"""Publication of event files: compressed, renamed, synced, by a thread, so that writing and syncing never wait for it.

Jobs are done one after the other. One that the system refuses is tried again every few seconds, and the jobs behind it
wait: what hinders one, a full disk, hinders all. At the end it is left for the next start.

Publication has five steps, each durable before the next. At every moment the lines are in exactly one place that
counts: the source as long as there is no packed file, then the packed one, then the published one. What consumers do
with published files, even that they delete them, plays no part in it.

    1. compress to …ndjson.gz.tmp, and sync it      a kill: the source counts, the compressed one is made anew
    2. rename it to .…ndjson.gz, sync the folder    a kill: the packed one counts, the source is deleted
    3. delete the source                            a kill: the packed one is all there is, and is published
    4. rename it to dt=…/…ndjson.gz                 a kill: it is published
    5. sync both folders                            a power cut before: it is packed or published, never both
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import cramjam
from structlog.typing import FilteringBoundLogger

from .event_files import MODE, OPEN, PACKED, PACKING, hidden, published, sync_folder
from .event_sink import OutletCounters

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
                self.log.error(
                    "audit: files cannot be published or recovered, which is a mistake in kproxy", exc_info=error
                )
                return
            with self._lock:
                self.backlog -= 1
            return
