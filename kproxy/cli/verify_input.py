"""Recordings that `kproxy verify` reads: captures and event files. Several are merged by time."""

from __future__ import annotations

import heapq
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.errors import CaptureError, FilterError, InputError, plural
from kproxy.cli.exchange_input import NoInput, Trouble, event_files, events_of_file, kind_of, make_data
from kproxy.protocol.table import schema
from kproxy.record.audit.event_files import session_of
from kproxy.record.captures.info import losses, merged, noted_losses
from kproxy.record.captures.pairs import BothSides, paired
from kproxy.record.captures.pcapng import PacketFile
from kproxy.record.captures.reader import APPLICATION, Capture
from kproxy.record.captures.tcp_stream import SYN, WHOLE, segment_of
from kproxy.record.events.schema import AUDIT_GAP_EVENT, REQUEST_EVENT, SUMMARY_EVENT
from kproxy.record.filters import EventView, ExchangeView, Filter
from kproxy.record.observer.records import OF_FILES
from kproxy.tools.verify.event_reader import api_of, seconds
from kproxy.tools.verify.options import NO_APIS, MissingPart, RecordClock, outside
from kproxy.tools.verify.reading import TELLERS
from kproxy.tools.verify.verifier import VerifiedExchange

ROTATION = re.compile(r"(?<=cap)\d+(?=(\.gz)?$)")  # tcpdump adds a number to the names of later files
ENDINGS = (".pcapng", ".pcap", ".pcapng.gz", ".pcap.gz", ".cap")
LONGEST_FRAME = 64 << 20  # kept bytes of a frame: checks cannot use a truncated one, and brokers send 50 MiB
MOST_FILES = 200  # files that are read together; each is open until its end
MOST_SOURCES = 10_000
MOST_FLOWS = 1000  # compared flows at each border of a file
STEADY = 0.5  # seconds that times of one process may go back while its clock is slewed
Flow = tuple[bytes, int, bytes, int]  # source, port, target, port


class JudgedCapture:
    """Capture that is read once, in pairs of both sides.

    Its first exchange is read at once, since it decides whether the file is kproxy's. Raises InputError, OSError for an
    unreadable file.
    """

    summarized: Mapping[str, int] = MappingProxyType({})

    def __init__(self, path: str, *following: str, clock: RecordClock | None = None) -> None:
        self.clock = clock or RecordClock()
        self.path, self.problem = f"{path} to {following[-1]}" if following else path, ""
        self.capture = Capture(path, *following, most=LONGEST_FRAME, side="both")
        rest = paired(self.capture)
        first = next(rest, None)
        self.pairs: Iterator[BothSides] = self._guarded(chain(() if first is None else (first,), rest))

    @property
    def side(self) -> str:
        """Recorded sides: client, broker or both. Other programs' captures have one side for both."""
        return str(merged(self.capture.file.notes).get("side") or "both") if self.capture.own else "both"

    def _guarded(self, pairs: Iterable[BothSides]) -> Iterator[BothSides]:
        """Yield pairs up to the first damage of the file. Note by how much the times of packets go back."""
        try:
            for pair in pairs:
                if not self.capture.own:  # kproxy writes each exchange when it is over
                    self.clock.goes_back(self.capture.counts.back)
                yield pair
        except CaptureError as error:
            self.problem = str(error).removeprefix(f"{self.path}: ")

    @property
    def strangers(self) -> int | None:
        """Responses without a request, after the reading; 0 if a missing part may have the requests.

        None for a capture of kproxy without such responses: kproxy closes a connection at one.
        """
        counts, file = self.capture.counts, self.capture.file
        count = 0 if counts.gaps or counts.unread or file.dropped or file.torn else counts.strangers
        return count or (None if self.capture.own else 0)

    def missing(self) -> Iterator[MissingPart]:
        """Yield the parts that the capture lacks, after it was read."""
        capture = self.capture
        if self.problem:
            yield outside(f"it was read up to where it is damaged: {self.problem}")
        for loss in losses(capture):
            yield MissingPart(*loss)
        if capture.own:
            begin = merged(capture.file.notes)
            for loss in noted_losses(capture):
                yield MissingPart(*loss)
            if begin.get("filter"):
                yield filtered(f"it has only what fits the filter {begin['filter']}", str(begin["filter"]))
            if begin.get("payload") in ("none", "head"):
                text = f"of long frames it has only the beginning (--payload {begin['payload']})"
                yield MissingPart(text, NO_APIS, NO_APIS)  # frames that are cut are counted by their APIs


