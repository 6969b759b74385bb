"""APIs and frames as people give them, and messages as they are shown to people and programs.

An API is given by name, alias or key, in any case; frames as lines of hex, a dump of 0x numbers, or raw bytes with
their lengths. Strategy: `frames` gives frames without their lengths. In text, `#` begins a comment. A line of hex is a
frame; all the 0x numbers of a text are one stream. A length in front is taken off where it fits what follows, unless
`lengths` says whether there is one: a response's correlation id can look like a length.

Messages are shown as JSON, or as a tree with offsets. Bytes are `{"hex": "…"}` in JSON, strings that are not UTF-8 too.
Secrets are shown as `(withheld)`: passwords and SASL tokens, and the frames inside an Envelope, which may hold either.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any, NamedTuple
from uuid import UUID

import click

from kproxy.base.errors import DecodeError, InputError
from kproxy.protocol.codec.message import Message
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.codec.trace import TraceStep, trace
from kproxy.protocol.framing import RESPONSE_HEADER, split
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.protocol.table.schema import Api, load, names, paths
from kproxy.record.observer.credentials import SECRET_KINDS, WITHHELD

NUMBER = re.compile(r"\b0x([0-9a-fA-F]{1,2})\b")
TEXT = frozenset(string.printable.encode())


class FrameInputError(InputError):
    """Input that is neither hex nor frames."""


def frames(data: bytes, raw: bool = False, lengths: bool | None = None) -> Iterator[bytes]:
    """Yield the frames in `data`, without lengths. `raw`: `data` is bytes even if all of them are letters.

    Raises FrameInputError for text that is no hex, DecodeError for lengths that do not fit.
    """
    if raw or not set(data) <= TEXT:
        yield from [data] if lengths is False else split(data, smallest=0)
        return
    lines = [line.partition("#")[0].strip() for line in data.decode("ascii").splitlines()]
    if any(NUMBER.search(line) for line in lines):
        numbers = bytes(int(number, 16) for line in lines for number in NUMBER.findall(line))
        yield from stream(numbers, lengths)
        return
    for number, line in enumerate(lines, 1):
        if line:
            yield from stream(hex_line(line, number), lengths)


def hex_line(line: str, number: int) -> bytes:
    try:
        return bytes.fromhex(line.replace(":", " "))
    except ValueError:
        raise FrameInputError(f"line {number} is no hex: {line[:40]!r}") from None


def stream(data: bytes, lengths: bool | None) -> list[bytes]:
    """Return the frames in bytes that have lengths, or all the bytes as one frame without a length."""
    if lengths is False:
        return [data]
    try:
        return list(split(data, smallest=RESPONSE_HEADER if lengths is None else 0))
    except DecodeError:
        if lengths:
            raise
        return [data]


def find_api(text: str) -> Api:
    """Return the API of this name, alias or key. Raises UsageError with the nearest name if there is none."""
    from kproxy.rules.select.selected import number_in  # imported here, as most who decode name no API

    if (key := number_in(text)) is not None:
        if key not in paths():
            raise click.UsageError(f"no API has the key {text}, there are 0 to {max(paths())}")
        return load(key)
    lower = {name.lower(): name for name in names()}
    if text.lower() in lower:
        return load(names()[lower[text.lower()]])
    close = get_close_matches(text.lower(), lower, n=1, cutoff=0.5)
    hint = f", did you mean {lower[close[0]]}?" if close else "; `kproxy protocol` lists them"
    raise click.UsageError(f"no API is called {text!r}{hint}")


def known_version(api: Api, version: int) -> int:
    """Return the version if the API has it. Raises UsageError otherwise."""
    if version not in api.versions:
        raise click.UsageError(f"{api.name} has versions {api.versions}, not {version}")
    return version


SHOWN = 48
"""Bytes of a bytes field that a line of the tree shows."""


def plain(value: Any) -> Any:
    """Return a value of a message in a form that JSON has: bytes as hex, UUIDs and infinities as text."""
    match value:
        case bytes() | bytearray() | memoryview():
            return {"hex": value.hex()}
        case str():
            data = value.encode("utf-8", "surrogateescape")
            return value if data.isascii() or is_utf8(data) else {"hex": data.hex()}
        case UUID():
            return str(value)
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {name: plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
    return value


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def withheld(struct: Struct, value: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a struct's values in which secrets are replaced by WITHHELD."""
    found = dict(value)
    for slot in struct.all_slots:
        inner = value[slot.name]
        if inner is None:
            continue
        if slot.kind in SECRET_KINDS:
            found[slot.name] = [WITHHELD for _ in inner] if slot.array else WITHHELD
        elif (deeper := slot.struct) is not None:
            found[slot.name] = [withheld(deeper, item) for item in inner] if slot.array else withheld(deeper, inner)
    return found


