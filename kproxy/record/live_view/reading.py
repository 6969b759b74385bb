"""Captures that were opened in the view: the reading process, its spool, and the list of open ones.

`python -m kproxy.record.live_view.reading parent=PID spool=N` reads the capture from standard input. The file may have
any content, and reading it takes minutes. So a separate process reads it: it takes no time of the loop that carries
traffic, has limits of memory and time in the kernel, and may fail alone. It writes the exchanges into the descriptor
`spool`, followed by their places. It writes a `ReadingResult` as JSON to its standard output, with a `problem` if the
file is not a capture.

A capture may contain a million exchanges, of which a viewer reads some hundred. So they are in a file without a name,
and memory contains only their offsets. A record is a msgpack array; numbers count from 1. Open captures are few, since
each takes disk space, and are closed after an hour without use.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from io import BufferedWriter
from pathlib import Path
from threading import Lock
from time import monotonic, process_time, time
from typing import IO, Any

import msgspec

from kproxy.base.errors import CaptureError
from kproxy.base.named_file import reason
from kproxy.base.system import HAS_PRCTL, die_with_parent, resource
from kproxy.record.captures.captured_connection import CapturedConnection, TopicIdNames
from kproxy.record.captures.info import losses
from kproxy.record.captures.pairs import SideMatcher, is_at_broker
from kproxy.record.captures.pcapng import PacketFile
from kproxy.record.captures.reader import Capture
from kproxy.record.exchange import Errors, ExchangeOutcome, Form, Frame, ObservedExchange

LONGEST_RECORD = 64 << 20
"""Bytes; a record has two frames of 64 KiB each. A longer length is invalid."""
WHO = (
    "number", "interface", "client_address", "client_port", "server_address", "server_port", "opened",
)  # fmt: skip
KNOWN_LATER = ("cluster", "listener", "node", "broker", "principal", "software_name", "software_version")


class SpooledFrame(msgspec.Struct, array_like=True, gc=False):
    """Frame as a spool has it; see `record.exchange.Frame`."""

    size: int
    first: float
    last: float
    data: bytes
    form: int
    withheld: str
    sketch: bytes


class SpooledExchange(msgspec.Struct, array_like=True, gc=False):
    """Exchange as a spool has it, with its connection as it was known then; see `record.exchange.ObservedExchange`."""

    who: tuple[int, str, str, int, str, int, float]
    later: tuple[str | None, str | None, int | None, str | None, str | None, str | None, str | None]
    number: int
    key: int
    version: int
    correlation_id: int
    client_id: str | None
    request: SpooledFrame | None
    response: SpooledFrame | None
    outcome: ExchangeOutcome
    acks: int | None
    depth: str
    rules: list[str]
    answered_by_rule: bool
    errors: tuple[list[int], bool]
    own_errors: list[int]
    rule_wait: tuple[float, float]
    other_wait: tuple[float, float]
    unread: str
    throttle: tuple[int, str, float]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SpooledExchange).decode


def encoded(seen: ObservedExchange) -> bytes:
    """Return the record of an exchange that a capture's reader has made."""
    who: Any = seen.who
    return _encode(
        SpooledExchange(
            tuple(getattr(who, name) for name in WHO), tuple(getattr(who, name) for name in KNOWN_LATER),
            seen.number, seen.key, seen.version, seen.correlation_id, seen.client_id, _packed(seen.request),
            _packed(seen.response), seen.outcome, seen.acks, seen.depth, seen.rules, seen.answered_by_rule,
            (list(seen.known_errors.codes), seen.known_errors.top), sorted(seen.own_errors), seen.rule_wait,
            seen.other_wait, seen.unread, (seen.known_throttle, seen.throttler, seen.mute),
        )
    )  # fmt: skip


def _packed(frame: Frame | None) -> SpooledFrame | None:
    if frame is None:
        return None
    return SpooledFrame(
        frame.size, frame.first, frame.last, frame.data, frame.form.value, frame.withheld, frame.sketch
    )  # fmt: skip


def decoded(record: bytes, names: TopicIdNames) -> ObservedExchange:
    """Return the exchange of a record. `names`: of topics by their ids. Raises msgspec.DecodeError."""
    kept = _decode(record)
    who = CapturedConnection(*kept.who, names)
    for name, value in zip(KNOWN_LATER, kept.later, strict=True):
        setattr(who, name, value)
    return ObservedExchange(
        who, kept.number, kept.key, kept.version, kept.correlation_id, kept.client_id, _unpacked(kept.request),
        _unpacked(kept.response), kept.outcome, kept.acks, kept.depth, kept.rules, kept.answered_by_rule,
        Errors(tuple(kept.errors[0]), kept.errors[1]), frozenset(kept.own_errors), kept.rule_wait, kept.other_wait,
        kept.unread, *kept.throttle,
    )  # fmt: skip


def _unpacked(frame: SpooledFrame | None) -> Frame | None:
    if frame is None:
        return None
    return Frame(frame.size, frame.first, frame.last, frame.data, Form(frame.form), frame.withheld, frame.sketch)


