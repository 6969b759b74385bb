"""APIs and frames as people give them. An API is given by name, alias or key, in any case; frames as lines of hex, a
dump of 0x numbers, or raw bytes with their lengths.

Strategy: `frames` gives frames without their lengths. In text, `#` begins a comment. A line of hex is a frame; all the
0x numbers of a text are one stream. A length in front is taken off where it fits what follows, unless `lengths` says
whether there is one: a response's correlation id can look like a length.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from difflib import get_close_matches

import click

from kproxy.errors import DecodeError, InputError
from kproxy.wire.scan.frames import RESPONSE_HEADER, split
from kproxy.wire.table.schema import Api, load, names, paths

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
    if text.lstrip("-").isdigit():
        if int(text) not in paths():
            raise click.UsageError(f"no API has the key {text}, there are 0 to {max(paths())}")
        return load(int(text))
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
