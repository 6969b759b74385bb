"""Filters of any text, and event files of any lines.

- a filter is read or a FilterError says where; what was read can be written and read again as the same
- a filter that was read judges any event, and says of any API and version whether it may hold
- lines that are no events are counted; those that are go through `tail`, `stats` and filters without an exception
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from json import dumps
from typing import Any

from kproxy.base.errors import FilterError
from kproxy.cli.exchange_input import Trouble, events
from kproxy.cli.stats import ExchangeTally
from kproxy.cli.tail import Rows
from kproxy.record.events.schema import BY_NAME, REQUEST_EVENT
from kproxy.record.filters import EventView, Filter
from kproxy.rules.filter.exchange_fields import BY_NAME as FIELDS
from tests.lab.fuzz.feed import Feed
from tests.lab.fuzz.targets.captures import path_of

EVENT: dict[str, Any] = {
    "api": "Produce", "api_key": 0, "version": 9, "correlation_id": 1, "client_id": "a", "outcome": "answered",
    "request_bytes": 10, "latency_ms": 1.5, "request_in": "2026-01-01T00:00:00.000000Z", "connection": 1,
    "topics": [{"topic": "orders", "partitions": [{"partition": 0, "records": 3, "bytes": 100, "error": "NONE"}]}],
}  # fmt: skip
SUMMARY = "summary"


def check(data: bytes) -> None:
    """One input: a filter, and lines."""
    feed = Feed(data)
    wanted = read(feed.piece().decode("utf-8", "surrogateescape"))
    if feed:
        lines(feed.rest(), wanted)


def read(text: str) -> Filter:
    try:
        found = Filter(text)
    except FilterError as error:
        assert 0 <= error.at <= len(text)
        assert error.text == text
        return Filter("")
    again = Filter(str(found))
    assert str(again) == str(found)
    assert again.tree == found.tree
    assert again.holds(EventView(EVENT)) == found.holds(EventView(EVENT))
    for key, version in ((0, 9), (3, 12), (9999, 0)):
        if not found.possible(key, version):
            assert not found.depth(key, version)
    return found


def lines(file: bytes, wanted: Filter) -> None:
    trouble, tally, rows = Trouble(), ExchangeTally(), Rows(wide=True)
    rows.people = True
    with path_of(file) as path, redirect_stdout(io.StringIO()):
        count = 0
        for kind, data, source, number in events(path, trouble):
            count += 1
            assert isinstance(kind, str) and isinstance(source, str) and isinstance(number, int)
            if kind == REQUEST_EVENT.name:
                wanted.holds(EventView(data))
                rows.show(data)
                tally.add(data, source)
            elif kind in BY_NAME and kind.endswith(SUMMARY):
                tally.add_summary(data, source)
        assert count + trouble.bad_lines <= len(file.splitlines()) + 1
        list(trouble.lines())
        dumps(tally.shown())


def seeds() -> Iterator[bytes]:
    """Inputs to begin with."""
    line = dumps({"type": REQUEST_EVENT.name, "source": "a", "data": EVENT}).encode() + b"\n"
    for text in (
        "", "api == Produce and (topic ~ /ord.*/ or not client_id == 'x')", "latency > 10ms", "size >= 1KiB",
        "error", "topic in (a, b)", "~a x !~e", "acks = 1 | version != 3", "time < 2026-01-01", "records.value ~ x",
    ):  # fmt: skip
        piece = text.encode()
        yield bytes((len(piece),)) + piece + line * 2
    for kind in BY_NAME.values():
        yield b"\0" + dumps({"type": kind.name, "data": {}}).encode() + b"\n{}\n[1]\n\xff\n"
        columns: dict[str, Any] = {column.name: None for column in kind.columns}
        yield b"\0" + dumps({"type": kind.name, "data": columns}).encode()


WORDS = [
    *(name.encode() for name in FIELDS), b" and ", b" or ", b"not ", b" in (", b"==", b"!=", b"!~", b">=", b"~",
    b"null", b"1e999", b"-1", b'"data": {', b'"type": "', b"[[[[", b'"topics": [{"partitions": [{', b"true",
    *(f'"{column.name}": '.encode() for column in REQUEST_EVENT.columns),
]  # fmt: skip
