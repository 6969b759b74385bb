"""A process with a small file system of its own, in a mount namespace of its own: FOLDER POLICY, see test_disks.py.

Prints what happened as one JSON object, and copies what was published to FOLDER.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import structlog

from kproxy.record.audit.event_files import WriterIdentity
from kproxy.record.audit.outlets import FileOutlet, FileSettings
from kproxy.record.audit.recorder import Recorder
from tests.support.line_count import LineCount
from tests.support.wait import until

MS_RDONLY, MS_REMOUNT = 1, 32  # linux/mount.h
SIZE = 4_000_000  # bytes: more than the queue holds, less than anybody minds
QUEUE = 1000
PAD = "x" * 100


def mount(target: Path, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", bytes(target), b"tmpfs", flags, f"size={SIZE}".encode()):
        raise OSError(ctypes.get_errno(), f"cannot mount a tmpfs on {target}")


class Run:
    """Recorder on a small disk. `longest`: Python lines of one put, the most of all."""

    def __init__(self, disk: Path, when_full: Any) -> None:
        self.free = threading.Event()
        identity = WriterIdentity("small", str(uuid4()))
        settings = FileSettings(disk / "audit", identity, 0.05, 50_000, 60.0, when_full, QUEUE, retry=0.05)
        self.outlet = FileOutlet(settings, structlog.get_logger())
        self.counters = self.outlet.counters
        self.recorder = Recorder(identity.source, [self.outlet], self.free.set)
        self.recorder.start()
        self.blocking = when_full == "block"
        self.number = self.longest = 0

    def put(self) -> None:
        self.number += 1
        with LineCount() as count:
            self.recorder.put("kproxy.test.v1", time.time(), {"number": self.number, "pad": PAD})
        self.longest = max(self.longest, count.total)

    def put_until_refused(self) -> None:
        """As a proxy would: it heeds `blocked`, and else goes on."""
        limit = time.monotonic() + 60
        while not (self.recorder.blocked if self.blocking else self.counters.failing):
            assert time.monotonic() < limit
            self.put()
            time.sleep(0.0002)
        if not self.blocking:
            for _ in range(2 * QUEUE):
                self.put()


def full(disk: Path, when_full: str) -> Run:
    """Somebody else fills the disk, and later makes room."""
    mount(disk, 0)
    ballast = disk / "ballast"
    ballast.write_bytes(b"\xff" * (SIZE - 100_000))
    run = Run(disk, when_full)
    run.put_until_refused()
    ballast.unlink()
    return run


def read_only(disk: Path, when_full: str) -> Run:
    """The disk is read-only when the process starts, and later is not."""
    mount(disk, MS_RDONLY)
    run = Run(disk, when_full)
    run.put_until_refused()
    mount(disk, MS_REMOUNT)
    return run


def main(target: str, what: str, when_full: str) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    disk = Path(f"{target}-disk")
    disk.mkdir()
    run = {"full": full, "read_only": read_only}[what](disk, when_full)
    blocked = run.recorder.blocked
    if blocked:
        run.free.wait(60)
    until(lambda: not run.counters.failing)
    for _ in range(10):
        run.put()
    closed, counters = run.recorder.close(20), run.counters
    shutil.copytree(disk / "audit", target)
    print(json.dumps({
        "closed": closed, "blocked": blocked, "told_free": run.free.is_set(), "put": run.number,
        "dropped": counters.dropped, "errors": counters.errors, "written": counters.written, "longest": run.longest,
    }))  # fmt: skip
    os._exit(0)  # the namespace and its disk go with the process


if __name__ == "__main__":
    main(*sys.argv[1:])
