"""Trees of frames with the bytes beside each field.

Strategy: the tree of `kproxy decode --tree`, with hex in front of each value; long values show their first bytes. A
frame that was not kept whole is shown as far as it goes; a last line tells how much is missing, and why.
"""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.cli.frame_output import SECRET, Row, rows, shown
from kproxy.errors import DecodeError
from kproxy.observe.exchange import Form, Frame, ObservedExchange
from kproxy.wire import decode_response
from kproxy.wire.codec.structs import find
from kproxy.wire.codec.trace import TraceStep
from kproxy.wire.table.errors import numbers
from kproxy.wire.table.schema import Api, load, paths

ACROSS = 12
"""Bytes in a line: with the offset they take half of a terminal."""
MOST_LINES = 4
"""Lines of hex that one value has at most."""
BLANK = " " * (3 * ACROSS - 1)


def hex_tree(seen: ObservedExchange, direction: str, frame: Frame) -> Iterator[str]:
    """Yield lines `offset  hex  field` of a frame. Offsets count from the first byte behind the length field."""
    data, kept = frame.data, len(frame.data)
    for row in _rows(seen, direction, frame):
        if isinstance(row, str):
            yield f"{'':>8}  {BLANK}  {row}"
        else:
            yield from _lines(row, data)
    missing = frame.size - 4 - kept
    if frame.withheld and missing:
        yield f"{kept:>8}  {missing} bytes withheld: {frame.withheld}"
    elif missing:
        yield f"{kept:>8}  {missing} bytes were not kept"
    elif frame.withheld:
        yield f"{'':>8}  overwritten with *: {frame.withheld}"


def _rows(seen: ObservedExchange, direction: str, frame: Frame) -> Iterator[Row | str]:
    """Yield the rows of a frame as far as it can be read, and then a line that tells why it cannot be read further."""
    if frame.form is Form.NONE:
        return
    try:
        api = find(seen.key)
        version = seen.version if direction == "request" else answered_version(api, seen, frame)
        yield from rows(api, version, direction, frame.data, brief)
    except (DecodeError, KeyError) as error:
        if frame.form is Form.WHOLE:
            yield f"it cannot be read further: {error.args[0]}"


def brief(step: TraceStep) -> str:
    """Return a value's text beside its bytes: errors and APIs with their names, of bytes only how many there are."""
    if isinstance(step.value, bytes | memoryview) and (step.slot is None or step.slot.kind not in SECRET):
        return "empty" if not step.value else f"{len(step.value)} bytes"
    text = shown(step, secrets=False)
    if step.slot is not None and step.what == "value":
        if step.slot.kind == "error_code" and step.value in numbers():
            return f"{text} {numbers()[step.value].name}"
        if step.slot.name == "request_api_key" and step.value in paths():
            return f"{text} {load(step.value).name}"
    return text


def answered_version(api: Api, seen: ObservedExchange, frame: Frame) -> int:
    """Return the version of a response, which may be lower than the request's for ApiVersions (KIP-511)."""
    try:
        return decode_response(frame.data, api.key, seen.version, trailing=True).version
    except DecodeError:
        return seen.version


def _lines(row: Row, data: bytes) -> Iterator[str]:
    if row.end is None:
        yield f"{row.start:>8}  {BLANK}  {'  ' * row.depth}{row.text}"
        return
    seen = data[row.start : min(row.end, row.start + ACROSS * MOST_LINES)]
    for at in range(0, max(len(seen), 1), ACROSS):
        text = f"{'  ' * row.depth}{row.text}" if not at else ""
        yield f"{row.start + at:>8}  {seen[at : at + ACROSS].hex(' '):{len(BLANK)}}  {text}".rstrip()
    if row.end - row.start > len(seen):
        yield f"{'':>8}  … {row.end - row.start - len(seen)} more"
