"""Process that reads a capture for the view: `python -m kproxy.record.live_view.reading parent=PID spool=N`.

The capture comes at its standard input. It may be anything, and to read it takes minutes. So it is read by a process of
its own, which takes no time of the loop that carries traffic, has limits of memory and time that the kernel keeps, and
may fail alone. It writes the exchanges into the descriptor `spool` (see spool.py), behind them their places, and says
at its standard output what it has found: a `ReadingResult` as JSON, with a `problem` if the file is no capture.
"""

from __future__ import annotations

import os
import sys
from array import array
from dataclasses import asdict, dataclass, field
from io import BufferedWriter
from pathlib import Path
from time import process_time
from typing import IO, Any

import msgspec

from kproxy.base.errors import CaptureError
from kproxy.base.named_file import reason
from kproxy.base.system import HAS_PRCTL, die_with_parent, resource
from kproxy.record.captures.losses import losses
from kproxy.record.captures.packet_file import PacketFile
from kproxy.record.captures.pairs import SideMatcher, is_at_broker
from kproxy.record.captures.reader import Capture
from kproxy.record.exchange import ObservedExchange

from .spool import encoded

MEMORY = 1 << 30
"""Bytes of addresses that the process may use; the reader remembers 50,000 connections, some 200 MB, at most."""
SECONDS = 120
"""CPU seconds after which it stops reading, and says so; half as many more, and the kernel ends it."""
MOST_EXCHANGES = 1_000_000
MOST_SPOOLED = 1 << 30
"""Bytes of the spool."""
MOST_UNPACKED = 2 << 30
"""Bytes of what is in the file, which may be packed."""
MOST_TOPICS = 10_000
"""Names of topic ids that are remembered."""
KEPT = 65_536
"""Bytes that are kept of each frame, as of those that pass."""
CHECKED = 256
"""Reads of the file between two looks at the clock."""
STOPPED = {
    "exchanges": f"only the first {MOST_EXCHANGES:,} exchanges are shown",
    "spool": f"only the exchanges of the first {MOST_SPOOLED >> 20:,} MiB are shown",
    "unpacked": f"only the first {MOST_UNPACKED >> 20:,} MiB of it were read",
    "seconds": f"only what could be read within {SECONDS} s is shown",
}


@dataclass
class ReadingResult:
    """Findings of one reading. `missing`: sentences about what is not in it. `end`: where in the spool the exchanges
    end, and their places begin."""

    problem: str = ""
    no_room: bool = False
    """True if the problem is that the spool cannot be written."""
    exchanges: int = 0
    written_by: str = ""
    counts: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    topics: dict[str, str] = field(default_factory=dict)
    end: int = 0


class SpoolWriter:
    """Writer of the exchanges of one capture. `places`: as `Spool` takes them."""

    def __init__(self, file: BufferedWriter) -> None:
        self.file, self.size = file, 0
        self.places = array("q")
        self.matcher = SideMatcher[int, int]()
        """Numbers of exchanges from 0 on, and places of what passed at the broker."""

    @property
    def exchanges(self) -> int:
        return len(self.places) // 2

    def add(self, seen: ObservedExchange, own: bool) -> None:
        """Add an exchange; of kproxy's own captures both sides are in the file."""
        place = self.write(encoded(seen))
        if own and is_at_broker(seen):
            settled = self.matcher.behind(seen, place)
        else:
            self.places.extend((place, -1))
            settled = self.matcher.front(seen, self.exchanges - 1) if own else []
        for front, behind in settled:
            if front is not None and behind is not None:
                self.places[2 * front + 1] = behind

    def write(self, record: bytes) -> int:
        place = self.size
        self.file.write(len(record).to_bytes(4, "big"))
        self.file.write(record)
        self.size += 4 + len(record)
        return place

    def finish(self) -> None:
        self.file.write(self.places.tobytes())
        self.file.flush()


class LimitedFile(PacketFile):
    """File of packets that ends where the time or the number of bytes is over; `stopped` says which."""

    stopped = ""
    reads = 0

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.deadline = process_time() + SECONDS

    def _read(self, file: IO[bytes], size: int) -> bytes | None:
        self.reads += 1
        if self.offset > MOST_UNPACKED:
            self.stopped = "unpacked"
        elif not self.reads % CHECKED and process_time() > self.deadline:
            self.stopped = "seconds"
        return None if self.stopped else super()._read(file, size)


def read(file: BufferedWriter, path: str = "-") -> ReadingResult:
    """Read the capture at a path (- for standard input), and write its exchanges into a file."""
    capture = Capture(path, most=KEPT, side="both")
    packets = capture.file = LimitedFile(path)
    writer, result = SpoolWriter(file), ReadingResult()
    try:
        for seen in capture:
            writer.add(seen, capture.own)
            if writer.exchanges >= MOST_EXCHANGES or writer.size >= MOST_SPOOLED:
                packets.stopped = "exchanges" if writer.exchanges >= MOST_EXCHANGES else "spool"
                break
    except CaptureError as error:
        if not writer.exchanges:
            result.problem = str(error).removeprefix("-").removeprefix(": ").strip()
            return result
        result.missing.append(str(error).removeprefix("-: "))
    except OSError as error:
        result.problem, result.no_room = f"what is in it cannot be kept: {reason(error)}", True
        return result
    except MemoryError:
        if not writer.exchanges:
            result.problem = f"to read it takes more than {MEMORY >> 20:,} MiB of memory"
            return result
        result.missing.append(f"to read more of it takes more than {MEMORY >> 20:,} MiB of memory")
    result.exchanges, result.end = writer.exchanges, writer.size
    try:
        writer.finish()
    except OSError as error:
        result.problem, result.no_room = f"what is in it cannot be kept: {reason(error)}", True
        return result
    result.written_by = capture.file.application[:200]
    result.counts = asdict(capture.counts)
    result.missing += [
        *(loss.text for loss in losses(capture)),
        *([STOPPED[packets.stopped]] if packets.stopped else []),
    ]
    result.topics = dict(list(capture.names.by_id.items())[:MOST_TOPICS])
    return result


def limit(parent: int) -> None:
    """Give this process its limits; it ends with the process that has started it."""
    die_with_parent()
    if os.getppid() != parent:
        sys.exit(1)
    os.nice(10)
    for what, most in (
        (resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, SECONDS * 3 // 2), (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, MOST_SPOOLED + (64 << 20)),
    ):  # fmt: skip
        hard = resource.getrlimit(what)[1]
        try:
            resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
        except (ValueError, OSError):  # macOS does not limit addresses
            if HAS_PRCTL:
                raise


def main(words: list[str]) -> None:
    given = {name: int(value) for name, _, value in (word.partition("=") for word in words)}
    limit(given["parent"])
    with open(given["spool"], "wb") as file:
        result = read(file)
    sys.stdout.buffer.write(msgspec.json.encode(result))


if __name__ == "__main__":
    main(sys.argv[1:])