def as_json(message: Message, secrets: bool = False, indent: int | None = None) -> str:
    """Return a message as a JSON object: api, key, version, direction, header, body. `secrets`: show them."""
    fields = layout.body(message.api.key, message.version, message.direction)
    shown = {
        "api": message.api.name,
        "key": message.api.key,
        "version": message.version,
        "direction": message.direction,
        "header": plain(message.header),
        "body": plain(message.body if secrets else withheld(fields, message.body)),
    }
    return json.dumps(shown, ensure_ascii=False, indent=indent)


class Row(NamedTuple):
    """Line of a tree. `start` and `end` are the offsets of its bytes in the frame; `end` is None for a name above the
    fields that belong to it. `depth` is 0 for the outermost lines."""

    start: int
    end: int | None
    depth: int
    text: str


def rows(api: Api, version: int, direction: str, frame: bytes, show: Callable[[TraceStep], str]) -> Iterator[Row]:
    """Yield the tree of a frame, row by row, with the text that `show` returns for a value. Raises DecodeError at the
    first byte that does not fit."""
    end = 0
    parents: list[str] = []
    parts = [
        ("header", layout.header(direction, header_version(api.key, version, direction))),
        ("body", layout.body(api.key, version, direction)),
    ]
    for name, struct in parts:
        for step in trace(struct, frame, end, name):
            *above, last = step.path.replace("[", ".[").split(".")
            for depth, parent in enumerate(above):
                if above[: depth + 1] != parents[: depth + 1]:
                    yield Row(step.start, None, depth, parent)
            parents = [*above, last]
            yield Row(step.start, step.end, len(above), f"{last}: {show(step)}")
            end = step.end
    if end < len(frame):
        yield Row(end, len(frame), 0, f"left over: {short(frame[end:])}")


def tree(api: Api, version: int, direction: str, frame: bytes, secrets: bool = False) -> Iterator[str]:
    """Yield lines `offset  bytes  name: value` of a frame. Raises DecodeError as `rows`."""
    for start, end, depth, text in rows(api, version, direction, frame, lambda step: shown(step, secrets)):
        size = "" if end is None else end - start
        yield f"{start:>8} {size:>6}  {'  ' * depth}{text}"


def shown(step: TraceStep, secrets: bool) -> str:
    """Return the value of a step as text for one line; secrets only if `secrets`."""
    slot: Slot | None = step.slot
    match step.what:
        case "count":
            return "null" if step.value < 0 else f"{step.value} element{'' if step.value == 1 else 's'}"
        case "present":
            return "present" if step.value else "null"
        case "tags":
            return f"{step.value} tagged field{'' if step.value == 1 else 's'}"
        case "tag":
            return f"tag {step.value}"
    if step.value is not None and not secrets and slot is not None and slot.kind in SECRET_KINDS:
        return WITHHELD
    if isinstance(step.value, (bytes, memoryview)):
        return short(step.value)
    return json.dumps(plain(step.value), ensure_ascii=False)


def short(data: bytes | memoryview) -> str:
    """Return the first bytes in hex, and how many there are."""
    more = " …" if len(data) > SHOWN else ""
    return f"{len(data)} bytes{': ' if len(data) else ''}{data[:SHOWN].hex(' ')}{more}"
