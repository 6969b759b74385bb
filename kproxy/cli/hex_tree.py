"""A frame as a tree with its bytes beside it: which bytes are which field.

Strategy: the tree of `kproxy decode --tree`, with hex in front of each value; long values show their first bytes. A
frame that was not kept whole is shown as far as it goes, and then it is said what is missing, and why.
"""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.cli.frame_output import Row, rows
from kproxy.errors import DecodeError
from kproxy.watch.seen import Form, Frame, Seen
from kproxy.wire import decode_response
from kproxy.wire.headers import find
from kproxy.wire.schema import Api

ACROSS = 12
"""Bytes in a line: with the offset they take half of a terminal."""
MOST_LINES = 4
"""Of hex for one value."""
BLANK = " " * (3 * ACROSS - 1)


def hex_tree(seen: Seen, direction: str, frame: Frame) -> Iterator[str]:
    """Lines `offset  hex  field` of a frame. Offsets count from the first byte behind the length field."""
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


def _rows(seen: Seen, direction: str, frame: Frame) -> Iterator[Row | str]:
    """What can be read of it, and in a line what cannot."""
    if frame.form is Form.NONE:
        return
    try:
        api = find(seen.key)
        version = seen.version if direction == "request" else answered_version(api, seen, frame)
        yield from rows(api, version, direction, frame.data)
    except (DecodeError, KeyError) as error:
        if frame.form is Form.WHOLE:
            yield f"it cannot be read further: {error.args[0]}"


def answered_version(api: Api, seen: Seen, frame: Frame) -> int:
    """Of a response, which may be in another form than was asked for (KIP-511)."""
    try:
        return decode_response(frame.data, api.key, seen.version, trailing=True).version
    except DecodeError:
        return seen.version


def _lines(row: Row, data: bytes) -> Iterator[str]:
    if row.end is None:
        yield f"{row.start:>8}  {BLANK}  {'  ' * row.depth}{row.text}"
        return
    shown = data[row.start : min(row.end, row.start + ACROSS * MOST_LINES)]
    for at in range(0, max(len(shown), 1), ACROSS):
        text = f"{'  ' * row.depth}{row.text}" if not at else ""
        yield f"{row.start + at:>8}  {shown[at : at + ACROSS].hex(' '):{len(BLANK)}}  {text}".rstrip()
    if row.end - row.start > len(shown):
        yield f"{'':>8}  … {row.end - row.start - len(shown)} more"
