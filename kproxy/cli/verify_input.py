"""Recordings that `kproxy verify` reads: captures, of both sides where they are kproxy's, and event files; several are
merged by time."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from kproxy.capture.info import merged
from kproxy.capture.losses import losses, noted_losses
from kproxy.capture.pairs import BothSides, paired
from kproxy.capture.reader import Capture
from kproxy.cli.exchange_input import NoInput, Trouble, event_files, events_of_file, kind_of, make_data
from kproxy.errors import CaptureError, FilterError, InputError
from kproxy.events.schema import RECOVERED_EVENT, REQUEST_EVENT, SUMMARY_EVENT
from kproxy.observe.filter.filter import Filter
from kproxy.observe.filter.view import EventView, ExchangeView
from kproxy.observe.records import OF_FILES
from kproxy.sinks.audit.event_files import session_of
from kproxy.verify.event_reader import seconds
from kproxy.verify.options import NO_APIS, MissingPart, RecordClock, outside
from kproxy.verify.reading import TELLERS
from kproxy.verify.verifier import VerifiedExchange
from kproxy.wire.table import schema

ENDINGS = (".pcapng", ".pcap", ".pcapng.gz", ".pcap.gz", ".cap")
LONGEST_FRAME = 64 << 20
"""Bytes that are kept of a frame: of one that is cut nothing is known, and brokers answer with 50 MiB."""
MOST_FILES = 200
"""Files that are read together; each is open until its end."""
MOST_SOURCES = 10_000
STEADY = 0.5
"""Seconds by which times of one process may go back while its clock is set right little by little."""


class JudgedCapture:
    """Capture that is read once, in pairs of both sides. Its first exchange is read at once, so that it says what it
    is. Raises InputError, OSError for a file that cannot be judged at all."""

    def __init__(self, path: str) -> None:
        self.path, self.problem = path, ""
        self.capture = Capture(path, most=LONGEST_FRAME, side="both")
        rest = paired(self.capture)
        first = next(rest, None)
        self.pairs: Iterator[BothSides] = self._guarded(chain(() if first is None else (first,), rest))

    @property
    def side(self) -> str:
        """Return which sides were recorded: client, broker or both; in others' captures one stands for both."""
        return str(merged(self.capture.file.notes).get("side") or "both") if self.capture.own else "both"

    def _guarded(self, pairs: Iterable[BothSides]) -> Iterator[BothSides]:
        """Yield pairs up to the place where the file is damaged, if it is."""
        try:
            yield from pairs
        except CaptureError as error:
            self.problem = str(error).removeprefix(f"{self.path}: ")

    @property
    def strangers(self) -> int:
        """Return how many answers without a request there are where nothing is missing that they could belong to; once
        it was read."""
        counts, file = self.capture.counts, self.capture.file
        return 0 if counts.gaps or counts.unread or file.dropped or file.torn else counts.strangers

    def not_told(self) -> Mapping[str, int]:
        """Return nothing: a capture has each request by itself."""
        return {}

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
    """Event files of one process that are read once, as exchanges. The first event is read at once, so that a file
    without any is told. `clock` is told when their times go back. Raises NoInput, OSError."""

    side = "client"
    strangers = 0

    def __init__(self, path: str, files: Sequence[str], clock: RecordClock) -> None:
        self.path, self.files = path, files
        self.trouble = Trouble()
        self.minutes: Counter[str] = Counter()
        self.lost = self.gaps = 0
        self.last: dict[str, int] = {}
        self.newest: dict[str, float] = {}
        self.clock = clock
        rest = self._read()
        first = next(rest, None)
        if first is None and not (self.minutes or self.trouble.other or self.trouble.bad_lines):
            raise NoInput(f"{path} has no events")
        self.pairs: Iterator[EventView] = chain(() if first is None else (first,), rest)

    def _read(self) -> Iterator[EventView]:
        """Yield the exchanges that request events tell, and count the others."""
        for file in self.files:
            for kind, data, source, number in events_of_file(file, self.trouble):
                if not self._follows(source, number):
                    continue
                if kind == REQUEST_EVENT.name:
                    self._look_at_clock(source, data)
                    yield EventView(data)
                elif kind == SUMMARY_EVENT.name:
                    if data.get("topic") is None:
                        self.minutes[str(data.get("api"))] += number_in(data, "count")
                else:
                    self.trouble.other[kind] += 1
                    self.lost += number_in(data, "dropped") if kind == RECOVERED_EVENT.name else 0

    def _follows(self, source: str, number: int) -> bool:
        """Note the number of an event, and what is missing before it; return False if it was here already."""
        last = self.last.get(source)
        if not number or (last is None and len(self.last) >= MOST_SOURCES):
            return True
        if last is not None and number > last + 1:
            self.gaps += number - last - 1
        self.last[source] = number
        return number != last

    def _look_at_clock(self, source: str, data: Mapping[str, Any]) -> None:
        """Note by how much the time goes back: a process writes exchanges down in the order in which they were over."""
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
            yield MissingPart(f"{self.lost} events were dropped, or lost with a process that was killed")
        if self.gaps > self.lost:
            yield MissingPart(f"{self.gaps - self.lost} events are missing between others")

    def not_told(self) -> Mapping[str, int]:
        """Return by API how many requests are told by the minute only, once they were read."""
        return self.minutes


