"""Names of the audit's files.

    <dir>/dt=2026-11-21/host-5b0c1e2f-0-000000000001.ndjson.gz    published
    <dir>/.host-5b0c1e2f-0-000000000001.ndjson.tmp                being written, or waiting for its compression
    <dir>/.host-5b0c1e2f-0-000000000001.ndjson.gz.tmp             being compressed
    <dir>/.host-5b0c1e2f-0-000000000001.ndjson.gz                 compressed, to be published
    <dir>/.host-5b0c1e2f-0-000000000001.ndjson.bad                left behind, and not to be understood
    <dir>/.host-5b0c1e2f-0.session                                its process lives, or has not ended in order
    <dir>/.host-5b0c1e2f-0.session.tmp                            it is about to live

instance, first 8 digits of the boot's uuid, worker, number of the first event. Spark, globs and `ls` pass over dots.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

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
        """Return the identity whose events have this source."""
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
    """Return the path of a file that is not published."""
    return folder / f".{stem}{ending}"


def published(folder: Path, day: str, stem: str) -> Path:
    """Return the path at which a file is published."""
    return folder / f"dt={day}" / f"{stem}{PACKED}"


def stem_of(path: Path, ending: str) -> str:
    """Return the stem of a hidden file."""
    return path.name[1 : -len(ending)]
