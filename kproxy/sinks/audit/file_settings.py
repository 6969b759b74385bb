"""Settings of the audit's files that a user can choose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .event_sink import WhenFull
from .file_names import WriterIdentity
from .queue import QUEUE_BYTES


@dataclass(frozen=True)
class FileSettings:
    """Times in seconds, sizes in bytes; see docs/audit.md."""

    dir: Path
    identity: WriterIdentity
    flush: float = 1.0
    """A line is durable at most so long after it was put."""
    roll_size: int = 64_000_000
    """A file is closed at this size, before compression."""
    roll_age: float = 300.0
    """A file is also closed at this age."""
    when_full: WhenFull = "drop"
    queue: int = 100_000
    """Events that are not durable yet."""
    queue_bytes: int = QUEUE_BYTES
    """Bytes of the lines of events that are not durable yet."""
    retry: float = 2.0
    """Seconds between attempts while the system refuses."""
