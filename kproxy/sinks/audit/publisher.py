"""The thread that compresses and publishes, so that writing and syncing never wait for it.

Jobs are done one after the other. One that the system refuses is tried again every few seconds, and the jobs behind it
wait: what hinders one, a full disk, hinders all. At the end it is left for the next start.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from queue import SimpleQueue

from structlog.typing import FilteringBoundLogger

from .event_sink import OutletCounters

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
