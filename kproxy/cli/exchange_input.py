"""Files and filter of a command line, and exchanges in the files: captures, event files, directories of event files.

The first bytes of a file determine its kind, not its name. Files are read in chunks to bound memory.
Unreadable lines and packets are counted, and the counts are printed at the end. Values of an event must have the types
of their columns, since a file may be damaged or foreign. Unknown columns pass: a newer kproxy may have written them.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from kproxy.base.errors import InputError, plural
from kproxy.base.terminal import say
from kproxy.record.captures.info import losses
from kproxy.record.captures.pcapng import opened, standard_input
from kproxy.record.captures.policy import CaptureSide
from kproxy.record.captures.reader import MOST_FRAME, Capture
from kproxy.record.events.column import Column
from kproxy.record.events.schema import BY_NAME, REQUEST_EVENT
from kproxy.record.exchange import ObservedExchange
from kproxy.record.filters import EventView, ExchangeView, ViewedEvent
from kproxy.record.observer.records import OF_FILES

TYPES: Mapping[str, type] = {
    "string": str, "boolean": bool, "double": float, "timestamp": str, "int": int, "long": int,
}  # fmt: skip

CAPTURES = (b"\x0a\x0d\x0d\x0a", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d")
"""First bytes of pcapng and pcap files."""
LONGEST_LINE = 64 << 20
"""Bytes of an event's longest line. Events have a few thousand; a file with longer lines is not an event file."""
MOST_KINDS = 1000  # types of events that are counted one by one
LONGEST_NUMBER = 19
"""Event numbers have fewer digits than this."""

DAMAGED = (gzip.BadGzipFile, zlib.error)

InputKind = Literal["capture", "events"]
AnyView = EventView | ExchangeView
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def judge(kind: str, data: ViewedEvent) -> None:
    """Check an event's data against the columns of its type. Raises msgspec.ValidationError with the path."""
    wanted = struct_of(kind)
    if wanted is not None:
        msgspec.convert(data, wanted)


@lru_cache(maxsize=100)
def struct_of(kind: str) -> type | None:
    """Return the msgspec struct of an event type; None for an unknown type."""
    return _struct(kind, BY_NAME[kind].columns) if kind in BY_NAME else None


def _struct(name: str, columns: tuple[Column, ...]) -> type:
    made: type = msgspec.defstruct(
        "".join(char if char.isalnum() else "_" for char in name),
        [(column.name, _type(column) | None, None) for column in columns],
    )
    return made


def _type(column: Column) -> Any:
    one: Any = _struct(column.name, column.columns) if column.type == "struct" else TYPES[column.type]
    return list[one] if column.array else one


class NoInput(InputError):
    """A file that is neither a capture nor an event file, a folder without any, or missing input."""


@dataclass(slots=True)
class Trouble:
    """Problems while reading files: lines that are not events, events of other types than requests, and the captures,
    which count their missing parts."""

    bad_lines: int = 0
    first_bad: str = ""
    other: Counter[str] = field(default_factory=Counter)
    captures: list[Capture] = field(default_factory=list)

    def count(self, kind: str) -> None:
        self.other[kind if kind in self.other or len(self.other) < MOST_KINDS else "others"] += 1

    def lines(self) -> Iterator[str]:
        """Yield the problems as text for standard error; `other` events are left to the caller."""
        if self.bad_lines:
            yield f"{plural(self.bad_lines, 'line')} could not be read, first {self.first_bad}"
        for capture in self.captures:
            yield from said_of(capture)


def said_of(capture: Capture) -> Iterator[str]:
    """Yield the missing parts of a capture as text, a line for each kind of loss."""
    for text, *_ in losses(capture):
        yield f"{capture.file.path}: {text}"