class JudgedEvents:
    """Event files of one process, read once. `clock` receives steps back of their times.

    `summarized`: requests by API that the files have in summaries only. The first event is read at once. Raises NoInput
    for a file without events, OSError.
    """

    side = "client"
    strangers: int | None = None

    def __init__(self, path: str, files: Sequence[str], clock: RecordClock) -> None:
        self.path, self.files = path, files
        self.trouble = Trouble()
        self.summarized: Counter[str] = Counter()
        self.lost = self.gaps = 0
        self.last: dict[str, int] = {}
        self.newest: dict[str, float] = {}
        self.clock = clock
        rest = self._read()
        first = next(rest, None)
        if first is None and not (self.summarized or self.trouble.other or self.trouble.bad_lines):
            raise NoInput(f"{path} has no events")
        self.pairs: Iterator[EventView] = chain(() if first is None else (first,), rest)

    def _read(self) -> Iterator[EventView]:
        """Yield request events, and count the others."""
        for file in self.files:
            for kind, data, source, number in events_of_file(file, self.trouble):
                if not self._follows(source, number):
                    continue
                if kind == REQUEST_EVENT.name:
                    self._look_at_clock(source, data)
                    yield EventView(data)
                elif kind == SUMMARY_EVENT.name:
                    if data.get("topic") is None:
                        self.summarized[api_of(data)] += number_in(data, "count")
                else:
                    self.trouble.count(kind)
                    self.lost += number_in(data, "dropped") if kind == AUDIT_GAP_EVENT.name else 0

    def _follows(self, source: str, number: int) -> bool:
        """Count the events that are missing before an event. Return False for a repeated one."""
        last = self.last.get(source)
        if not number or (last is None and len(self.last) >= MOST_SOURCES):
            return True
        if last is not None and number > last + 1:
            self.gaps += number - last - 1
        self.last[source] = number
        return number != last

    def _look_at_clock(self, source: str, data: Mapping[str, Any]) -> None:
        """Note a step back: a process writes exchanges in the order of their ends."""
        ended = seconds(data.get("response_out"))
        if ended is None:
            return
        newest = self.newest.get(source, ended)
        if newest - ended > STEADY:
            self.clock.goes_back(newest - ended)
        if len(self.newest) < MOST_SOURCES:
            self.newest[source] = max(newest, ended)

    def missing(self) -> Iterator[MissingPart]:
        """Yield the parts that the files lack, after they were read."""
        yield from map(MissingPart, self.trouble.lines())
        if self.lost:
            yield MissingPart(f"{plural(self.lost, 'event')} dropped, or lost with a process that was killed")
        if self.gaps > self.lost:
            yield MissingPart(f"{plural(self.gaps - self.lost, 'event')} missing between others")


def number_in(data: Mapping[str, Any], column: str) -> int:
    return max(data.get(column) or 0, 0)


def event_streams(folder: str) -> dict[str, list[str]]:
    """Return the event files in a folder by the process that wrote them."""
    found: dict[str, list[str]] = {}
    with suppress(NoInput):
        for file in event_files(folder):
            session = session_of(Path(file).name.lstrip(".").partition(".ndjson")[0])
            found.setdefault(session, []).append(file)
    return found


JudgedRecording = JudgedCapture | JudgedEvents


def recordings(paths: Sequence[str], clock: RecordClock | None = None) -> list[JudgedRecording]:
    """Open the recordings of these paths, which may be folders. Raises InputError, OSError."""
    found: dict[str, list[str] | None] = {}
    real: dict[str, str] = {}  # each file is read once, whatever its names
    for path in paths:
        for one, files in (files_in(path) if path != "-" and Path(path).is_dir() else {path: None}).items():
            found[real.setdefault(os.path.realpath(one), one)] = files
    if len(found) > MOST_FILES:
        raise InputError(f"{len(found)} files at once, at most {MOST_FILES}")
    clock = clock or RecordClock()
    events = {path: files or [path] for path, files in found.items() if files or kind_of(path) == "events"}
    captures = {chain[0]: chain for chain in rotated([path for path in found if path not in events])}
    return [
        JudgedEvents(path, events[path], clock) if path in events else JudgedCapture(*captures[path], clock=clock)
        for path in found
        if path in events or path in captures
    ]


class FileBorders(NamedTuple):
    """Times of a capture's first and last packet, and sequence numbers of the TCP flows at its begin and end."""

    began: float
    ended: float
    first: dict[Flow, int]
    last: dict[Flow, int]

    def continues(self, other: FileBorders) -> bool:
        """True if the file continues a connection of another file, at the same sequence number."""
        return other.ended <= self.began and any(other.last.get(flow) == number for flow, number in self.first.items())


def rotated(paths: Sequence[str]) -> list[list[str]]:
    """Group captures, such that each group has the files of one rotated tcpdump or dumpcap in their order."""
    found = {path: read for path in paths if len(paths) > 1 and (read := borders(path)) is not None}
    chains = [[path] for path in paths if path not in found]
    for path in sorted(found, key=lambda one: found[one].began):
        earlier = [one for one in chains if one[-1] in found and found[path].continues(found[one[-1]])]
        # Two hosts may record the same connections. Then the predecessor is unknown.
        if len(earlier) == 1:
            earlier[0].append(path)
        else:
            chains.append([path])
    return chains