class Spool:
    """Exchanges in an open file. `places`: of each the offsets of its record and of the record behind it (what passed
    at the broker, where that was something else), -1 for none. `topics`: names by their ids."""

    def __init__(self, number: int, places: array[int], topics: Mapping[str, str]) -> None:
        self.file, self.places = number, places
        self.lock = Lock()  # threads read, and a number that was closed may be another file's at once
        self.names = TopicIdNames()
        self.names.by_id = dict(topics)

    def __len__(self) -> int:
        return len(self.places) // 2

    def exchange(self, number: int) -> ObservedExchange:
        """Return the exchange of this number, from 1 on. Raises IndexError, OSError, and msgspec.DecodeError for a file
        that was damaged."""
        return self._at(self._place(number, 0))

    def behind(self, number: int) -> ObservedExchange | None:
        """Return the broker side; None if it was the same, or is not in the capture."""
        place = self._place(number, 1)
        return None if place < 0 else self._at(place)

    def is_changed(self, number: int) -> bool:
        """Return True if something else than at the client passed at the broker."""
        return self._place(number, 1) >= 0

    def close(self) -> None:
        """Let go of the file, which is gone then. Later reads raise OSError."""
        with self.lock:
            if self.file >= 0:
                os.close(self.file)
            self.file = -1

    def _place(self, number: int, which: int) -> int:
        if not 0 < number <= len(self):
            raise IndexError(number)
        return self.places[2 * (number - 1) + which]

    def _at(self, place: int) -> ObservedExchange:
        with self.lock:
            size = int.from_bytes(os.pread(self.file, 4, place), "big")
            record = os.pread(self.file, min(size, LONGEST_RECORD), place + 4)
        return decoded(record, self.names)


MEMORY = 1 << 30
"""Bytes of addresses that the process may use; the reader remembers 50,000 connections, some 200 MB, at most."""
SECONDS = 120
"""CPU seconds after which it stops reading and reports that. The kernel kills it after half as many more."""
MOST_EXCHANGES = 1_000_000
MOST_SPOOLED = 1 << 30
"""Bytes of the spool."""
MOST_UNPACKED = 2 << 30
"""Bytes of the uncompressed contents of the file."""
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
        """Numbers of exchanges from 0 on, and places of the broker side."""

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
    """File of packets that ends at the limit of time or bytes; `stopped` names the limit."""

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


MOST_SOURCES = 4
"""Open at a time, those that are being sent or read included."""
IDLE = 3600.0
"""Seconds without use after which a source is closed."""


@dataclass(eq=False)
class OpenedCapture:
    """Capture that is open in the view. `size`: bytes of the file; `opened`: seconds since 1970."""

    id: str
    name: str
    size: int
    result: ReadingResult
    spool: Spool
    opened: float = field(default_factory=time)
    looked_at: float = field(default_factory=monotonic)
    """Monotonic time of the last use."""

    @property
    def left(self) -> float:
        """Return the seconds until it is closed if unused."""
        return max(0.0, self.looked_at + IDLE - monotonic())


class OpenedCaptures:
    """Open sources by their ids, s1 and so on. `opening`: places that are taken by files that are not read yet. `stay`:
    whether they are open for good."""

    def __init__(self, most: int = MOST_SOURCES, *, stay: bool = False) -> None:
        self.most, self.stay = most, stay
        self.by_id: dict[str, OpenedCapture] = {}
        self.opening = self.count = 0
        self.looks = False  # whether sources expire after their time

    @property
    def full(self) -> bool:
        """Return True if the limit is reached; expired sources are closed first."""
        self.expire()
        return len(self.by_id) + self.opening >= self.most

    def add(self, name: str, size: int, result: ReadingResult, spool: Spool) -> OpenedCapture:
        """Add a file that was read, and return the source that it is now."""
        self.count += 1
        source = OpenedCapture(f"s{self.count}", name, size, result, spool)
        self.by_id[source.id] = source
        return source

    def find(self, identifier: str) -> OpenedCapture | None:
        """Return the source of this id and mark it as used; None if missing."""
        self.expire()
        source = self.by_id.get(identifier)
        if source is not None:
            source.looked_at = monotonic()
        return source

    def remove(self, source: OpenedCapture) -> None:
        """Close a source; its spool is gone then."""
        self.by_id.pop(source.id, None)
        source.spool.close()

    def expire(self) -> None:
        """Close the sources without use for an hour."""
        if not self.stay:
            for source in [one for one in self.by_id.values() if not one.left]:
                self.remove(source)

    def close(self) -> None:
        """Close all sources, even those in use."""
        for source in list(self.by_id.values()):
            self.remove(source)


def read_places(number: int, result: ReadingResult) -> array[int]:
    """Return the places of the exchanges in a spool that a reading process has written. Raises OSError, and ValueError
    where they are not all there."""
    places = array("q")
    wanted = 2 * places.itemsize * result.exchanges
    data = bytearray()
    while len(data) < wanted:
        piece = os.pread(number, min(1 << 20, wanted - len(data)), result.end + len(data))
        if not piece:
            raise ValueError(f"the spool has {len(data)} bytes of places, expected {wanted}")
        data += piece
    places.frombytes(bytes(data))
    return places