def kind_of(path: str) -> InputKind:
    """Return the kind of a file by its first bytes; a directory holds events. Raises NoInput, OSError."""
    if Path(path).is_dir():
        return "events"
    try:
        if path == "-":
            begin = standard_input().peek(4)[:4]
            return "capture" if begin.startswith(CAPTURES) else "events"
        with opened(path) as file:
            begin = file.read(4)
    except (EOFError, *DAMAGED) as error:
        raise NoInput(f"{path} is gzip, and damaged or cut off at its beginning: {str(error).lower()}") from None
    if begin.startswith(CAPTURES):
        return "capture"
    if not begin or begin[:1] == b"{":
        return "events"
    raise NoInput(f"{path} is neither a capture nor an event file: it begins with {begin.hex(' ')}")


def event_files(path: str) -> list[str]:
    """Return a file itself, or the event files in a directory and below, by name; files still being written come last.

    Raises NoInput for a directory without event files.
    """
    if path == "-" or not Path(path).is_dir():
        return [path]
    found = sorted(str(one) for one in Path(path).rglob("*.ndjson*") if one.name.endswith((".ndjson", ".ndjson.gz"))
                   and not one.name.startswith("."))  # fmt: skip
    found += sorted(str(one) for one in Path(path).glob(".*.ndjson.tmp"))
    if not found:
        raise NoInput(f"{path} is a folder without event files: names that end in .ndjson or .ndjson.gz are expected")
    return found


def make_data(seen: ObservedExchange) -> ViewedEvent:
    from kproxy.record.audit.request_event import whole_event  # imported here, as event files do not need it

    return whole_event(seen, float)


def views(path: str, trouble: Trouble, most: int = MOST_FRAME, side: CaptureSide = "client") -> Iterator[AnyView]:
    """Yield all exchanges of a file as views for a filter. `most`: bytes kept of each frame of a capture. `side`: for
    captures of kproxy, the sides to yield."""
    if kind_of(path) == "capture":
        for seen in exchanges(path, trouble, most, side):
            yield ExchangeView(seen, make_data, OF_FILES)
    else:
        for event in events(path, trouble):
            if event.type == REQUEST_EVENT.name:
                yield EventView(event.data)
            else:
                trouble.count(event.type)


def exchanges(
    path: str, trouble: Trouble, most: int = MOST_FRAME, side: CaptureSide = "client"
) -> Iterator[ObservedExchange]:
    """Yield the exchanges of a capture, and add it to `trouble` for its counts. `side`: as for `views`."""
    capture = Capture(path, most=most, side=side)
    trouble.captures.append(capture)
    yield from capture


class FileEvent(NamedTuple):
    """Event of a file: its type, its data, its recorder, and its number there (0 if unknown)."""

    type: str
    data: ViewedEvent
    source: str
    number: int


def events(path: str, trouble: Trouble) -> Iterator[FileEvent]:
    """Yield each event in a file, or in the files of a directory."""
    for name in event_files(path):
        yield from events_of_file(name, trouble)


def events_of_file(name: str, trouble: Trouble) -> Iterator[FileEvent]:
    number = 0
    with opened(name) as file:
        try:
            while line := file.readline(LONGEST_LINE):
                number += 1
                try:
                    event = _decode(line)
                    ident = str(event.get("id", ""))
                    found = FileEvent(
                        str(event["type"]), dict(event["data"]), str(event.get("source", name)),
                        int(ident) if ident.isdecimal() and len(ident) < LONGEST_NUMBER else 0,
                    )  # fmt: skip
                    judge(found.type, found.data)
                except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError):
                    _bad(trouble, f"{name}:{number}")
                else:
                    yield found
        except EOFError:
            _bad(trouble, f"{name}: it ends in the middle")
        except DAMAGED:
            _bad(trouble, f"{name}: it is damaged behind line {number}")


def _bad(trouble: Trouble, where: str) -> None:
    trouble.bad_lines += 1
    trouble.first_bad = trouble.first_bad or where


def tell(trouble: Trouble) -> None:
    for text in trouble.lines():
        say(f"kproxy: {text}", err=True)