def borders(path: str) -> FileBorders | None:
    """Read the borders of a file. None: kproxy's own, empty or unreadable, or not a regular file."""
    if not Path(path).is_file():
        return None
    file, began, ended = PacketFile(path), math.inf, -math.inf
    first: dict[Flow, int] = {}
    last: BoundedMap[Flow, int] = BoundedMap(MOST_FLOWS)
    with suppress(CaptureError):
        for packet in file:
            if file.application == APPLICATION:
                return None
            segment = segment_of(packet.link, packet.data, packet.length)
            if segment is None:
                continue
            began, ended = min(began, packet.time), max(ended, packet.time)
            flow = segment.source, segment.source_port, segment.target, segment.target_port
            if len(first) < MOST_FLOWS:
                first.setdefault(flow, -1 if segment.flags & SYN else segment.sequence)
            last[flow] = (segment.sequence + segment.size + bool(segment.flags & SYN)) % WHOLE
        return FileBorders(began, ended, first, last) if last else None
    return None


def files_in(path: str) -> dict[str, list[str] | None]:
    """Return the captures in a folder, and its event files by process. Raises NoInput for a folder without any."""
    found: dict[str, list[str] | None] = {
        str(one): None
        for one in sorted(Path(path).iterdir())
        if ROTATION.sub("", one.name).endswith(ENDINGS) and one.is_file()
    }
    for session, files in event_streams(path).items():
        found[str(Path(path, session))] = files
    if not found:
        raise NoInput(
            f"{path} is a folder without captures and event files: names that end in {', '.join(ENDINGS)}, .ndjson or "
            ".ndjson.gz are expected"
        )
    return found


def by_time(found: Sequence[JudgedRecording], wanted: Filter) -> Iterator[VerifiedExchange]:
    """Yield the exchanges of several recordings that fit a filter, in the order of their ends."""
    if len(found) == 1:
        pairs: Iterator[VerifiedExchange] = iter(found[0].pairs)
    else:
        origins = {origin: number for number, origin in enumerate(dict.fromkeys(map(origin_of, found)), 1)}
        pairs = heapq.merge(*(numbered(one.pairs, origins[origin_of(one)]) for one in found), key=over)
    return (pair for pair in pairs if fits(pair, wanted)) if wanted else pairs


def origin_of(recording: JudgedRecording) -> str:
    """Return a recording's path without the number of the worker: workers of a process share a clock."""
    return recording.path.rpartition("-")[0] if isinstance(recording, JudgedEvents) else recording.path


def numbered(exchanges: Iterable[VerifiedExchange], recording: int) -> Iterator[VerifiedExchange]:
    """Add a recording's number to its exchanges. Connections and clocks differ between recordings."""
    for exchange in exchanges:
        if isinstance(exchange, EventView):
            exchange.recording = recording
        else:
            for seen in (exchange.front, exchange.behind):
                if seen is not None:
                    seen.who.recording = recording  # type: ignore[attr-defined]  # a captured connection
        yield exchange


def fits(exchange: VerifiedExchange, wanted: Filter) -> bool:
    """True if a filter accepts an exchange at the client or, for kproxy's own requests, at the broker."""
    if isinstance(exchange, EventView):
        return wanted.holds(exchange)
    seen = exchange.front or exchange.behind
    return seen is not None and wanted.holds(ExchangeView(seen, make_data, OF_FILES))


def over(exchange: VerifiedExchange) -> float:
    """Return an exchange's end or, without a response, the end of its request."""
    if isinstance(exchange, EventView):
        times = (seconds(exchange.data.get(column)) for column in ("response_out", "request_in"))
        return next((time for time in times if time is not None), -math.inf)
    seen = exchange.front or exchange.behind
    frame = None if seen is None else seen.answer or seen.request
    return -math.inf if frame is None else frame.last


def told(found: Sequence[JudgedRecording]) -> Iterator[MissingPart]:
    """Yield the parts that recordings lack, after they were read, with the path if there are several recordings."""
    for one in found:
        for part in one.missing():
            yield part if len(found) == 1 else replace(part, text=f"{one.path}: {part.text}")


def filtered(text: str, wanted: str) -> MissingPart:
    """Return the part that a filter leaves out: APIs whose exchanges it does not accept in all cases."""
    try:
        accepted = Filter(wanted)
    except FilterError:
        return MissingPart(text)
    apis = frozenset(
        api.name
        for api in map(schema.load, TELLERS)
        if not all(accepted.certain(api.key, version) for version in api.versions)
    )
    return MissingPart(text, apis, apis)
