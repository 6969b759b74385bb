"""Comparison of one piece that came out of kproxy with the frame that a case expects."""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.core.commands import BROKER
from kproxy.errors import DecodeError
from kproxy.rules.document.source import Source, Where
from kproxy.wire import Message, decode_request, decode_response
from kproxy.wire.table import layout, schema

from .compare import Difference, differences, shown
from .connection import Line, Piece
from .model import ExpectedFrame
from .values import Reader

Finding = tuple[str, list[Difference]]


def check_piece(
    source: Source, expected: ExpectedFrame, at: Where, piece: Piece, line: Line, side: int
) -> Iterator[Finding]:
    """Yield each way in which the piece is not as expected: a sentence, and the values that differ."""
    yield from check_bytes(expected, piece, line, side)
    if expected.untouched:
        yield from check_untouched(piece, line, side)
    wants = [one for one in (expected.body, expected.exactly, expected.api, expected.version) if one is not None]
    if not wants and "client_id" not in expected.model_fields_set and expected.readable is not True:
        if expected.readable is False and (message := read(piece, line, side)) is not None:
            yield f"expected what cannot be read, found a {called(message)}", []
        return
    try:
        message = decoded(piece, line, side)
    except DecodeError as error:
        yield f"it cannot be read: {error}", []
        return
    yield from check_message(source, expected, at, message)


def check_bytes(expected: ExpectedFrame, piece: Piece, line: Line, side: int) -> Iterator[Finding]:
    """Yield findings that need no decoding: sizes, the correlation id, bytes that should have changed."""
    found = {
        "bytes": len(piece.data),
        "length": int.from_bytes(piece.data[:4], "big", signed=True),
        "correlation_id": correlation(piece, side),
    }
    wrong = []
    if expected.bytes_ is not None and found["bytes"] not in expected.bytes_:
        wrong.append(Difference("bytes", shown(expected.bytes_), str(found["bytes"])))
    for name in ("length", "correlation_id"):
        wanted = getattr(expected, name)
        if wanted is not None and wanted != found[name]:
            wrong.append(Difference(name, str(wanted), str(found[name])))
    if wrong:
        yield "another frame", wrong
    if expected.changed and piece.data in originals(line, side).values():
        yield "expected that something is changed, found the very bytes that went in", []


def check_untouched(piece: Piece, line: Line, side: int) -> Iterator[Finding]:
    """Yield a finding unless the bytes are the very ones that went in, with the values that differ."""
    given = originals(line, side)
    if piece.data in given.values():
        return
    before = given.get(correlation(piece, side))
    if before is None:
        yield f"expected the bytes that went in, found {describe(piece, line, side)} of kproxy's own", []
        return
    old, new = (read(Piece(data, 0.0), line, side) for data in (before, piece.data))
    wrong = []
    if old is not None and new is not None and old.api is new.api and old.version == new.version:
        fields = layout.body(new.api.key, new.version, new.direction)
        wrong = list(differences(fields, old.body, new.body, whole=False))
        wrong += [
            Difference(f"header.{name}", shown(value), shown(new.header.get(name)))
            for name, value in old.header.items()
            if new.header.get(name) != value
        ]
    if not wrong:
        place = next((index for index, pair in enumerate(zip(before, piece.data, strict=False)) if pair[0] != pair[1]),
                     min(len(before), len(piece.data)))  # fmt: skip
        wrong = [Difference(f"from byte {place}", shown(before[place:]), shown(piece.data[place:]))]
    yield "expected the very bytes that went in", wrong


def check_message(source: Source, expected: ExpectedFrame, at: Where, message: Message) -> Iterator[Finding]:
    """Yield findings about the decoded message: its API, version, client id and body."""
    wrong = []
    if expected.api is not None and schema.names()[expected.api] != message.api.key:
        wrong.append(Difference("api", expected.api, message.api.name))
    if expected.version is not None and expected.version != message.version:
        wrong.append(Difference("version", str(expected.version), str(message.version)))
    if "client_id" in expected.model_fields_set and expected.client_id != message.header.get("client_id"):
        wrong.append(Difference("client_id", shown(expected.client_id), shown(message.header.get("client_id"))))
    if wrong:
        yield "another frame", wrong
        return
    for name, raw in (("body", expected.body), ("exactly", expected.exactly)):
        if raw is not None:
            key, version, direction = message.api.key, message.version, message.direction
            values = Reader(source, expected=True).body(key, version, direction, raw, (*at, name))
            fields = layout.body(key, version, direction)
            if found := list(differences(fields, values, message.body, whole=name == "exactly")):
                yield f"another {called(message)}", found


def originals(line: Line, side: int) -> dict[int, bytes]:
    """Return the frames that went in on the other side, by correlation id."""
    return line.sent if side == BROKER else line.said


def correlation(piece: Piece, side: int) -> int:
    """Return the correlation id at the place where frames of this side have it."""
    start = 8 if side == BROKER else 4
    return int.from_bytes(piece.data[start : start + 4], "big", signed=True)


def decoded(piece: Piece, line: Line, side: int) -> Message:
    """Return the message in the piece. Raises DecodeError for bytes that are none."""
    if not piece.is_frame:
        raise DecodeError(f"{len(piece.data)} bytes are no whole frame")
    if side == BROKER:
        return decode_request(piece.data[4:])
    kind = line.kind_of(piece)
    if kind is None:
        raise DecodeError(f"no request had the correlation id {correlation(piece, side)}")
    return decode_response(piece.data[4:], *kind)


def read(piece: Piece, line: Line, side: int) -> Message | None:
    """Return the message in the piece; None if it cannot be decoded."""
    try:
        return decoded(piece, line, side)
    except DecodeError:
        return None


def describe(piece: Piece, line: Line, side: int) -> str:
    """Return a description of the piece in a few words."""
    message = read(piece, line, side)
    return f"{len(piece.data)} bytes" if message is None else f"a {called(message)}"


def called(message: Message) -> str:
    return f"{message.api.name} {message.version} {message.direction}"