def number_in(data: Mapping[str, Any], column: str) -> int:
    """Return a count in an event, 0 if it has none."""
    return max(data.get(column) or 0, 0)


def event_streams(folder: str) -> dict[str, list[str]]:
    """Return the event files in a folder by the process that wrote them; none where there are none."""
    found: dict[str, list[str]] = {}
    with suppress(NoInput):
        for file in event_files(folder):
            session = session_of(Path(file).name.lstrip(".").partition(".ndjson")[0])
            found.setdefault(session, []).append(file)
    return found


JudgedRecording = JudgedCapture | JudgedEvents


def recordings(paths: Sequence[str], clock: RecordClock | None = None) -> list[JudgedRecording]:
    """Return the recordings of these paths, which may be folders, each once. `clock`: is told what their times show of
    it while they are read. Raises InputError, OSError."""
    found: dict[str, list[str] | None] = {}
    for path in paths:
        found |= files_in(path) if path != "-" and Path(path).is_dir() else {path: None}
    if len(found) > MOST_FILES:
        raise InputError(f"{len(found)} files at once, at most {MOST_FILES}")
    clock = clock or RecordClock()
    return [recording(path, files, clock) for path, files in found.items()]


def recording(path: str, files: list[str] | None, clock: RecordClock) -> JudgedRecording:
    """Return a recording. `files`: the event files of one process; None for a path of which only that is known."""
    if files is not None:
        return JudgedEvents(path, files, clock)
    return JudgedEvents(path, [path], clock) if kind_of(path) == "events" else JudgedCapture(path)


def files_in(path: str) -> dict[str, list[str] | None]:
    """Return the captures in a folder, and its event files by the process that wrote them. Raises NoInput for a folder
    without any."""
    found: dict[str, list[str] | None] = {
        str(one): None for one in sorted(Path(path).iterdir()) if one.name.endswith(ENDINGS) and one.is_file()
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
    """Yield the exchanges of several recordings that fit a filter, in the order in which they were over."""
    if len(found) == 1:
        pairs: Iterator[VerifiedExchange] = iter(found[0].pairs)
    else:
        origins = {origin: number for number, origin in enumerate(dict.fromkeys(map(origin_of, found)), 1)}
        pairs = heapq.merge(*(numbered(one.pairs, origins[origin_of(one)]) for one in found), key=over)
    return (pair for pair in pairs if fits(pair, wanted)) if wanted else pairs


def origin_of(recording: JudgedRecording) -> str:
    """Return the path of a recording, without the number of the worker: workers of a process share a clock."""
    return recording.path.rpartition("-")[0] if isinstance(recording, JudgedEvents) else recording.path


def numbered(exchanges: Iterable[VerifiedExchange], recording: int) -> Iterator[VerifiedExchange]:
    """Yield the exchanges of a recording, which note its number. Connections and clocks differ between recordings."""
    for exchange in exchanges:
        if isinstance(exchange, EventView):
            exchange.recording = recording
        else:
            for seen in (exchange.front, exchange.behind):
                if seen is not None:
                    seen.who.recording = recording  # type: ignore[attr-defined]  # a captured connection
        yield exchange


def fits(exchange: VerifiedExchange, wanted: Filter) -> bool:
    """Return True if the filter holds for an exchange as the client saw it, or as the broker did if kproxy asked."""
    if isinstance(exchange, EventView):
        return wanted.holds(exchange)
    seen = exchange.front or exchange.behind
    return seen is not None and wanted.holds(ExchangeView(seen, make_data, OF_FILES))


def over(exchange: VerifiedExchange) -> float:
    """Return when an exchange was over; without an answer, when its request was."""
    if isinstance(exchange, EventView):
        times = (seconds(exchange.data.get(column)) for column in ("response_out", "request_in"))
        return next((time for time in times if time is not None), -math.inf)
    seen = exchange.front or exchange.behind
    frame = None if seen is None else seen.answer or seen.request
    return -math.inf if frame is None else frame.last


def told(found: Sequence[JudgedRecording]) -> Iterator[MissingPart]:
    """Yield the parts that recordings lack, after they were read; with their paths if there are several."""
    for one in found:
        for part in one.missing():
            yield part if len(found) == 1 else replace(part, text=f"{one.path}: {part.text}")


def filtered(text: str, wanted: str) -> MissingPart:
    """Return the part that a filter leaves out: exchanges of each API that it does not accept as a whole."""
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
