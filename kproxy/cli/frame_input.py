"""Frames in the forms in which people have them: lines of hex, a dump of 0x numbers, or raw bytes with their lengths.

Strategy: `frames` gives frames without their lengths. In text, `#` begins a comment. A line of hex is a frame; all the
0x numbers of a text are one stream. A length in front is taken off where it fits what follows, unless `lengths` says
whether there is one: a response's correlation id can look like a length.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

from kproxy.errors import DecodeError, InputError
from kproxy.wire.scan.frames import RESPONSE_HEADER, split

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
