"""Event files that `kproxy verify` reads: those of one process at a time, in the order in which it wrote them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from kproxy.cli.exchange_input import NoInput, Trouble, event_files, events_of_file
from kproxy.events.schema import RECOVERED_EVENT, REQUEST_EVENT, SUMMARY_EVENT
from kproxy.observe.filter.view import EventView
from kproxy.sinks.audit.event_files import session_of
from kproxy.verify.event_reader import seconds
from kproxy.verify.terms import MissingPart, RecordClock

MOST_SOURCES = 10_000
STEADY = 0.5
"""Seconds by which times of one process may go back while its clock is set right little by little."""


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
